//! The retry of an end that failed.
//!
//! Start at [`last_pending`].

use superstep_checkpoint::CheckpointError;
use superstep_engine::NodeName;

use super::restore::Restored;
use crate::{CheckpointId, Checkpointer, History, RunOptions, State, ThreadId, compiled::graph::Inner};

/// The number of checkpoints that are read at a time.
const PAGE: usize = 50;

/// Returns the node that this run retries, because the thread's end failed.
pub(super) fn retried_node<S: State>(
    graph: &Inner<S>,
    head: &Restored<S>,
    config: &RunOptions,
) -> Option<NodeName> {
    let is_wanted = config.retry_failed_end && config.checkpoint.is_none() && config.answers.is_empty();
    if !is_wanted || !head.meta.control.next.is_empty() {
        return None;
    }
    let failed = graph.failed_ends.iter().find(|failed| (failed.reason)(&head.state).is_some())?;
    Some(graph.topology.name(failed.again).clone())
}

/// Finds the newest checkpoint among `from` and its ancestors at which `node` is next, alone or beside others. Other branches are ignored.
pub(crate) async fn last_pending(
    checkpointer: &dyn Checkpointer,
    thread: &ThreadId,
    from: Option<CheckpointId>,
    node: &NodeName,
) -> Result<Option<CheckpointId>, CheckpointError> {
    let (mut wanted, mut before) = (from, None);
    while wanted.is_some() {
        let range = History { limit: Some(PAGE), before, ..History::default() };
        let page = checkpointer.history(thread, range).await?;
        let Some(oldest) = page.last() else { break };
        before = Some(oldest.id);
        for meta in page.iter() {
            if wanted == Some(meta.id) {
                if meta.control.next.contains(node) {
                    return Ok(wanted);
                }
                wanted = meta.parent;
            }
        }
    }
    Ok(None)
}
