//! The checkpoints of a thread as a tree, with the writes of each superstep.
//!
//! Start at [`tree`].

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use superstep::{
    CheckpointId, Checkpointer, ThreadId,
    checkpoint::{AppliedTask, CheckpointMeta, Commit, Source},
    node::NodeName,
    state::StoredUpdate,
};

use crate::{
    graphs::any_thread::AnyThread,
    output::{
        exit::{Exit, Failure},
        table::time,
        text::{brief, printable_line},
    },
};

/// The author of an input.
const INPUT: &str = "__start__";

/// Maximum number of characters of a value.
const MAX_SHOWN: usize = 80;

/// Maximum width of the lines of branches, so that deeply nested ones stay on the screen.
const MAX_WIDTH: usize = 40;

/// The writes of one task: its node, and a text for each channel.
type Writes = Vec<(String, Vec<String>)>;

/// Formats checkpoints as a tree, the oldest first. The branch of the head is the trunk.
///
/// `at` opens the thread at a checkpoint.
///
/// # Errors    A checkpoint cannot be read.
pub(crate) async fn tree(
    store: &dyn Checkpointer,
    thread: &ThreadId,
    checkpoints: &[CheckpointMeta],
    at: impl Fn(CheckpointId) -> Box<dyn AnyThread>,
) -> Result<String, Failure> {
    let by_id: BTreeMap<_, _> = checkpoints.iter().map(|meta| (meta.id, meta)).collect();
    let mut children: BTreeMap<CheckpointId, Vec<CheckpointId>> = BTreeMap::new();
    let mut roots = Vec::new();
    for meta in by_id.values() {
        match meta.parent.filter(|parent| by_id.contains_key(parent)) {
            Some(parent) => children.entry(parent).or_default().push(meta.id),
            None => roots.push(meta.id),
        }
    }
    let head = checkpoints.first().map(|meta| meta.id);
    let mut trunk = BTreeSet::new();
    let mut on_trunk = head;
    while let Some(meta) = on_trunk.and_then(|id| by_id.get(&id)) {
        trunk.insert(meta.id);
        on_trunk = meta.parent;
    }
    let mut text = String::new();
    // What is printed next is at the end: a checkpoint, the beginning of its line, and that of the lines below it.
    let mut rest: Vec<_> = roots.into_iter().rev().map(|root| (root, String::new(), String::new())).collect();
    while let Some((id, begin, below)) = rest.pop() {
        let meta = by_id[&id];
        let mut branches = children.remove(&id).unwrap_or_default();
        let goes_on = branches.iter().rposition(|child| trunk.contains(child));
        let next = goes_on.or(branches.len().checked_sub(1)).map(|position| branches.remove(position));
        text.push_str(&format!("{begin}● {}\n", line(meta, next.is_none(), head == Some(id))));
        let bar = if next.is_some() { "│" } else { " " };
        for write in writes(store, thread, meta, &at).await? {
            text.push_str(&format!("{below}{bar}     {write}\n"));
        }
        rest.extend(next.map(|next| (next, below.clone(), below.clone())));
        let deeper = match below.chars().count() < MAX_WIDTH {
            true => format!("{below}│ "),
            false => below.clone(),
        };
        let branches = branches.into_iter().rev();
        rest.extend(branches.map(|branch| (branch, format!("{below}├─"), deeper.clone())));
    }
    Ok(text)
}

/// Formats a checkpoint without its writes.
pub(super) fn line(meta: &CheckpointMeta, is_last: bool, is_head: bool) -> String {
    let reason = match (meta.source, meta.parent) {
        (Source::Loop, _) => format!("superstep {}", meta.control.step),
        (Source::Fork, Some(parent)) => format!("fork of {parent}"),
        (other, _) => other.as_str().to_owned(),
    };
    let mut line = format!("{}  {reason}  {}", meta.id, time(meta.created_ms));
    if let (Some(parent), true) = (meta.parent, meta.parent_pruned) {
        line.push_str(&format!("  after {parent} (pruned)"));
    }
    if is_head {
        line.push_str("  head");
    }
    if is_last && !meta.control.next.is_empty() {
        line.push_str(&format!("  next: {}", names(&meta.control.next)));
    }
    line
}

/// Formats the names of nodes.
fn names(nodes: &[NodeName]) -> String {
    nodes.iter().map(|node| printable_line(node.as_str())).collect::<Vec<_>>().join(", ")
}

/// Formats the writes of a checkpoint's superstep, in the order in which they were folded, one channel per line.
pub(super) async fn writes(
    store: &dyn Checkpointer,
    thread: &ThreadId,
    meta: &CheckpointMeta,
    at: &impl Fn(CheckpointId) -> Box<dyn AnyThread>,
) -> Result<Vec<String>, Failure> {
    let writes = writes_by_task(store, thread, meta, at).await?;
    let lines = writes
        .into_iter()
        .flat_map(|(node, channels)| channels.into_iter().map(move |channel| format!("{node}: {channel}")));
    Ok(lines.collect())
}

async fn writes_by_task(
    store: &dyn Checkpointer,
    thread: &ThreadId,
    meta: &CheckpointMeta,
    at: &impl Fn(CheckpointId) -> Box<dyn AnyThread>,
) -> Result<Writes, Failure> {
    let Some(Commit { applied, snapshot, .. }) = store.read_commit(thread, meta.id).await? else {
        return Ok(Vec::new());
    };
    if let (Some(_), Source::Loop, Some(parent)) = (snapshot, meta.source, meta.parent)
        && let Some(before) = store.read_commit(thread, parent).await?
        && meta.control.step > before.control.step + 1
    {
        // It stands for several supersteps, of which only the updates of the last one are stored.
        let authors = applied.iter().map(|task| author(&task.node)).collect::<Vec<_>>().join(", ");
        let (before, after) = (at(parent).state().await?.values, at(meta.id).state().await?.values);
        let changed = after.into_iter().filter(|(name, value)| before.get(name) != Some(value));
        return Ok(vec![(authors, changed.map(|(name, value)| written(&name, &value)).collect())]);
    }
    let writes = applied.into_iter().map(|AppliedTask { recorded, node, update, .. }| {
        let channels = match recorded && meta.parent_pruned {
            true => vec!["(pruned with the checkpoint before)".to_owned()],
            false => channels(&update)?,
        };
        Ok((author(&node), channels))
    });
    writes.collect()
}

/// Formats the author of writes.
fn author(node: &NodeName) -> String {
    if node.as_str() == INPUT { "input".to_owned() } else { printable_line(node.as_str()) }
}

/// Formats the writes of a stored update, with those that follow it.
fn channels(update: &StoredUpdate) -> Result<Vec<String>, Failure> {
    let failed = |error: serde_json::Error| Failure::caused(Exit::Database, &error);
    let json: Map<String, Value> = serde_json::from_str(&update.json().map_err(failed)?).map_err(failed)?;
    let later = json.get("$then").and_then(Value::as_array).into_iter().flatten();
    let parts = [&json].into_iter().chain(later.filter_map(Value::as_object));
    let mut all = Vec::new();
    for (name, value) in parts.flatten().filter(|(name, _)| !name.starts_with('$')) {
        match (name.as_str(), value) {
            ("clear", Value::Array(cleared)) => {
                let cleared: Vec<_> = cleared.iter().filter_map(Value::as_str).map(printable_line).collect();
                all.push(format!("reset: {}", cleared.join(", ")));
            }
            _ => all.push(written(name, value)),
        }
    }
    if all.is_empty() {
        all.push("(nothing)".to_owned());
    }
    Ok(all)
}

fn written(name: &str, value: &Value) -> String {
    format!("{} = {}", printable_line(name), brief(&value.to_string(), MAX_SHOWN))
}
