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
    let failed = graph.failed_end.as_ref()?;
    let is_failed = is_wanted && head.meta.control.next.is_empty() && (failed.reason)(&head.state).is_some();
    is_failed.then(|| graph.topology.name(failed.again).clone())
}

/// Finds the newest checkpoint among `from` and its ancestors at which `node` alone is next. Other branches are ignored.
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
                if matches!(&meta.control.next[..], [next] if next == node) {
                    return Ok(wanted);
                }
                wanted = meta.parent;
            }
        }
    }
    Ok(None)
}
