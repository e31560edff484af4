//! A turn that another process continues, while this one waits for decisions.
//!
//! Start at [`continued`].

use std::time::Duration;

use superstep::{
    Checkpointer, History, Outcome, Status, Thread, ThreadId, agent::AgentState, checkpoint::CheckpointError,
    thread::StateSnapshot,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::error::SessionError;

/// The time between two readings of the thread.
const INTERVAL: Duration = Duration::from_millis(500);

/// Waits until another process continues or has continued the thread, whose calls wait. A database that cannot be read is reported
/// when the calls are decided.
pub(super) async fn continued(store: &dyn Checkpointer, thread: &ThreadId) {
    let newest = || async {
        let newest = store.history(thread, History { limit: Some(1), ..History::default() }).await?;
        Ok::<_, CheckpointError>((newest.first().map(|meta| meta.id), store.has_writer(thread).await?))
    };
    let Ok((at, _)) = newest().await else { return std::future::pending().await };
    loop {
        sleep(INTERVAL).await;
        if newest().await.is_ok_and(|(id, is_written)| is_written || id != at) {
            return;
        }
    }
}

/// Follows the other process to the end of its run, or until `cancel`, which does not end it.
///
/// # Errors
/// The thread cannot be read.
pub(super) async fn follow(
    store: &dyn Checkpointer,
    thread: Thread<AgentState>,
    id: &ThreadId,
    cancel: &CancellationToken,
) -> Result<Outcome<AgentState>, SessionError> {
    while store.has_writer(id).await? && !cancel.is_cancelled() {
        tokio::select! {
            () = sleep(INTERVAL) => {}
            () = cancel.cancelled() => {}
        }
    }
    let StateSnapshot { values, next, tasks, checkpoint, .. } = thread.state().await?;
    Ok(Outcome {
        state: values,
        status: if next.is_empty() { Status::Completed } else { Status::Interrupted },
        checkpoint: checkpoint.map(|meta| meta.id),
        interrupts: tasks.into_iter().flat_map(|task| task.interrupts).collect(),
        drained: None,
    })
}
