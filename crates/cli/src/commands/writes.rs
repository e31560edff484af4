//! The writes of a superstep, and those among them that changed the state.
//!
//! Start at [`writes`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::Serialize;
use serde_json::{Map, Value};
use superstep::{
    __private::{START, keys},
    CheckpointId, Checkpointer, ThreadId,
    checkpoint::{AppliedTask, CheckpointMeta, Commit, Source},
    erased::{JsonGraph, JsonThread},
    state::StoredUpdate,
};
use superstep_session::{
    error::{ErrorKind, SessionError},
    text::{brief, printable_line},
};

// A write changes no value if the write before it was equal. The states are not loaded, which would take a fold for
// each checkpoint, and the recorded fingerprints cover only the beginning of a large value. Where the earlier writes
// are not listed, because of a prune or a limit, all writes are shown.
const MAX_SHOWN: usize = 80;

/// The writes of a checkpoint, in the order in which they were folded.
#[derive(Default)]
pub(super) struct Writes {
    pub(super) tasks: Vec<TaskWrites>,
    /// The state of the checkpoint, if the writes were found by comparing states.
    pub(super) after: Option<Map<String, Value>>,
}

/// The writes of one task, or of one of its consecutive updates.
#[derive(Serialize)]
pub(super) struct TaskWrites {
    /// The node; `__start__` of an input.
    node: String,
    /// The written channels, and the reset ones in `clear`; `None` if they were pruned.
    update: Option<Map<String, Value>>,
}

/// Returns the writes of a checkpoint; `at` opens the thread at a checkpoint.
///
/// # Errors
/// The checkpoint cannot be read.
pub(super) async fn writes(
    store: &dyn Checkpointer,
    thread: &ThreadId,
    meta: &CheckpointMeta,
    at: &impl Fn(CheckpointId) -> Box<dyn JsonThread>,
) -> Result<Writes, SessionError> {
    let Some(Commit { applied, snapshot, .. }) = store.read_commit(thread, meta.id).await? else {
        return Ok(Writes::default());
    };
    if let (Some(_), Source::Loop, Some(parent)) = (snapshot, meta.source, meta.parent)
        && let Some(before) = store.read_commit(thread, parent).await?
        && meta.control.step > before.control.step + 1
    {
        // It stands for several supersteps, of which only the updates of the last one are stored.
        let node = applied.iter().map(|task| task.node.as_str()).collect::<Vec<_>>().join(", ");
        let (before, after) =
            (at(parent).state().await?.state.values()?, at(meta.id).state().await?.state.values()?);
        let changed = after.iter().filter(|(name, value)| before.get(*name) != Some(value));
        let update = changed.map(|(name, value)| (name.clone(), value.clone())).collect();
        return Ok(Writes { tasks: vec![TaskWrites { node, update: Some(update) }], after: Some(after) });
    }
    let mut tasks = Vec::new();
    for AppliedTask { recorded, node, update, .. } in applied {
        let node = node.to_string();
        if recorded && meta.parent_pruned {
            tasks.push(TaskWrites { node, update: None });
            continue;
        }
        let of_node = |update| TaskWrites { node: node.clone(), update: Some(update) };
        tasks.extend(updates(&update)?.into_iter().map(of_node));
    }
    Ok(Writes { tasks, after: None })
}

/// Returns a stored update, and those that follow it.
fn updates(update: &StoredUpdate) -> Result<Vec<Map<String, Value>>, SessionError> {
    let failed = |error: serde_json::Error| SessionError::caused(ErrorKind::Database, &error);
    let mut first: Map<String, Value> =
        serde_json::from_str(&update.json().map_err(failed)?).map_err(failed)?;
    let following = match first.remove(keys::THEN) {
        Some(Value::Array(following)) => following,
        _ => Vec::new(),
    };
    let following = following.into_iter().filter_map(|update| match update {
        Value::Object(update) => Some(update),
        _ => None,
    });
    let mut updates: Vec<_> = [first].into_iter().chain(following).collect();
    updates.iter_mut().for_each(|update| update.retain(|name, _| !keys::is_own(name)));
    Ok(updates)
}

/// The state with which the threads of a graph start.
pub(super) struct InitialState {
    /// The value of each stored channel.
    values: Map<String, Value>,
    /// The channels whose value is the last write.
    replaced: BTreeSet<String>,
}

impl InitialState {
    /// Returns that of a graph.
    ///
    /// # Errors
    /// A value has no JSON form.
    pub(super) fn of(graph: &dyn JsonGraph) -> Result<Self, SessionError> {
        let replaced = graph.channels().iter().filter(|channel| channel.exclusive && !channel.ephemeral);
        let replaced = replaced.map(|channel| channel.name.to_string()).collect();
        Ok(Self { values: graph.initial()?, replaced })
    }
}

/// The values of channels before a superstep, as far as the writes before it determine them.
#[derive(Clone, Default)]
pub(super) struct KnownValues(BTreeMap<String, Arc<Value>>);

impl KnownValues {
    /// Returns those before a checkpoint without a parent in the listing: all of them at the beginning of a thread.
    pub(super) fn before(meta: &CheckpointMeta, initial: &InitialState) -> Self {
        match meta.parent {
            None => Self::all(initial.values.clone(), initial),
            Some(_) => Self::default(),
        }
    }

    /// Returns those of a whole state.
    pub(super) fn all(values: Map<String, Value>, initial: &InitialState) -> Self {
        let is_known = |(name, value): &(String, Value)| {
            initial.replaced.contains(name) || initial.values.get(name) == Some(value)
        };
        Self(values.into_iter().filter(is_known).map(|(name, value)| (name, Arc::new(value))).collect())
    }

    /// Applies a write; returns whether it changed the value, as far as known.
    fn write(&mut self, name: &str, value: &Value, initial: &InitialState) -> bool {
        if !initial.replaced.contains(name) {
            if initial.values.contains_key(name) {
                self.0.remove(name);
            } else {
                // It may be the former name of any channel.
                self.0.clear();
            }
            return true;
        }
        let is_same = self.0.get(name).is_some_and(|known| **known == *value);
        if !is_same {
            self.0.insert(name.to_owned(), Arc::new(value.clone()));
        }
        !is_same
    }

    /// Applies a reset; returns likewise.
    fn reset(&mut self, name: &str, initial: &InitialState) -> bool {
        let Some(value) = initial.values.get(name) else { return true };
        let is_same = self.0.get(name).is_some_and(|known| **known == *value);
        if !is_same {
            self.0.insert(name.to_owned(), Arc::new(value.clone()));
        }
        !is_same
    }
}

/// Formats the writes that changed the values in `known`, one channel per line.
pub(super) fn changed(writes: Writes, initial: &InitialState, known: &mut KnownValues) -> Vec<String> {
    let mut lines = Vec::new();
    for TaskWrites { node, update } in writes.tasks {
        let author = |node| if node == START { "input".to_owned() } else { printable_line(node) };
        let node = node.split(", ").map(author).collect::<Vec<_>>().join(", ");
        let Some(update) = update else {
            lines.push(format!("{node}: (pruned with the checkpoint before)"));
            *known = KnownValues::default();
            continue;
        };
        let before = lines.len();
        // An update resets channels before it writes.
        if let Some(Value::Array(cleared)) = update.get(keys::CLEAR) {
            let cleared = cleared.iter().filter_map(Value::as_str);
            let cleared: Vec<_> =
                cleared.filter(|name| known.reset(name, initial)).map(printable_line).collect();
            if !cleared.is_empty() {
                lines.push(format!("{node}: reset: {}", cleared.join(", ")));
            }
        }
        for (name, value) in update.iter().filter(|(name, value)| *name != keys::CLEAR || !value.is_array()) {
            if known.write(name, value, initial) {
                let value = brief(&value.to_string(), MAX_SHOWN);
                lines.push(format!("{node}: {} = {value}", printable_line(name)));
            }
        }
        if lines.len() == before {
            lines.push(format!("{node}: (nothing)"));
        }
    }
    if let Some(after) = writes.after {
        *known = KnownValues::all(after, initial);
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_write_is_a_change_unless_the_value_is_known_and_equal() {
        let json = json!({ "total": 0, "notes": [] });
        let values = json.as_object().unwrap().clone();
        let initial = InitialState { values, replaced: ["total".to_owned()].into() };
        let mut known = KnownValues::all(initial.values.clone(), &initial);
        let mut lines = |update: Option<Value>| {
            let update = update.map(|update| update.as_object().unwrap().clone());
            let tasks = vec![TaskWrites { node: "a".to_owned(), update }];
            changed(Writes { tasks, after: None }, &initial, &mut known)
        };
        assert_eq!(lines(Some(json!({ "total": 0 }))), ["a: (nothing)"]);
        assert_eq!(lines(Some(json!({ "total": 1 }))), ["a: total = 1"]);
        assert_eq!(lines(Some(json!({ "total": 1, "clear": ["notes"] }))), ["a: (nothing)"]);
        // A merging reducer changes the value by an equal write too.
        for _ in 0..2 {
            assert_eq!(lines(Some(json!({ "notes": ["x"] }))), ["a: notes = [\"x\"]"]);
        }
        assert_eq!(lines(Some(json!({ "clear": ["total", "notes"] }))), ["a: reset: total, notes"]);
        assert_eq!(lines(Some(json!({ "clear": ["total", "notes"], "total": 0 }))), ["a: (nothing)"]);
        // A channel under a former name may be any channel.
        assert_eq!(lines(Some(json!({ "sum": 5 }))), ["a: sum = 5"]);
        assert_eq!(lines(Some(json!({ "total": 0 }))), ["a: total = 0"]);
        assert_eq!(lines(None), ["a: (pruned with the checkpoint before)"]);
        assert_eq!(lines(Some(json!({ "total": 0 }))), ["a: total = 0"]);
    }
}
