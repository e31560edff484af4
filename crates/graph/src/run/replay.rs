//! A run along a stored thread: recorded inputs are replayed, and the results are compared.
//!
//! Start at [`replay`].

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use serde_json::{Map, Value, json};
use superstep_checkpoint::internal::own::STATE;
use superstep_engine::{Control, NodeName, Run, START, Task};
use superstep_state::internal::{RECORDED, Reader, outline, unpanicked};

use super::{
    driver::{Done, Driver, Given as Begins, limits},
    fail::Refused,
    targets::recorded_targets,
};
use crate::{
    CheckpointId, NodeError, NodeFailure, RecordedTarget, RunConfig, RunError, State, SubgraphPath,
    TaskRecord, ThreadId, chain,
    compiled::graph::{Inner, Keepers},
    journal::{
        divergence::{Astray, At, Divergence},
        interrupts::Asked,
        recorder::Given,
        replay_cursor::Along,
        replay_script::{Expected, ExpectedTask},
    },
    node::{cache::Lookup, cx::Standing, output::Written, routing::Targets},
    run::{
        restore::unfit_error,
        task::{RunTask, TaskResult},
    },
};

/// The number of bytes of a channel that its fingerprint covers, so that its cost does not grow with the
/// channel.
const OUTLINE: usize = 2 << 10;

/// The data of a replay.
#[derive(Default)]
pub(super) struct Replaying {
    expected: Expected,
    /// The divergences of this superstep, by slot.
    astray: BTreeMap<u32, Divergence>,
    /// `true` if a stored update was used whose task may have returned a command.
    lost: bool,
    /// The targets of its tasks, by slot.
    led: BTreeMap<u32, Vec<RecordedTarget>>,
    step: i64,
}

/// Runs a graph along a thread, from an input or from the line's position, to its end.
///
/// # Errors
/// [`RunError::Diverged`] if it diverged, with the divergence in the script, and [`RunError::Stuck`] if it
/// cannot continue.
pub(crate) async fn replay<S: State>(
    graph: Arc<Inner<S>>,
    keepers: Keepers,
    given: Begins<S>,
    config: RunConfig,
    along: Along,
) -> Result<(), RunError> {
    let (limits, config) = (limits(&graph, &config, true)?, Arc::new(config));
    let Keepers { checkpointer, store } = keepers;
    let checkpointer = checkpointer.expect("a replay has a store");
    let standing = Standing {
        place: Some((checkpointer.clone(), along.thread.clone())),
        store,
        drain: config.drain.clone(),
        config: config.clone(),
        namespace: SubgraphPath::default(),
        ids: String::new(),
        keys: None,
        pulse: None,
        along: Some(along.clone()),
        above: None,
    };
    let mut driver = Driver::new(graph, standing, None);
    let begin = driver.begin_with_store(checkpointer, given, &config).await?;
    if along.script.place(&along.thread).1.is_some() {
        driver.drive(begin, limits, &config).await?;
        driver.end_along();
    }
    Ok(())
}

impl<S: State> Driver<S> {
    pub(super) fn along(&self) -> Option<&Along> {
        self.cx.standing.along.as_ref()
    }

    /// Records that a run ended before its line, which would otherwise count as a complete replay.
    fn end_along(&self) {
        let Some(Along { script, thread }) = self.along() else { return };
        if script.place(thread).1.is_some() && !script.is_over() {
            let got = "a run that ends before it".into();
            script.diverge(self.divergence(START.into(), At::Failure, "another superstep".into(), got));
        }
    }

    /// Reads the stored data of the current tasks.
    pub(super) async fn expect(&mut self) -> Result<(), RunError> {
        let Some(Along { script, thread }) = self.along().cloned() else { return Ok(()) };
        if self.hold.is_some() {
            self.replaying.expected = script.expect(&thread).await?;
        }
        Ok(())
    }

    /// Advances to the next checkpoint; the run ends there if the line does.
    pub(super) async fn go_along(&mut self, config: &RunConfig) -> Result<(), RunError> {
        let Some(Along { script, thread }) = self.along().cloned() else { return Ok(()) };
        if self.hold.is_some() && script.advance(&thread) && self.inside.is_none() {
            config.drain.request("the replay ends here");
        }
        self.expect().await
    }

    /// Compares an input with the stored one.
    pub(super) async fn compare_input(&mut self) -> Result<(), RunError> {
        let Some(Along { script, thread }) = self.along().cloned() else { return Ok(()) };
        let node: NodeName = START.into();
        let Some(stored) = script.input(&thread).await? else { return Ok(()) };
        let expected = self.channels(&self.read_stored(&stored)?);
        let input = self.done.first().and_then(Option::as_ref).map_or(&[][..], |done| &done.json);
        if let Some((channel, expected, got)) = self.differ(expected, object(input)) {
            script.diverge(self.divergence(node, At::Channel(channel), expected, got));
            return Err(RunError::Diverged);
        }
        Ok(())
    }

    /// Stores the recorded inputs of a task with its update, or passes them to the caller of this graph. If
    /// the update came from the cache, they include the targets of its command (`went`).
    pub(super) fn note_learned(
        &self,
        task: Task,
        went: Option<Vec<RecordedTarget>>,
        json: &mut Vec<u8>,
    ) -> Result<(), RunError> {
        if !self.cx.tape.records {
            return Ok(());
        }
        let mut learned = self.cx.tape.learned(task.id, || self.cx.ledger.results(task.id));
        learned.failed = u64::from(self.attempt(task).saturating_sub(1));
        (learned.cached, learned.went) = (went.is_some(), went.unwrap_or_default());
        learned.failure = self.failure_of(task.id.slot).map(|failure| Box::new(failure.clone()));
        match &self.cx.standing.above {
            Some(above) => above.learn(task.id, learned),
            None => learned.append_to(json).map_err(|source| {
                let (node, step) = (self.graph.topology.name(task.node).clone(), task.id.step);
                RunError::Encode { node, channel: None, step, source }
            })?,
        }
        Ok(())
    }

    /// Returns the attempt of a task, now or at the time of recording.
    fn attempt(&self, task: Task) -> u32 {
        let recorded = self.expected(task.id.slot).and_then(|expected| expected.recorded.as_ref());
        recorded.map_or(task.attempt, |recorded| u32::try_from(recorded.failed).unwrap_or(u32::MAX - 1) + 1)
    }

    /// Retains the targets of a superstep's tasks, to name the responsible one after a divergence.
    pub(super) fn note_targets(&mut self, run: &Run) {
        if self.along().is_none() {
            return;
        }
        let slots = (0..).map_while(|slot| Some((slot, run.report(slot)?)));
        let led = slots.filter(|(slot, _)| self.done.get(*slot as usize).is_some_and(Option::is_some));
        let led = led.map(|(slot, report)| match self.record_of(slot, report) {
            TaskRecord::Finished { targets, .. } => (slot, targets),
            _ => (slot, Vec::new()),
        });
        self.replaying.led = led.collect();
    }

    fn expected(&self, slot: u32) -> Option<&ExpectedTask> {
        self.replaying.expected.tasks.get(&slot)
    }

    /// Returns the inputs of a task that is about to run.
    pub(super) fn given_to(&self, task: Task) -> Given {
        let Some(along) = self.along() else { return Given::Nothing };
        let live = along.script.is_live(self.graph.topology.name(task.node));
        if let Some(above) = &self.cx.standing.above {
            return above.given(task.id, live);
        }
        self.expected(task.id.slot).map_or(Given::Unknown, |expected| expected.given(live))
    }

    /// Returns the result of a task whose node does not run, because it did not run when it was stored
    /// either.
    pub(super) fn over_before(&self, task: Task, given: &Given) -> Option<RunTask<S>> {
        self.along()?;
        if let (Given::Recorded(recorded) | Given::Live(recorded), false) =
            (given, self.failures.contains_key(&task.id.slot))
            && let Some(failure) = &recorded.failure
            && failure.node == *self.graph.topology.name(task.node)
        {
            let error = NodeError::new(failure.message.clone()).fatal();
            return Some(RunTask::over(task, Err(error), Lookup::None));
        }
        let expected = self.expected(task.id.slot)?;
        match (given, &expected.error) {
            (Given::Recorded(recorded), _) if recorded.cached => {
                // Without a missing node the targets differ, which is detected.
                let (went, _) = recorded_targets(&self.graph.topology, recorded.went.clone());
                let written = Written { went: Some(went), ..self.stored(expected)? };
                Some(RunTask::over(task, Ok(written), Lookup::Hit))
            }
            (Given::Unknown, Some(error)) => {
                Some(RunTask::over(task, Err(NodeError::new(error.clone()).fatal()), Lookup::None))
            }
            _ => None,
        }
    }

    /// Returns the recorded failure that a task's error handler received.
    pub(super) fn recorded_failure(&self, task: Task) -> Option<NodeFailure> {
        self.along()?;
        match self.cx.tape.given(task.id) {
            Given::Recorded(recorded) | Given::Live(recorded) => recorded.failure.as_deref().cloned(),
            Given::Nothing | Given::Unknown => None,
        }
    }

    /// Returns the end of a task for the superstep: a divergence is recorded, and the stored update used
    /// instead.
    pub(super) fn along_with(
        &mut self,
        task: Task,
        result: TaskResult<S>,
    ) -> Result<TaskResult<S>, RunError> {
        let Some(along) = self.along().cloned() else { return Ok(result) };
        if along.script.is_over() {
            return Err(RunError::Diverged);
        }
        self.replaying.step = task.id.step;
        let node = self.graph.topology.name(task.node).clone();
        let stored = self.expected(task.id.slot).and_then(|expected| self.stored(expected));
        // A node that routes by commands must have a target, until the divergence is detected.
        let went = self.graph.nodes[task.node.position()].routes.first();
        let went = went.map(|route| Targets { ends: vec![*route], items: Vec::new() });
        let is_unknown = matches!(self.given_to(task), Given::Unknown);
        let astray = match result {
            // Only the missing result is known, because a run without storage has no line that ends.
            TaskResult::Finished(..) if self.cx.standing.above.is_some() && is_unknown => None,
            TaskResult::Finished(written, lookup) => {
                let Some(stored) = &stored else { return Ok(TaskResult::Finished(written, lookup)) };
                let (expected, got) = (self.channels(&stored.update), self.channels(&written.update));
                match self.differ(expected, got) {
                    None => return Ok(TaskResult::Finished(written, lookup)),
                    Some((channel, expected, got)) => {
                        Some(self.divergence(node, At::Channel(channel), expected, got))
                    }
                }
            }
            TaskResult::Failed(error) => {
                let handled = self.recorded_failure(task).is_some_and(|failure| failure.node == node);
                if handled || stored.is_none() {
                    return Ok(TaskResult::Failed(error));
                }
                let got = Value::from(chain(error.cause()));
                Some(self.divergence(node, At::Failure, "an update".into(), got))
            }
            TaskResult::Interrupted(mut asked) => {
                let Some(first) = asked.iter().position(|asked| matches!(asked, Asked::Astray(_))) else {
                    return Ok(TaskResult::Interrupted(asked));
                };
                let Asked::Astray(astray) = asked.swap_remove(first) else { unreachable!("it was found") };
                self.astray(node, astray)
            }
        };
        match (astray, stored) {
            (Some(divergence), Some(stored)) => {
                self.replaying.astray.insert(task.id.slot, divergence);
                Ok(TaskResult::Finished(Written { went, ..stored }, Lookup::None))
            }
            (Some(divergence), None) => {
                along.script.diverge(divergence);
                Err(RunError::Diverged)
            }
            (None, Some(stored)) => {
                along.script.took();
                self.replaying.lost |= went.is_some();
                Ok(TaskResult::Finished(Written { went, ..stored }, Lookup::None))
            }
            (None, None) => {
                // The caller of this graph has its own stored update.
                Err(RunError::Stuck)
            }
        }
    }

    /// Returns the divergence of a task; `None` if it only lacks recorded inputs.
    fn astray(&self, node: NodeName, astray: Astray) -> Option<Divergence> {
        let (at, expected, got) = match astray {
            Astray::Unknown => return None,
            Astray::New { effect } => {
                (At::Effect(effect), Value::Null, "something that it had not done".into())
            }
            Astray::Unfit { effect, recorded } => {
                (At::Effect(effect), recorded, "a type that this does not fit".into())
            }
            Astray::Other { effect, expected, got } => (At::Effect(effect), expected, got),
            Astray::Question { key, question } => (At::Question(key), Value::Null, question),
            Astray::Call { key } => (At::Call(key), Value::Null, "a graph that it had not called".into()),
        };
        Some(self.divergence(node, at, expected, got))
    }

    /// Compares a folded superstep with the stored one, before the next begins.
    pub(super) fn compare_superstep(&mut self, control: &Control) -> Result<(), RunError> {
        let Some(along) = self.along().cloned() else { return Ok(()) };
        if along.script.is_over() {
            return Err(RunError::Diverged);
        }
        let diverge = |divergence| {
            along.script.diverge(divergence);
            Err(RunError::Diverged)
        };
        self.replaying.step = control.step;
        let lost = std::mem::take(&mut self.replaying.lost);
        if let Some((_, divergence)) = self.replaying.astray.pop_first() {
            return diverge(divergence);
        }
        let Some(next) = self.replaying.expected.next.take() else {
            // The caller of this graph did not wait for it, or could not continue.
            return Err(RunError::Stuck);
        };
        let control = Control { items: self.items.clone(), ..control.clone() };
        if control != next.control {
            if lost {
                return Err(RunError::Stuck);
            }
            return diverge(self.route(&next.control, &control));
        }
        let folded = self.fingerprints();
        let Some(stored) = next.metadata.get(STATE).and_then(Value::as_object) else { return Ok(()) };
        let position = |channel: &str| self.state.channels().iter().position(|known| *known.name == *channel);
        // For a channel that the state no longer has, the writes are compared.
        let different = stored.iter().find_map(|(channel, value)| {
            let is_different = folded.get(channel) != Some(value);
            is_different.then(|| Some((position(channel)?, channel, value)))?
        });
        if let Some((position, channel, expected)) = different {
            let got = self.state.encode(position).ok();
            let got = got.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or(Value::Null);
            let expected =
                json!(format!("a value with the fingerprint {}", expected.as_str().unwrap_or("?")));
            let writer = self.writer(position);
            return diverge(self.divergence(writer, At::State(channel.clone()), expected, got));
        }
        Ok(())
    }

    /// Returns the divergence of the thread's next nodes, in the name of the responsible task.
    fn route(&self, expected: &Control, got: &Control) -> Divergence {
        let name = |slot: usize| {
            let done = self.done.get(slot).and_then(Option::as_ref);
            done.map(|done| self.graph.topology.name(done.node).clone())
        };
        let alone = (0..self.done.len()).filter(|slot| name(*slot).is_some()).count() == 1;
        let elsewhere = |slot: &usize| {
            let slot_number = u32::try_from(*slot).unwrap_or(u32::MAX);
            let targets = self.expected(slot_number).and_then(|expected| expected.targets.as_ref());
            let led = self.replaying.led.get(&slot_number);
            targets.is_some_and(|targets| led.is_none_or(|led| led != targets))
        };
        let unknown = |slot: &usize| {
            let slot_number = u32::try_from(*slot).unwrap_or(u32::MAX);
            self.expected(slot_number).is_none_or(|expected| expected.targets.is_none())
                && self.replaying.led.get(&slot_number).is_some_and(|led| !led.is_empty())
        };
        let slots = || (0..self.done.len()).filter(|slot| name(*slot).is_some());
        let blamed = match alone {
            true => slots().next(),
            false => slots().find(elsewhere).or_else(|| slots().find(unknown)).or_else(|| slots().next()),
        };
        let node = blamed.and_then(name).unwrap_or_else(|| START.into());
        let items = |control: &Control| -> Vec<Value> {
            let item = |json: &String| serde_json::from_str(json).unwrap_or_else(|_| json.as_str().into());
            control.items.values().map(item).collect()
        };
        let shown = |control: &Control| -> Value {
            let mut shown = Map::new();
            shown.insert("next".to_owned(), json!(control.next));
            if expected.step != got.step {
                shown.insert("step".to_owned(), json!(control.step));
            }
            if !(expected.items.is_empty() && got.items.is_empty()) {
                shown.insert("items".to_owned(), items(control).into());
            }
            if expected.arrived != got.arrived {
                shown.insert("arrived".to_owned(), json!(control.arrived));
            }
            if expected.deferred != got.deferred {
                shown.insert("deferred".to_owned(), json!(control.deferred));
            }
            shown.into()
        };
        self.divergence(node, At::Route, shown(expected), shown(got))
    }

    /// Returns the fingerprints of the channels that this superstep wrote, for large ones by their beginning
    /// and length.
    pub(super) fn fingerprints(&self) -> Map<String, Value> {
        let (state, channels) = (&self.state, self.state.channels());
        let written = self.written.iter().filter(|position| !channels[*position].untracked);
        let print = |position: usize| {
            let print = || Ok(outline(OUTLINE, |printer| state.serialize_channel(position, printer)));
            // Unreadable values are not compared.
            let print = unpanicked("Serialize", print).ok()??;
            Some((channels[position].name.to_string(), print.into()))
        };
        written.filter_map(print).collect()
    }

    /// Returns the task that wrote a channel last in this superstep.
    fn writer(&self, channel: usize) -> NodeName {
        let name = &self.state.channels()[channel].name;
        let wrote = |done: &&Done<S>| {
            let update = object(&done.json);
            update.contains_key(&**name) || update.values().any(|value| is_cleared(value, name))
        };
        let done = self.done.iter().flatten().rfind(wrote).or_else(|| self.done.iter().flatten().last());
        done.map_or_else(|| START.into(), |done| self.graph.topology.name(done.node).clone())
    }

    /// Records the error of a replayed superstep as a divergence.
    pub(super) fn refused_along(&self, refused: &Refused) {
        let Some(Along { script, .. }) = self.along() else { return };
        if matches!(refused.error, RunError::Diverged | RunError::Stuck | RunError::Checkpoint(_))
            || script.is_over()
        {
            return;
        }
        let is_stored = |slot: &u32| self.expected(*slot).is_some_and(|expected| expected.update.is_some());
        if self.inside.is_some() && !self.replaying.expected.tasks.keys().any(is_stored) {
            // It failed at that time, too; the result is in its caller's update.
            return;
        }
        let blamed = refused.blamed.first().and_then(|slot| self.done.get(*slot as usize)?.as_ref());
        let node = match (&refused.error, blamed) {
            (RunError::Node { node, .. } | RunError::Fold { node, .. }, _) => node.clone(),
            (_, Some(done)) => self.graph.topology.name(done.node).clone(),
            _ => START.into(),
        };
        script.diverge(self.divergence(
            node,
            At::Failure,
            "a superstep that ends".into(),
            chain(&refused.error).into(),
        ));
    }

    fn divergence(&self, node: NodeName, at: At, expected: Value, got: Value) -> Divergence {
        let checkpoint = CheckpointId(self.cx.checkpoint.load(Ordering::Relaxed));
        let checkpoint = self.replaying.expected.at.unwrap_or(checkpoint);
        let namespace = self.cx.standing.namespace.clone();
        let step = self.replaying.step;
        Divergence { namespace, checkpoint, step, node, at, expected, got, place: String::new() }
    }

    /// Returns the stored writes of a task.
    fn stored(&self, expected: &ExpectedTask) -> Option<Written<S>> {
        let update = self.read_stored(expected.update.as_deref()?).ok()?;
        Some(Written::update(update))
    }

    fn read_stored(&self, update: &str) -> Result<S::Update, RunError> {
        let mut reader = Reader::new(self.graph.initial.clone());
        let thread = self.along().map_or_else(|| ThreadId::from(""), |along| along.thread.clone());
        let checkpoint = self.replaying.expected.at.unwrap_or(CheckpointId(0));
        let read = reader.record(0, update.as_bytes());
        read.map_err(|unfit| unfit_error(unfit, &thread, checkpoint, "an update"))
    }

    /// Returns the writes of an update in their stored form, by channel.
    fn channels(&self, update: &S::Update) -> Map<String, Value> {
        match serde_json::to_value(&*self.state.stored(update)) {
            Ok(Value::Object(entries)) => entries,
            _ => Map::new(),
        }
    }

    /// Returns the first different entry, in the order of the channels.
    fn differ(
        &self,
        mut expected: Map<String, Value>,
        mut got: Map<String, Value>,
    ) -> Option<(String, Value, Value)> {
        let channels = self.state.channels().iter().map(|channel| channel.name.to_string());
        let others: Vec<String> = expected.keys().chain(got.keys()).cloned().collect();
        for name in channels.chain(others) {
            let (expected, got) = (expected.remove(&name), got.remove(&name));
            if expected != got && !name.starts_with("$v") && name != RECORDED {
                return Some((name, expected.unwrap_or_default(), got.unwrap_or_default()));
            }
        }
        None
    }
}

fn object(json: &[u8]) -> Map<String, Value> {
    serde_json::from_slice(json).unwrap_or_default()
}

/// Returns whether a list of cleared channels contains this one.
fn is_cleared(value: &Value, name: &str) -> bool {
    value.as_array().is_some_and(|names| names.iter().any(|cleared| cleared == name))
}
