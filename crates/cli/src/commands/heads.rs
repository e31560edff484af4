//! The threads of a database with their heads.
//!
//! Start at [`heads`].

use std::cmp::Reverse;

use superstep::{
    Checkpointer, History, ThreadId,
    checkpoint::{CheckpointError, CheckpointMeta},
};
use superstep_session::{config::location::is_unreadable, error::SessionError};

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
    let mut heads = readable_heads(store).await?;
    heads.extend(orphans(store).await?.into_iter().map(|(thread, error)| (thread, Err(error))));
    Ok(heads)
}

async fn readable_heads(
    store: &dyn Checkpointer,
) -> Result<Vec<(ThreadId, Result<CheckpointMeta, CheckpointError>)>, SessionError> {
    match store.threads().await {
        Ok(heads) => Ok(heads.into_iter().map(|(thread, head)| (thread, Ok(head))).collect()),
        // One of them cannot be read. The others are read one by one.
        Err(error) if is_unreadable(&error) => {
            let (mut heads, mut is_noted) = (Vec::new(), false);
            for thread in store.names().await? {
                match store.history(&thread, History { limit: Some(1), ..History::default() }).await {
                    Ok(head) => heads.extend(head.into_iter().map(|head| (thread.clone(), Ok(head)))),
                    Err(error) if is_unreadable(&error) => {
                        if let (CheckpointError::Key { .. }, false) = (&error, is_noted) {
                            print_note(&error.to_string());
                            is_noted = true;
                        }
                        heads.push((thread, Err(error)));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            heads.sort_by_key(|(_, head)| Reverse(head.as_ref().map_or(i64::MIN, |head| head.created_ms)));
            Ok(heads)
        }
        Err(error) => Err(error.into()),
    }
}
