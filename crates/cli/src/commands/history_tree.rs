//! The checkpoints of a thread as a tree, with the changes of each superstep.
//!
//! Start at [`tree`].

use std::collections::{BTreeMap, BTreeSet};

use superstep::{
    CheckpointId, Checkpointer, ThreadId,
    checkpoint::{CheckpointMeta, Source},
    erased::JsonThread,
    node::NodeName,
};
use superstep_session::{error::SessionError, text::printable_line};

use crate::{
    commands::writes::{InitialState, KnownValues, changed, writes},
    output::table::time,
};

/// Maximum width of the lines of branches, so that deeply nested ones stay on the screen.
const MAX_WIDTH: usize = 40;

/// Formats checkpoints as a tree, the oldest first, each with the writes that changed the state. The branch of the head is the trunk.
///
/// `initial` is the state with which the thread started, and `at` opens the thread at a checkpoint.
///
/// # Errors
/// A checkpoint cannot be read.
pub(super) async fn tree(
    store: &dyn Checkpointer,
    thread: &ThreadId,
    checkpoints: &[CheckpointMeta],
    initial: &InitialState,
    at: impl Fn(CheckpointId) -> Box<dyn JsonThread>,
) -> Result<String, SessionError> {
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
    let mut rest: Vec<_> = roots
        .into_iter()
        .rev()
        .map(|root| (root, String::new(), String::new(), KnownValues::before(by_id[&root], initial)))
        .collect();
    while let Some((id, begin, below, mut known)) = rest.pop() {
        let meta = by_id[&id];
        let mut branches = children.remove(&id).unwrap_or_default();
        let goes_on = branches.iter().rposition(|child| trunk.contains(child));
        let next = goes_on.or(branches.len().checked_sub(1)).map(|position| branches.remove(position));
        text.push_str(&format!("{begin}● {}\n", line(meta, next.is_none(), head == Some(id))));
        let bar = if next.is_some() { "│" } else { " " };
        let writes = writes(store, thread, meta, &at).await?;
        for change in changed(writes, initial, &mut known) {
            text.push_str(&format!("{below}{bar}     {change}\n"));
        }
        rest.extend(next.map(|next| (next, below.clone(), below.clone(), known.clone())));
        let is_narrow = below.chars().count() < MAX_WIDTH;
        let deeper = if is_narrow { format!("{below}│ ") } else { below.clone() };
        let branches = branches.into_iter().rev();
        rest.extend(branches.map(|branch| (branch, format!("{below}├─"), deeper.clone(), known.clone())));
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

fn names(nodes: &[NodeName]) -> String {
    nodes.iter().map(|node| printable_line(node.as_str())).collect::<Vec<_>>().join(", ")
}
