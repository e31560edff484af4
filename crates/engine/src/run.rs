//! One execution on a thread, as a state machine.
//!
//! Start at [`Run`].

mod protocol;

pub use protocol::{EngineError, Failure, Finished, Input, Output, Report, SuperstepEnd, Target, Task};

use std::{collections::VecDeque, sync::Arc, time::Duration};

use crate::{
    ChannelSet, Control, NodeIndex, OnCancel, RestoreError, RetryPolicy, TaskId, Topology,
    plan::{Waiting, plan},
};

/// One execution on a thread.
///
/// Created by [`Run::restore`], fed by [`Run::handle`], polled by [`Run::poll`].
///
/// # Determinism
/// Equal topologies, records and inputs give equal outputs. The order in which tasks finish is invisible in
/// every [`SuperstepEnd`].
#[derive(Debug)]
pub struct Run {
    topology: Arc<Topology>,
    step: i64,
    slots: Vec<Slot>,
    unfinished: usize,
    /// The number of interrupted tasks.
    interrupted: usize,
    /// `true` if a task stopped by itself.
    stopped: bool,
    breakpoints: Breakpoints,
    /// The tasks that run after the pending commit.
    next: Vec<NodeIndex>,
    waiting: Waiting,
    outputs: VecDeque<Output>,
    steps_left: u32,
    phase: Phase,
    cancelled: bool,
    draining: bool,
}

#[derive(Debug)]
struct Slot {
    /// The node of the task.
    of: NodeIndex,
    /// The node that runs: the task's node, or its error handler.
    node: NodeIndex,
    attempt: u32,
    report: Option<Report>,
    interrupted: bool,
    stopped: bool,
}

impl Slot {
    fn new(node: NodeIndex) -> Self {
        Self { of: node, node, attempt: 1, report: None, interrupted: false, stopped: false }
    }
}

/// The recorded tasks of a checkpoint, by slot. Tasks without a record run from their beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Tasks whose node permanently failed, with the error handler that runs instead. The other fields then
    /// describe the handler.
    pub handled: Vec<(u32, NodeIndex)>,
    /// Finished tasks.
    pub finished: Vec<(u32, Report)>,
    /// The number of failed attempts, by slot.
    pub failed: Vec<(u32, u32)>,
    /// Tasks that still wait for an answer.
    pub interrupted: Vec<u32>,
}

/// The limits of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunLimits {
    /// The maximum number of supersteps that may execute nodes.
    pub supersteps: u32,
    /// The breakpoints at which it stops.
    pub breakpoints: Breakpoints,
    /// `true` if it stops before any superstep that executes nodes.
    pub drained: bool,
}

/// Nodes at which a run stops. A run that starts at a breakpoint passes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breakpoints {
    /// The nodes before which it stops.
    pub before: Vec<NodeIndex>,
    /// The nodes after which it stops.
    pub after: Vec<NodeIndex>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Executing,
    Committing,
    Over,
}

impl Run {
    /// Continues from a control record; a fresh run continues from [`Control::input`] with the input as the
    /// finished task of [`START`](crate::START).
    ///
    /// # Errors
    /// [`RestoreError`] if the topology lacks a pending node or a reached join, if a node is planned twice, or if a record does
    /// not fit.
    pub fn restore(
        topology: Arc<Topology>,
        control: &Control,
        records: Records,
        limits: RunLimits,
    ) -> Result<Self, RestoreError> {
        let Records { handled, finished, failed, interrupted } = records;
        let step = control.step + 1;
        topology.fits(control)?;
        control.plans_once(&topology)?;
        let nodes = control.next.iter().filter_map(|name| topology.find(name.as_str()));
        let mut slots: Vec<_> = nodes.map(Slot::new).collect();
        let waiting = Waiting::restore(&topology, control);
        let bad =
            |slot, detail: &str| RestoreError::BadRecord { step: control.step, slot, detail: detail.into() };
        for (slot, handler) in handled {
            let entry = slots.get_mut(slot as usize).ok_or_else(|| bad(slot, "there is no such task"))?;
            entry.node = handler;
        }
        for (slot, failures) in failed {
            let entry = slots.get_mut(slot as usize).ok_or_else(|| bad(slot, "there is no such task"))?;
            entry.attempt = failures.saturating_add(1);
        }
        let mut unfinished = slots.len();
        for (slot, report) in finished {
            let entry = slots.get_mut(slot as usize).ok_or_else(|| bad(slot, "there is no such task"))?;
            topology.check(entry.node, &report.targets).map_err(|error| bad(slot, &error.to_string()))?;
            unfinished -= usize::from(entry.report.is_none());
            entry.report = Some(report);
        }
        if let Some(slot) =
            slots.iter().position(|slot| slot.node == topology.start() && slot.report.is_none())
        {
            return Err(bad(u32::try_from(slot).unwrap_or(u32::MAX), "the input is missing"));
        }
        let mut asking = 0;
        for slot in interrupted {
            let entry = slots.get_mut(slot as usize).ok_or_else(|| bad(slot, "there is no such task"))?;
            asking += usize::from(!entry.interrupted && entry.report.is_none());
            entry.interrupted = entry.report.is_none();
        }
        let mut run = Self {
            topology,
            step,
            slots,
            unfinished,
            interrupted: asking,
            stopped: false,
            breakpoints: limits.breakpoints,
            next: Vec::new(),
            waiting,
            outputs: VecDeque::new(),
            steps_left: limits.supersteps,
            phase: Phase::Executing,
            cancelled: false,
            draining: limits.drained,
        };
        run.begin_superstep();
        Ok(run)
    }

    /// Returns the next output; `None` until the next [`Run::handle`].
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Accepts an input.
    ///
    /// # Errors
    /// [`EngineError`] if the input was not requested. The run is then unchanged.
    pub fn handle(&mut self, input: Input) -> Result<(), EngineError> {
        match (self.phase, input) {
            (Phase::Executing, Input::Finished(Finished { task, report })) => self.finish(task, report),
            (Phase::Executing, Input::Failed { task, retry, jitter_share }) => {
                self.fail(task, retry, jitter_share)
            }
            (Phase::Executing, Input::Interrupted(task)) => self.interrupt(task),
            (Phase::Executing, Input::Stopped(task)) => self.stop_task(task),
            (Phase::Committing, Input::Committed) => {
                self.phase = Phase::Executing;
                self.step += 1;
                let stop = self.at_breakpoint();
                self.slots.clear();
                self.slots.extend(self.next.iter().copied().map(Slot::new));
                self.next.clear();
                self.unfinished = self.slots.len();
                if stop {
                    self.end(Output::Suspended);
                } else {
                    self.begin_superstep();
                }
                Ok(())
            }
            (Phase::Executing | Phase::Committing, Input::Cancel) => {
                self.cancel();
                Ok(())
            }
            (Phase::Executing | Phase::Committing, Input::Drain) => {
                self.draining = true;
                Ok(())
            }
            (
                Phase::Committing,
                Input::Finished(Finished { task, .. })
                | Input::Failed { task, .. }
                | Input::Interrupted(task)
                | Input::Stopped(task),
            ) => Err(EngineError::NotRunning(task)),
            (Phase::Executing, Input::Committed) => Err(EngineError::NoCommit),
            (Phase::Over, _) => Err(EngineError::Over),
        }
    }

    /// Returns the number of tasks of the current superstep.
    pub fn width(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of further supersteps that may execute nodes.
    pub fn steps_left(&self) -> u32 {
        self.steps_left
    }

    /// Returns the number of unfinished tasks of the current superstep.
    pub fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// Returns the control record that the pending commit will store; `None` if no commit is pending.
    pub fn control(&self) -> Option<Control> {
        (self.phase == Phase::Committing).then(|| self.waiting.control(&self.topology, self.step, &self.next))
    }

    /// Returns the number of failed attempts of an unfinished task; `None` if the task is finished or does
    /// not belong to the current superstep.
    pub fn failures(&self, task: TaskId) -> Option<u32> {
        let slot = self.slots.get(task.slot as usize).filter(|_| task.step == self.step)?;
        slot.report.is_none().then(|| slot.attempt - 1)
    }

    /// Returns the task at `slot` of the present superstep.
    pub fn task(&self, slot: u32) -> TaskId {
        TaskId { step: self.step, slot }
    }

    /// Returns the node of the task at `slot` of the current superstep, or its error handler if that runs
    /// instead.
    pub fn node(&self, slot: u32) -> Option<NodeIndex> {
        self.slots.get(slot as usize).map(|slot| slot.node)
    }

    /// Returns whether the task at `slot` of the current superstep stopped before its end, so that it runs again in another run.
    pub fn is_stopped(&self, slot: u32) -> bool {
        self.slots.get(slot as usize).is_some_and(|slot| slot.stopped)
    }

    /// Returns the report of the task at `slot` of the current superstep, if it is finished.
    pub fn report(&self, slot: u32) -> Option<&Report> {
        self.slots.get(slot as usize)?.report.as_ref()
    }

    fn begin_superstep(&mut self) {
        if self.slots.is_empty() {
            return self.end(Output::Done);
        }
        if self.unfinished == 0 {
            return self.end_superstep();
        }
        if !self.waits() {
            return self.stop();
        }
        if self.draining {
            return self.end(Output::Drained);
        }
        if self.steps_left == 0 {
            let next = self.slots.iter().map(|slot| self.topology.name(slot.of).clone()).collect();
            return self.end(Output::Fail(Failure::StepLimit { next }));
        }
        self.steps_left -= 1;
        self.outputs.reserve(self.unfinished);
        for slot in 0..self.slots.len() {
            let entry = &self.slots[slot];
            if self.runs(entry) {
                let (node, attempt) = (entry.node, entry.attempt);
                let task = Task { id: self.task_id(slot), node, attempt, delay: Duration::ZERO };
                self.outputs.push_back(Output::Execute(task));
            }
        }
    }

    fn finish(&mut self, task: TaskId, report: Report) -> Result<(), EngineError> {
        let slot = self.running(task)?;
        self.topology.check(self.slots[slot].node, &report.targets)?;
        self.slots[slot].report = Some(report);
        self.unfinished -= 1;
        if self.unfinished == 0 {
            self.end_superstep();
        } else if (self.cancelled || self.interrupted > 0 || self.stopped) && !self.waits() {
            self.stop();
        }
        Ok(())
    }

    fn interrupt(&mut self, task: TaskId) -> Result<(), EngineError> {
        let slot = self.running(task)?;
        self.slots[slot].interrupted = true;
        self.interrupted += 1;
        if !self.waits() {
            self.stop();
        }
        Ok(())
    }

    fn stop_task(&mut self, task: TaskId) -> Result<(), EngineError> {
        let slot = self.running(task)?;
        self.slots[slot].stopped = true;
        self.stopped = true;
        if !self.waits() {
            self.stop();
        }
        Ok(())
    }

    fn fail(
        &mut self,
        task: TaskId,
        retry: Option<RetryPolicy>,
        jitter_share: f64,
    ) -> Result<(), EngineError> {
        let slot = self.running(task)?;
        let entry = &mut self.slots[slot];
        let retry = retry.filter(|policy| entry.attempt < policy.max_attempts);
        match (retry, self.topology.handler(entry.node)) {
            (Some(policy), _) if !self.cancelled => {
                let delay = policy.delay(entry.attempt, jitter_share);
                entry.attempt += 1;
                let task = Task { id: task, node: entry.node, attempt: entry.attempt, delay };
                self.outputs.push_back(Output::Execute(task));
            }
            // The handler runs after all attempts, and another run makes the next one.
            (Some(_), Some(_)) => {
                entry.attempt += 1;
                return self.stop_task(task);
            }
            (None, Some(handler)) => self.hand_over(slot, handler),
            (_, None) => self.end(Output::Fail(Failure::Task(task))),
        }
        Ok(())
    }

    /// Runs an error handler as the task at `slot`. If the run is cancelled and the handler may not finish,
    /// the task stays pending.
    fn hand_over(&mut self, slot: usize, handler: NodeIndex) {
        (self.slots[slot].node, self.slots[slot].attempt) = (handler, 1);
        if self.runs(&self.slots[slot]) {
            let task = Task { id: self.task_id(slot), node: handler, attempt: 1, delay: Duration::ZERO };
            self.outputs.push_back(Output::Execute(task));
        } else if !self.waits() {
            self.stop();
        }
    }

    fn running(&self, task: TaskId) -> Result<usize, EngineError> {
        let slot = task.slot as usize;
        let entry = self.slots.get(slot).filter(|entry| task.step == self.step && self.runs(entry));
        entry.map(|_| slot).ok_or(EngineError::NotRunning(task))
    }

    fn end_superstep(&mut self) {
        if let Some(conflict) = self.conflict() {
            return self.end(Output::Fail(conflict));
        }
        let finished = self.slots.iter().map(|slot| {
            let report = slot.report.as_ref().expect("every task of an ending superstep is finished");
            (slot.node, report.targets.as_slice())
        });
        plan(&self.topology, finished, &mut self.waiting, &mut self.next);
        self.phase = Phase::Committing;
        let (width, next) = (slot_number(self.slots.len()), slot_number(self.next.len()));
        self.outputs.push_back(Output::Commit(SuperstepEnd { step: self.step, width, next }));
    }

    fn conflict(&self) -> Option<Failure> {
        if self.slots.len() == 1 {
            return None;
        }
        let (mut written, mut exclusive) = (ChannelSet::EMPTY, ChannelSet::EMPTY);
        for (second, slot) in self.slots.iter().enumerate() {
            let report = slot.report.as_ref()?;
            let clash = report
                .exclusive
                .intersection(written)
                .union(report.written.intersection(exclusive))
                .iter()
                .next();
            if let Some(channel) = clash {
                let first = self.slots.iter().position(|slot| {
                    slot.report.as_ref().is_some_and(|report| report.written.contains(channel))
                })?;
                return Some(Failure::Conflict {
                    channel,
                    first: self.task_id(first),
                    second: self.task_id(second),
                });
            }
            written = written.union(report.written);
            exclusive = exclusive.union(report.exclusive);
        }
        None
    }

    fn task_id(&self, slot: usize) -> TaskId {
        TaskId { step: self.step, slot: slot_number(slot) }
    }

    fn cancel(&mut self) {
        if std::mem::replace(&mut self.cancelled, true) || self.phase != Phase::Executing {
            return;
        }
        if !self.waits() {
            return self.stop();
        }
        for slot in 0..self.slots.len() {
            let entry = &self.slots[slot];
            if entry.report.is_none() && !entry.interrupted && !entry.stopped && !self.runs(entry) {
                self.outputs.push_back(Output::Drop(self.task_id(slot)));
            }
        }
    }

    /// Returns whether the superstep must wait for a task: it is not finished, not interrupted, did not stop
    /// by itself, and is not dropped by a cancellation.
    fn runs(&self, slot: &Slot) -> bool {
        let on_cancel = self.topology.nodes[slot.node.position()].on_cancel;
        let still = slot.report.is_none() && !slot.interrupted && !slot.stopped;
        still && (!self.cancelled || on_cancel == OnCancel::Finish)
    }

    /// Returns whether the superstep must wait for any task.
    fn waits(&self) -> bool {
        self.slots.iter().any(|slot| self.runs(slot))
    }

    /// Returns whether the run stops at a breakpoint: after the superstep that was just committed, or before
    /// the next one.
    fn at_breakpoint(&self) -> bool {
        let Breakpoints { before, after } = &self.breakpoints;
        !(self.next.is_empty() || before.is_empty() && after.is_empty())
            && (self.next.iter().any(|node| before.contains(node))
                || self.slots.iter().any(|slot| after.contains(&slot.of) || after.contains(&slot.node)))
    }

    /// Ends a run that has no task to wait for, although its superstep is incomplete.
    fn stop(&mut self) {
        self.end(match self {
            Self { cancelled: true, .. } => Output::Cancelled,
            Self { interrupted: 1.., .. } => Output::Suspended,
            Self { draining: true, .. } => Output::Drained,
            _ => Output::Cancelled,
        });
    }

    fn end(&mut self, output: Output) {
        self.phase = Phase::Over;
        self.outputs.push_back(output);
    }
}

fn slot_number(slot: usize) -> u32 {
    u32::try_from(slot).expect("slots are counted in 32 bits")
}
