//! Comparing a replay with the stored thread.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use serde_json::{Map, Value, json};
use superstep_checkpoint::{
    AppliedTask, CheckpointMeta, Commit, RecordedTarget, Source, SubgraphPath, TaskRecord,
    internal::own::STATE,
};
use superstep_engine::{ChannelSet, Control, NodeName, START};
use superstep_state::{
    RawJson, StoredUpdate,
    internal::{ThreadDecoder, keys},
};

use super::{Progress, Replaying};
use crate::{
    CheckpointId, RunError, State, ThreadId,
    compiled::graph::Inner,
    journal::{
        divergence::{At, Deviation, Divergence, DivergenceKind},
        replay_script::{ExpectedTask, Script},
    },
    node::output::Written,
    run::{
        folded_states::different_channel,
        observer::RunView,
        restore::{Restored, restore, unfit_error},
        superstep::Stop,
        targets::named,
    },
};

impl Progress {
    pub(super) fn divergence<S: State>(
        &self,
        run: RunView<'_, S>,
        node: NodeName,
        at: At,
        expected: Value,
        got: Value,
    ) -> Divergence {
        let checkpoint = CheckpointId(run.cx.checkpoint.load(Ordering::Relaxed));
        let checkpoint = self.expected.at.unwrap_or(checkpoint);
        let (path, step) = (run.cx.scope.path.clone(), self.step);
        let kind = match &at {
            At::Channel(_) if node == START => DivergenceKind::Input,
            At::Channel(_) => DivergenceKind::Update,
            At::State(_) => DivergenceKind::Reducer,
            At::Route => DivergenceKind::Route,
            At::Effect(_) => DivergenceKind::Effect,
            At::Question(_) => DivergenceKind::Question,
            At::Call(_) => DivergenceKind::Call,
            At::Failure => DivergenceKind::Failure,
        };
        let (changes, place) = (Vec::new(), String::new());
        Divergence { path, checkpoint, step, node, at, kind, changes, expected, got, place }
    }

    /// Returns the difference of a task; `None` if it only needs what was not recorded.
    pub(super) fn diverged<S: State>(
        &self,
        run: RunView<'_, S>,
        node: NodeName,
        deviation: Deviation,
    ) -> Option<Divergence> {
        let mut words = Vec::new();
        let (at, expected, got) = match deviation {
            // A replay has a number in any case.
            Deviation::Unknown | Deviation::Steps => return None,
            Deviation::New { effect, unused } if unused.is_empty() => {
                (At::Effect(effect), Value::Null, "something that it had not done".into())
            }
            Deviation::New { effect, unused } => {
                let names: Vec<String> = unused.iter().map(|name| format!("`{name}`")).collect();
                let got = format!("the effect `{effect}`, which was not recorded");
                (At::Effect(effect), format!("the effect {}", names.join(" or ")).into(), got.into())
            }
            Deviation::Unfit { effect, recorded } => {
                (At::Effect(effect), recorded, "a type that this does not fit".into())
            }
            Deviation::Other { effect, expected, got, changes } => {
                words = changes;
                (At::Effect(effect), expected, got)
            }
            Deviation::Question { key, question } => (At::Question(key), Value::Null, question),
            Deviation::Call { key } => (At::Call(key), Value::Null, "a graph that it had not called".into()),
        };
        let divergence = self.divergence(run, node, at, expected, got);
        let kind = words.first().map_or(divergence.kind, |change| change.kind);
        Some(Divergence { kind, changes: words, ..divergence })
    }

    /// Returns the difference between the stored control record and that of the replay, in the name of the task to blame.
    fn route<S: State>(
        &self,
        run: RunView<'_, S>,
        applied: &[AppliedTask],
        expected: &Control,
        got: &Control,
    ) -> Divergence {
        let led = led(run, applied, got);
        let elsewhere = |task: &&AppliedTask| {
            let targets = self.expected(task.slot).and_then(|expected| expected.targets.as_ref());
            let led = led.get(&task.slot);
            targets.is_some_and(|targets| led.is_none_or(|led| led != targets))
        };
        let unknown = |task: &&AppliedTask| {
            self.expected(task.slot).is_none_or(|expected| expected.targets.is_none())
                && led.get(&task.slot).is_some_and(|led| !led.is_empty())
        };
        let blamed = match applied {
            [alone] => Some(alone),
            _ => {
                let tasks = || applied.iter();
                tasks().find(elsewhere).or_else(|| tasks().find(unknown)).or_else(|| tasks().next())
            }
        };
        let node = blamed.map_or_else(|| START.into(), |task| task.node.clone());
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
            if expected.withheld != got.withheld {
                shown.insert("withheld".to_owned(), json!(control.withheld));
            }
            if expected.held != got.held {
                shown.insert("held".to_owned(), json!(control.held));
            }
            shown.into()
        };
        self.divergence(run, node, At::Route, shown(expected), shown(got))
    }
}

impl Replaying {
    /// Compares an input with the one that is stored.
    pub(super) async fn compare_input<S: State>(
        &self,
        run: RunView<'_, S>,
        new: &Commit,
    ) -> Result<(), Stop> {
        let Some(stored) = self.cursor.script.input(&self.cursor.thread).await? else { return Ok(()) };
        let progress = self.progress();
        let expected = channels(run.state, &self.read_stored(run, &progress, &stored)?);
        let input = new.records.iter().find_map(|(_, record)| match record {
            TaskRecord::Finished { update, .. } => serde_json::from_str(&update.json().ok()?).ok(),
            _ => None,
        });
        if let Some((channel, expected, got)) = differ(run.state, expected, input.unwrap_or_default()) {
            let divergence = progress.divergence(run, START.into(), At::Channel(channel), expected, got);
            self.cursor.script.diverge(divergence);
            return Err(Stop::Halted);
        }
        Ok(())
    }

    /// Compares a superstep that is folded, before anything follows it.
    pub(super) fn compare_superstep<S: State>(&self, run: RunView<'_, S>, new: &Commit) -> Result<(), Stop> {
        let (script, mut progress) = (&self.cursor.script, self.progress());
        if script.is_over() {
            return Err(Stop::Halted);
        }
        let diverge = |divergence| {
            script.diverge(divergence);
            Err(Stop::Halted)
        };
        progress.step = new.control.step;
        let lost = std::mem::take(&mut progress.lost);
        if let Some((_, divergence)) = progress.deviated.pop_first() {
            return diverge(divergence);
        }
        let Some(next) = progress.expected.next.take() else {
            // The caller of this graph did not wait for it, or it was not allowed to continue.
            return Err(Stop::Halted);
        };
        if new.control != next.control {
            if lost {
                return Err(Stop::Halted);
            }
            return diverge(progress.route(run, &new.applied, &next.control, &new.control));
        }
        let Some(stored) = next.metadata.get(STATE).and_then(Value::as_object) else { return Ok(()) };
        let tasks = progress.expected.tasks.values();
        let updates: Vec<_> = tasks.filter_map(|task| task.update.as_ref()).collect();
        if let Some((position, expected)) = different_channel(run.state, stored, &updates, None) {
            let (channel, got) =
                (run.state.channels()[position].name.to_string(), value_of(run.state, position));
            let writer = writer(run.state, &new.applied, position);
            return diverge(progress.divergence(run, writer, At::State(channel), printed(expected), got));
        }
        Ok(())
    }

    /// Returns what a task wrote when it was stored.
    pub(super) fn stored<S: State>(
        &self,
        run: RunView<'_, S>,
        progress: &Progress,
        expected: &ExpectedTask,
    ) -> Option<Written<S>> {
        let update = self.read_stored(run, progress, expected.update.as_ref()?).ok()?;
        Some(Written::update(update))
    }

    fn read_stored<S: State>(
        &self,
        run: RunView<'_, S>,
        progress: &Progress,
        update: &StoredUpdate,
    ) -> Result<S::Update, RunError> {
        let mut reader = ThreadDecoder::new((*run.graph.initial).clone());
        let checkpoint = progress.expected.at.unwrap_or(CheckpointId(0));
        let read = reader.record(0, update);
        read.map_err(|unfit| unfit_error(unfit, &self.cursor.thread, checkpoint, "an update"))
    }
}

/// Compares the state of a checkpoint that a replay does not reach, but begins with, with its stored fingerprints.
///
/// # Errors
/// That of loading the checkpoint.
pub(crate) async fn adopted<S: State>(
    graph: &Inner<S>,
    script: &Script,
    thread: &ThreadId,
    meta: &CheckpointMeta,
) -> Result<Option<Divergence>, RunError> {
    if meta.source != Source::Loop {
        return Ok(None);
    }
    let meta = script.fingerprinted(thread, meta.clone()).await?;
    let Some(stored) = meta.metadata.get(STATE).and_then(Value::as_object) else { return Ok(None) };
    let Some(loaded) = script.store.load(thread, Some(meta.id)).await? else { return Ok(None) };
    let snapshot = loaded.snapshot.clone().filter(|_| loaded.commits.is_empty());
    let updates = loaded.commits.last().cloned().unwrap_or_default();
    let reader = ThreadDecoder::new((*graph.initial).clone());
    let Restored { state, applied, .. } = restore(reader, thread, loaded, ChannelSet::EMPTY)?;
    let different = different_channel(&state, stored, &updates.iter().collect::<Vec<_>>(), snapshot.as_ref());
    let Some((position, expected)) = different else { return Ok(None) };
    let channel = state.channels()[position].name.to_string();
    let writer =
        applied.iter().zip(&updates).rfind(|(_, update)| update.touches(&channel)).map(|(task, _)| task);
    let node = writer.or(applied.last()).map_or_else(|| START.into(), |(_, node)| node.clone());
    Ok(Some(Divergence {
        path: SubgraphPath::default(),
        checkpoint: meta.parent.unwrap_or(meta.id),
        step: meta.control.step,
        node,
        at: At::State(channel),
        kind: DivergenceKind::Reducer,
        changes: Vec::new(),
        expected: printed(expected),
        got: value_of(&state, position),
        place: String::new(),
    }))
}

/// Returns the value of a channel as JSON.
fn value_of<S: State>(state: &S, channel: usize) -> Value {
    let json = state.encode(channel).ok();
    json.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or(Value::Null)
}

/// Returns what is stored of a value: a small one, or its fingerprint.
fn printed(fingerprint: &Value) -> Value {
    match fingerprint.as_array().map(Vec::as_slice) {
        Some([value]) => value.clone(),
        _ => json!(format!("a value with the fingerprint {}", fingerprint.as_str().unwrap_or("?"))),
    }
}

/// Returns the targets of the tasks of a superstep, by slot. The items that they sent are those of the next superstep, in the
/// order of the slots.
fn led<S: State>(
    run: RunView<'_, S>,
    applied: &[AppliedTask],
    next: &Control,
) -> BTreeMap<u32, Vec<RecordedTarget>> {
    let mut items = next.items.values().map(|item| RawJson::from(item.as_str()));
    let reports = applied.iter().filter_map(|task| Some((task.slot, run.plan?.report(task.slot)?)));
    reports.map(|(slot, report)| (slot, named(&run.graph.topology, &report.targets, &mut items))).collect()
}

/// Returns the task that wrote a channel last in a superstep.
fn writer<S: State>(state: &S, applied: &[AppliedTask], channel: usize) -> NodeName {
    let name = &state.channels()[channel].name;
    let task = applied.iter().rfind(|task| task.update.touches(name)).or_else(|| applied.last());
    task.map_or_else(|| START.into(), |task| task.node.clone())
}

/// Returns the writes of an update, by channel, as they are stored.
pub(super) fn channels<S: State>(state: &S, update: &S::Update) -> Map<String, Value> {
    match serde_json::to_value(&*state.stored(update)) {
        Ok(Value::Object(entries)) => entries,
        _ => Map::new(),
    }
}

/// Returns the first entry that is different, in the order of the channels.
pub(super) fn differ<S: State>(
    state: &S,
    mut expected: Map<String, Value>,
    mut got: Map<String, Value>,
) -> Option<(String, Value, Value)> {
    let channels = state.channels().iter().map(|channel| channel.name.to_string());
    let others: Vec<String> = expected.keys().chain(got.keys()).cloned().collect();
    for name in channels.chain(others) {
        let (expected, got) = (expected.remove(&name), got.remove(&name));
        if expected != got && name != keys::VERSIONS && name != keys::RECORDED {
            return Some((name, expected.unwrap_or_default(), got.unwrap_or_default()));
        }
    }
    None
}
