//! The threads of a database with their heads.
//!
//! Start at [`heads`].

use superstep::{
    Checkpointer, ThreadId,
    checkpoint::{CheckpointError, CheckpointMeta},
};
use superstep_session::{error::SessionError, turn::threads};

use crate::output::note::print_note;

/// Returns the errors of the threads without checkpoints of which something else is stored.
pub(crate) async fn orphans(
    store: &dyn Checkpointer,
) -> Result<Vec<(ThreadId, CheckpointError)>, CheckpointError> {
    let mut orphans = Vec::new();
    for thread in store.orphans().await? {
        let children = store.children(&thread).await?;
        orphans.push((thread.clone(), CheckpointError::Leftovers { thread, children }));
    }
    Ok(orphans)
}

/// Returns the threads with their heads, the newest first, and those that cannot be read last. A note reports the first missing
/// key.
pub(crate) async fn heads(
    store: &dyn Checkpointer,
) -> Result<Vec<(ThreadId, Result<CheckpointMeta, CheckpointError>)>, SessionError> {
    let mut heads = threads::heads(store).await?;
    let is_key = |error: &&CheckpointError| matches!(error, CheckpointError::Key { .. });
    if let Some(error) = heads.iter().filter_map(|(_, head)| head.as_ref().err()).find(is_key) {
        print_note(&error.to_string());
    }
    heads.extend(orphans(store).await?.into_iter().map(|(thread, error)| (thread, Err(error))));
    Ok(heads)
}
