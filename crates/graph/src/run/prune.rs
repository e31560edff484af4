//! The deletion of older checkpoints, on request or at the end of a run.
//!
//! Start at [`prune`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;
use superstep_checkpoint::{
    CheckpointMeta, Prune, Retention, Source,
    internal::{input_ids, input_metadata, own::INPUT},
};
use superstep_engine::ChannelSet;

use crate::{
    CheckpointId, Checkpointer, History, RunError, State, ThreadId,
    compiled::graph::Inner,
    journal::{memories::settle, task_origin::Origins},
    run::{
        encode::snapshot,
        restore::{Restored, load},
        thread_writer::ThreadWriter,
        trace,
    },
};

/// The automatic prune waits until it deletes at least one checkpoint for this number of retained ones, because the oldest
/// retained one gets a full state each time.
// To delete one checkpoint after each run would write a full state for each run, however small its update, and a thread would cost as much as
// its state. With a quarter, many runs share that cost.
const RETAINED_PER_DELETED: usize = 4;

/// The maximum number of ids of deleted inputs that the oldest checkpoint retains.
const MAX_INPUT_IDS: usize = 64;

/// Deletes the checkpoints of a thread that are not in `kept`, and returns their number. The caller has the thread's lease;
/// `history` is all of it, newest first.
pub(crate) async fn prune<S: State>(
    graph: &Arc<Inner<S>>,
    checkpointer: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
    history: &[CheckpointMeta],
    kept: BTreeSet<CheckpointId>,
) -> Result<usize, RunError> {
    // A checkpoint without its parent gets a full value and the metadata of the input before it, and only the number
    // of its parent remains: a link to the nearest retained ancestor would be a history that never happened. The
    // store cannot fold, so the full values are made here.
    let Some(head) = history.first() else { return Ok(0) };
    let (mut snapshots, mut metadata) = (BTreeMap::new(), BTreeMap::new());
    for meta in history.iter().filter(|meta| kept.contains(&meta.id)) {
        if meta.parent.is_none_or(|parent| kept.contains(&parent)) || meta.parent_pruned {
            continue;
        }
        let mut remembered = input_metadata(history, meta.id);
        if !remembered.is_empty() {
            remembered.extend(meta.metadata.clone());
            metadata.insert(meta.id, remembered);
        }
        // A required channel may be absent; it is absent in the snapshot as well.
        let all: ChannelSet = (0..graph.initial.channels().len()).collect();
        if let Some(restored) = load(graph, checkpointer, thread, Some(meta.id), all).await? {
            let Restored { state, present, unknown, .. } = restored;
            let mut channels = snapshot(&state, meta.control.step)?;
            let known = state.channels().iter().enumerate();
            let absent = known.filter(|(position, channel)| channel.required && !present.contains(*position));
            let absent: Vec<_> = absent.map(|(_, channel)| &*channel.name).collect();
            channels.retain(|value| !absent.contains(&value.channel.as_str()));
            snapshots.insert(meta.id, channels.into_iter().chain(unknown.entry()).collect());
        }
    }
    if let Some(oldest) = history.iter().rfind(|meta| kept.contains(&meta.id))
        && let Some(ids) = deleted_inputs(history, &kept, oldest)
    {
        let all = metadata.entry(oldest.id).or_insert_with(|| oldest.metadata.clone());
        all.insert(INPUT.to_owned(), ids);
    }
    let mut settled = settle(&**checkpointer, thread, history, &kept).await?;
    for meta in history {
        if let Some(positions) = settled.remove(&meta.id) {
            metadata.entry(meta.id).or_insert_with(|| meta.metadata.clone()).extend(positions);
        }
    }
    let callers = callers(history.iter().filter(|meta| kept.contains(&meta.id)));
    let prune = Prune { keep: kept, snapshots, callers, metadata };
    Ok(checkpointer.prune(thread, head.id, prune).await?)
}

/// Returns the checkpoints that planned the tasks which external updates left to these ones: the threads of the subgraphs that
/// the tasks called are named after them.
pub(crate) fn callers<'a>(retained: impl Iterator<Item = &'a CheckpointMeta>) -> BTreeSet<CheckpointId> {
    let origins = retained.flat_map(|meta| Origins::of(meta).carried.into_values());
    origins.map(|origin| origin.checkpoint).collect()
}

/// Returns the id of the oldest input in `kept`, and those of the inputs of the checkpoints that are not, newest first.
fn deleted_inputs(
    history: &[CheckpointMeta],
    kept: &BTreeSet<CheckpointId>,
    oldest: &CheckpointMeta,
) -> Option<Value> {
    // An input has its own id first, then those of earlier prunes.
    let mut ids: Vec<&str> =
        input_ids(&oldest.metadata).take(usize::from(oldest.source == Source::Input)).collect();
    let most = ids.len() + MAX_INPUT_IDS;
    let merged = history.iter().filter(|meta| meta.id == oldest.id || !kept.contains(&meta.id));
    for id in merged.flat_map(|meta| input_ids(&meta.metadata)) {
        if ids.len() < most && !ids.contains(&id) {
            ids.push(id);
        }
    }
    (!ids.is_empty()).then(|| ids.into())
}

/// Deletes the checkpoints of the run's thread that are not to be retained, if they are enough. The result of the run is
/// stored, so that a failure is only reported; the next run tries again.
pub(super) async fn retain<S: State>(graph: &Arc<Inner<S>>, writer: &ThreadWriter, keep: &Retention) {
    if let Err(error) = try_retain(graph, writer, keep).await {
        trace::not_pruned(&error);
    }
}

async fn try_retain<S: State>(
    graph: &Arc<Inner<S>>,
    writer: &ThreadWriter,
    keep: &Retention,
) -> Result<(), RunError> {
    let (checkpointer, thread) = writer.stored_in();
    if !may_be_due(&**checkpointer, thread, keep).await? {
        return Ok(());
    }
    let history = checkpointer.history(thread, History::default()).await?;
    let kept = keep.choose(&history);
    let is_due = (history.len() - kept.len()) * RETAINED_PER_DELETED >= kept.len();
    if is_due && history.len() > kept.len() {
        prune(graph, checkpointer, thread, &history, kept).await?;
    }
    Ok(())
}

/// Returns whether an automatic prune may be due, from a few rows: the whole history is read only if it is about to be deleted.
async fn may_be_due(
    checkpointer: &dyn Checkpointer,
    thread: &ThreadId,
    keep: &Retention,
) -> Result<bool, RunError> {
    let count = checkpointer.count(thread).await?;
    let most_kept = count * RETAINED_PER_DELETED / (RETAINED_PER_DELETED + 1);
    if let Retention::Last(last) = keep {
        return Ok((*last).max(1) <= most_kept);
    }
    let newest = |before| async move {
        let range = History { limit: Some(1), before, ..History::default() };
        checkpointer.history(thread, range).await.map(|mut found| found.pop())
    };
    let Some(head) = newest(None).await? else { return Ok(false) };
    // The newest of those that have to go. Gaps in the numbers make it a newer one, which goes later.
    let place = head.id.0.saturating_sub(most_kept as u64).saturating_add(1);
    Ok(match (keep, newest(Some(CheckpointId(place))).await?) {
        (Retention::Since(_) | Retention::Within(_), Some(sample)) => {
            !keep.choose(&[head, sample.clone()]).contains(&sample.id)
        }
        (Retention::Since(_) | Retention::Within(_), None) => false,
        _ => true,
    })
}
