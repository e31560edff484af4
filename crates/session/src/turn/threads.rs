//! Whole threads with what belongs to them: decisions and stored files.

use std::{cmp::Reverse, sync::Arc};

use superstep::{
    Checkpointer, History, ThreadId,
    checkpoint::{CheckpointError, CheckpointMeta},
};

use crate::{
    config::{
        location::{Location, is_unreadable},
        notes::Note,
    },
    error::SessionError,
    turn::{results, snapshots, stored_graph::graph},
};

/// Returns the threads with their heads, the newest first, and those that cannot be read last.
///
/// # Errors
/// The database cannot be read.
pub async fn heads(
    store: &dyn Checkpointer,
) -> Result<Vec<(ThreadId, Result<CheckpointMeta, CheckpointError>)>, SessionError> {
    match store.threads().await {
        Ok(heads) => Ok(heads.into_iter().map(|(thread, head)| (thread, Ok(head))).collect()),
        // One of them cannot be read. The others are read one by one.
        Err(error) if is_unreadable(&error) => {
            let mut heads = Vec::new();
            for thread in store.names().await? {
                match store.history(&thread, History { limit: Some(1), ..History::default() }).await {
                    Ok(head) => heads.extend(head.into_iter().map(|head| (thread.clone(), Ok(head)))),
                    Err(error) if is_unreadable(&error) => heads.push((thread, Err(error))),
                    Err(error) => return Err(error.into()),
                }
            }
            heads.sort_by_key(|(_, head)| Reverse(head.as_ref().map_or(i64::MIN, |head| head.created_ms)));
            Ok(heads)
        }
        Err(error) => Err(error.into()),
    }
}

/// Copies a thread, the decisions about it and its stored files. Returns notes for the user.
///
/// # Errors
/// The new name is taken, or something cannot be read or written.
pub async fn copy(
    location: &Location,
    store: Arc<dyn Checkpointer>,
    from: &ThreadId,
    to: &ThreadId,
) -> Result<Vec<Note>, SessionError> {
    // A missing folder has no files to restore.
    let (folders, _) = location.folders_of(&*store, from).await?;
    location.mark_copy(&*store, from, to).await?;
    graph()?.with_checkpointer(store).thread(from).copy_to(to).await?;
    let copy = location.decided(to)?;
    location.decided(from)?.copy_to(&copy)?;
    for cwd in folders {
        snapshots::copy(&cwd, from.as_str(), to.as_str())?;
    }
    Ok(copy.take_notes())
}

/// Deletes threads, the decisions about them and their stored files.
///
/// # Errors
/// Another process runs one of them, or something cannot be deleted.
pub async fn delete(
    location: &Location,
    store: &Arc<dyn Checkpointer>,
    threads: &[ThreadId],
) -> Result<(), SessionError> {
    // All of them are locked before the first is deleted, so that one that is busy prevents the deletion of
    // the others.
    let mut leases = Vec::new();
    for thread in threads {
        leases.push(store.lease(thread).await?);
    }
    // An unreadable record stops this before anything is deleted.
    let decided = threads.iter().map(|thread| location.decided(thread));
    let decided = decided.collect::<Result<Vec<_>, _>>()?;
    for (thread, decided) in threads.iter().zip(decided) {
        let folders = match location.folders_of(&**store, thread).await {
            // A missing folder has no results, and a folder that only the database names is not touched.
            Ok((folders, _)) => folders,
            Err(_) => location.folders_of_damaged(&decided),
        };
        store.delete(thread).await?;
        decided.forget()?;
        for cwd in folders {
            results::delete(&cwd, thread.as_str())?;
            snapshots::delete(&cwd, thread.as_str())?;
        }
    }
    Ok(())
}
