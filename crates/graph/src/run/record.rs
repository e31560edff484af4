//! The records of tasks of an incomplete superstep, so that they need not run again.

use std::{
    collections::BTreeMap,
    error::Error,
    mem,
    sync::Arc,
    task::{Context, Waker},
};

use futures::FutureExt as _;
use serde_json::Value;
use superstep_checkpoint::TaskRecord;
use superstep_engine::{Control, Report, Run, Task, TaskId};
use superstep_state::{RawJson, StoredUpdate, chain, reduce};
use tokio::runtime::Handle;

use super::{driver::Driver, fail::node_failure, finish::DueSnapshot, trace};
use crate::{
    NodeError, NodeFailure, Question, RunError, State,
    journal::{
        effects::Request,
        interrupts::{StoredAnswer, WaitReason, answer_key, waiting_record},
        recorder::Recorded,
    },
    node::{output::Written, routing::Targets},
    run::{
        conflicts::set_back_refused,
        restore::RestoredTask,
        targets::named,
        task_result::{FinishedTask, TaskEnd, TaskResult},
    },
};

impl<S: State> Driver<S> {
    /// Stores that a task failed and is about to be retried, so that a crash in between does not lose it.
    pub(super) async fn record_failed_attempt(&mut self, task: Task) -> Result<(), RunError> {
        let Some((failed, source)) = self.failure.take_if(|(failed, _)| failed.id == task.id) else {
            return Ok(());
        };
        trace::repeated(self.graph.topology.name(failed.node), failed, &*source, task);
        let record = self.failed_record(failed.id, failed.attempt, chain(&*source));
        self.store_record(failed.id.slot, record).await
    }

    /// Stores the failure of a node for the error handler that now runs its task.
    pub(super) async fn hand_over(
        &mut self,
        task: Task,
        source: Box<dyn Error + Send + Sync>,
        data: Option<Value>,
    ) -> Result<(), RunError> {
        let slot = task.id.slot;
        let node = self.graph.topology.name(task.node).clone();
        let item = self.items.get(&slot).map(String::as_str);
        let recorded = self.cx.recorder.failure(task.id, &self.graph.topology, task.node);
        let failure = recorded.unwrap_or_else(|| node_failure(node, task.attempt, &*source, data, item));
        self.failures.insert(slot, Arc::new(failure));
        self.open_questions.remove(&slot);
        self.cx.interrupts.drop_answers(task.id);
        self.cx.effects.forget(task.id);
        let record = self.failed_record(task.id, 0, chain(&*source));
        drop(source);
        self.store_record(slot, record).await
    }

    /// Returns the failure that a task's error handler receives.
    pub(super) fn failure_of(&self, slot: u32) -> Option<&NodeFailure> {
        self.failures.get(&slot).map(Arc::as_ref)
    }

    /// Stores the results of the tasks of a superstep that will not be committed.
    pub(super) async fn record_stop(
        &mut self,
        run: &Run,
        blamed: &[u32],
        error: &str,
        dropped: &[Task],
    ) -> Result<(), RunError> {
        for &slot in blamed {
            let mut record = self.failed_record(run.task(slot), 0, error.to_owned());
            let done = self.done.get(slot as usize).and_then(Option::as_ref);
            let update = done.filter(|done| done.recorded).and_then(|done| done.stored.as_ref());
            if let (Some(once), Some(update)) = (record.once_mut().filter(|once| once.is_empty()), update) {
                *once = Recorded::effects_of(update);
            }
            self.store_record(slot, record).await?;
        }
        for task in dropped.iter().filter(|task| !blamed.contains(&task.id.slot)) {
            self.record_stopped(*task).await?;
        }
        let fresh =
            (0..).zip(&self.done).filter(|(_, done)| done.as_ref().is_some_and(|done| !done.recorded));
        self.ended = fresh.map(|(slot, _)| slot).filter(|slot| !blamed.contains(slot)).collect();
        self.record_ended(run).await
    }

    /// Stores the ends of tasks that ended when the run was stopped, as if they had ended before. Returns those that must
    /// run again, because they stopped without an end, or because their next attempt reports what is wrong.
    pub(super) async fn record_over(&mut self, over: Vec<TaskEnd<S>>) -> Result<Vec<Task>, RunError> {
        let mut again = Vec::new();
        for TaskEnd { task, mut result } in over {
            let observed = self.observer.after_task(self.view(None), task, &mut result);
            let is_kept = match result {
                _ if observed.is_err() => false,
                TaskResult::Finished(written, _) => self.keep_finished(task, written).await?,
                TaskResult::Failed(error) => {
                    self.keep_failed(task, error).await?;
                    true
                }
                TaskResult::Interrupted(reasons) => self.record_interrupted(task, reasons).await?,
            };
            if !is_kept {
                again.push(task);
            }
        }
        Ok(again)
    }

    async fn keep_finished(&mut self, task: Task, written: Written<S>) -> Result<bool, RunError> {
        let Some(report) = self.keep_written(task, written) else { return Ok(false) };
        if self.writer.is_some() {
            let record = self.record_of(task.id.slot, &report);
            self.store_record(task.id.slot, record).await?;
            self.mark_recorded(task.id.slot);
        }
        Ok(true)
    }

    /// Accepts the writes and targets of a task; `None` if they are invalid, which its next attempt will report.
    fn keep_written(&mut self, task: Task, written: Written<S>) -> Option<Report> {
        let Written { update, goto, went } = written;
        let mut stored = self.encode(&update, task.node, task.id.step).ok()?;
        let gotos = match went {
            Some(went) => *went,
            None if goto.is_empty() => Targets::default(),
            None => self.graph.gotos(task.node, goto).ok()?,
        };
        self.observer.before_store(self.view(None), task, None, stored.as_mut()).ok()?;
        self.emit_update(task, &update, false);
        let report = self.finish(task.id, task.node, update, stored, gotos, false).ok()?;
        if self.graph.topology.check(task.node, &report.targets).is_err() {
            self.done[task.id.slot as usize] = None;
            return None;
        }
        Some(report)
    }

    /// Stores a failed attempt. Its next run retries the task, begins its error handler, or begins it anew.
    async fn keep_failed(&mut self, task: Task, error: NodeError) -> Result<(), RunError> {
        let retry = self.graph.nodes[task.node.position()].retry.policy(&error);
        if error.is_refusal() {
            self.withdraw_answers(task.id);
        }
        let (source, data) = error.into_parts();
        self.emit_failure(task, &*source);
        let is_retried = retry.is_some_and(|policy| task.attempt < policy.max_attempts);
        if !is_retried && self.graph.topology.handler(task.node).is_some() {
            return self.hand_over(task, source, data).await;
        }
        let attempts = if is_retried { task.attempt } else { 0 };
        let record = self.failed_record(task.id, attempts, chain(&*source));
        self.store_record(task.id.slot, record).await
    }

    /// Stores the questions of a task. A rejected answer is reported by the next run, which asks again.
    async fn record_interrupted(&mut self, task: Task, reasons: Vec<WaitReason>) -> Result<bool, RunError> {
        let reasons = match self.check_questions(task, reasons) {
            Ok(reasons) => reasons,
            Err(error) => {
                self.keep_failed(task, error).await?;
                return Ok(true);
            }
        };
        let mut questions = Vec::new();
        for reason in reasons {
            match reason {
                WaitReason::Question(question) => questions.push(self.compared(task, question)),
                WaitReason::Breakpoint | WaitReason::Cancelled | WaitReason::Drained => {}
                _ => return Ok(false),
            }
        }
        // Without a thread only the caller of this graph can store them.
        if questions.is_empty() || self.writer.is_none() && self.inside.is_none() {
            return Ok(false);
        }
        let answers = self.cx.interrupts.answers_of(task.id);
        let interrupts = self.store_questions(task, questions, &answers).await?;
        self.emit_interrupts(task, &interrupts);
        Ok(true)
    }

    /// Folds the writes of an incomplete superstep, as [`Thread::state`](crate::Thread::state) does.
    pub(super) fn fold_early(&mut self) {
        let updates: Vec<_> = self.accepted().into_values().collect();
        if let (false, Ok(state)) = (updates.is_empty(), reduce(&self.state, updates)) {
            self.state = state;
        }
    }

    /// Returns the updates of finished tasks that their incomplete superstep does not refuse, by slot.
    pub(super) fn accepted(&self) -> BTreeMap<u32, S::Update> {
        let name = |done: &Option<FinishedTask<S>>| match done {
            Some(done) => self.graph.topology.name(done.node).clone(),
            None => "?".into(),
        };
        let control = Control::new(self.last_step - 1, self.done.iter().map(name).collect());
        let done = (0..).zip(&self.done);
        let finished =
            || TaskRecord::Finished { update: StoredUpdate::empty(), targets: Vec::new(), failure: None };
        let done = done.filter_map(|(slot, done)| {
            Some(RestoredTask { slot, record: finished(), update: Some(done.as_ref()?.update.clone()?) })
        });
        let mut tasks: Vec<_> = done.collect();
        set_back_refused(&self.graph.topology, &control, &self.state, &mut tasks);
        tasks.into_iter().filter_map(|task| Some((task.slot, task.update?))).collect()
    }

    /// Stores that a task stopped before its end.
    pub(super) async fn record_stopped(&mut self, task: Task) -> Result<(), RunError> {
        let once = self.cx.effects.results(task.id);
        // The record of a waiting task has its questions and answers, that of an error handler its failure,
        // and that of a later attempt the earlier failures; all mean that the task is pending.
        let plain = task.attempt == 1 && !self.has_waited(task.id) && self.failure_of(task.id.slot).is_none();
        if plain {
            self.store_record(task.id.slot, TaskRecord::Cancelled { once }).await?;
        } else if self.cx.effects.is_ahead(task.id) {
            let record = self.started_record(task.id, task.attempt - 1, once);
            self.store_record(task.id.slot, record).await?;
        }
        Ok(())
    }

    /// Stores the writes of the tasks that have finished since the last call before their superstep ends, so that they do
    /// not run again after a failure or a crash.
    pub(super) async fn record_ended(&mut self, run: &Run) -> Result<(), RunError> {
        let ended = mem::take(&mut self.ended);
        if self.writer.is_none() {
            return Ok(());
        }
        let reports = ended.iter().filter_map(|slot| Some((*slot, run.report(*slot)?)));
        let records: Vec<_> = reports.map(|(slot, report)| (slot, self.record_of(slot, report))).collect();
        if records.is_empty() {
            return Ok(());
        }
        self.store_records(records).await?;
        ended.into_iter().for_each(|slot| self.mark_recorded(slot));
        Ok(())
    }

    /// Creates the record of a failure, with the questions and answers of the task.
    pub(super) fn failed_record(&self, task: TaskId, attempts: u32, error: String) -> TaskRecord {
        let once = self.cx.effects.results(task);
        let record = if self.has_waited(task) {
            let (questions, answers) = self.questions_of(task);
            waiting_record(questions, &answers, attempts, Some(error), once)
        } else {
            TaskRecord::Failed { attempts, error, once }
        };
        record.handled(self.failure_of(task.slot))
    }

    /// Returns whether a task has answers, or waited for one in an earlier run. It remains so in its records, also if its questions
    /// are withdrawn.
    pub(super) fn has_waited(&self, task: TaskId) -> bool {
        self.open_questions.contains_key(&task.slot) || !self.cx.interrupts.answers_of(task).is_empty()
    }

    /// Returns the questions of a task that were pending at the start of the run and have no answer, and all
    /// its answers.
    fn questions_of(&self, task: TaskId) -> (Vec<Question>, BTreeMap<String, StoredAnswer>) {
        let answers = self.cx.interrupts.answers_of(task);
        let open = self.open_questions.get(&task.slot).into_iter().flatten();
        let open = open.filter(|question| !answers.contains_key(&answer_key(question))).cloned().collect();
        (open, answers)
    }

    /// Creates the record of a running task, with its questions and answers.
    pub(super) fn started_record(
        &self,
        task: TaskId,
        attempts: u32,
        once: BTreeMap<String, RawJson>,
    ) -> TaskRecord {
        let record = if self.has_waited(task) {
            let (questions, answers) = self.questions_of(task);
            waiting_record(questions, &answers, attempts, None, once)
        } else {
            TaskRecord::Started { attempts, once }
        };
        record.handled(self.failure_of(task.slot))
    }

    /// Stores the effects of tasks, before they continue.
    pub(super) async fn record_started(&mut self, run: &Run, requests: Vec<Request>) -> Result<(), RunError> {
        let (mut waiting, mut sync) = (Vec::with_capacity(requests.len()), false);
        for Request { task, stored, durable } in requests {
            // The record of a finished or interrupted task must not be replaced. Work that it left behind is
            // notified by the end of `stored`.
            let Some(failed) = run.failures(task).filter(|_| !self.waiting.contains_key(&task.slot)) else {
                continue;
            };
            if self.cx.effects.is_ahead(task) {
                self.store_effects(task, failed).await?;
            }
            sync |= durable;
            waiting.push(stored);
        }
        if sync {
            self.flush().await?;
            if let Some(writer) = &self.writer {
                writer.sync().await?;
            }
        }
        for stored in waiting {
            // The node may have been dropped meanwhile.
            let _ = stored.send(());
        }
        Ok(())
    }

    /// Stores the new results of a task's effects: alone if the rest of its record is stored, so that many effects
    /// do not rewrite each other's results.
    async fn store_effects(&mut self, task: TaskId, attempts: u32) -> Result<(), RunError> {
        let rest = self.started_record(task, attempts, BTreeMap::new());
        let new = self.cx.effects.unstored(task);
        let names = new.keys().cloned().collect();
        let mut is_added = false;
        if self.started.get(&task.slot) == Some(&rest) {
            self.flush().await?;
            if let Some(writer) = &self.writer {
                is_added = writer.add_effects(task.slot, new).await?;
            }
        }
        if !is_added {
            let mut record = rest.clone();
            if let Some(once) = record.once_mut() {
                *once = self.cx.effects.results(task);
            }
            self.store_record(task.slot, record).await?;
            self.flush().await?;
            self.started.insert(task.slot, rest);
        }
        self.cx.effects.is_stored(task, names);
        Ok(())
    }

    /// Stores the results of effects that the nodes of a dropped run still wait to see stored: now, or, if the checkpointer has to
    /// wait, in a task of its own, which has the thread's lease until then. Those of a called graph are its caller's as well.
    pub(super) fn store_known_effects(&mut self, run: &Run) {
        // A simulated process that stops stores nothing, like a killed one.
        if self.cx.scope.config.call_observer.is_some() {
            return;
        }
        let Some(mut writer) = self.writer.take_if(|writer| writer.has_lease()) else { return };
        let tasks = self.cx.effects.ahead();
        let tasks = tasks.into_iter().filter(|task| !self.waiting.contains_key(&task.slot));
        let record = |task| {
            let failed = run.failures(task)?;
            Some((task.slot, self.started_record(task, failed, self.cx.effects.results(task))))
        };
        let records: Vec<_> = tasks.filter_map(record).collect();
        if records.is_empty() {
            return;
        }
        let state = self.held.take().unwrap_or_else(|| self.state.clone());
        let mut storing = async move {
            let stored = async {
                writer.record(records).await?;
                writer.flush(|step| DueSnapshot { state: &state, step }, false).await
            };
            if let Err(error) = stored.await {
                trace::effects_lost(&error);
            }
        }
        .boxed();
        let is_stored = storing.poll_unpin(&mut Context::from_waker(Waker::noop())).is_ready();
        if let (false, Ok(runtime)) = (is_stored, Handle::try_current()) {
            runtime.spawn(storing);
        }
    }

    pub(super) async fn store_record(&mut self, slot: u32, record: TaskRecord) -> Result<(), RunError> {
        self.store_records(vec![(slot, record)]).await
    }

    pub(super) async fn store_records(&mut self, records: Vec<(u32, TaskRecord)>) -> Result<(), RunError> {
        records.iter().for_each(|(slot, _)| drop(self.started.remove(slot)));
        if let Some(writer) = &mut self.writer {
            let stored = writer.record(records).await?;
            self.emit_checkpoints(stored);
        }
        Ok(())
    }

    pub(super) fn record_of(&self, slot: u32, report: &Report) -> TaskRecord {
        let done = self.done[slot as usize].as_ref().expect("only finished tasks are recorded");
        let update = done.stored.clone().expect("a run with a thread encodes its updates");
        let targets = named(&self.graph.topology, &report.targets, &mut done.items.iter().cloned());
        TaskRecord::Finished { update, targets, failure: None }.handled(self.failure_of(slot))
    }

    pub(super) fn mark_recorded(&mut self, slot: u32) {
        if let Some(done) = &mut self.done[slot as usize] {
            done.recorded = self.writer.is_some();
        }
    }
}
