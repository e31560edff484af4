//! Snapshots of the files that tools change.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use superstep::{
    Checkpointer, CompiledGraph, ThreadId,
    agent::AgentState,
    tools::{FileSnapshots, Workspace},
};

use crate::error::{ErrorKind, SessionError};

pub fn open(cwd: &Path) -> Result<FileSnapshots, SessionError> {
    Workspace::open(cwd)
        .and_then(|workspace| FileSnapshots::new(&workspace))
        .map_err(|cause| SessionError::unusable_folder(cwd, &cause))
}

pub fn delete(cwd: &Path, thread: &str) -> Result<(), SessionError> {
    open(cwd)?.delete(thread).map_err(|cause| {
        let message =
            format!("the stored files of thread `{thread}` in `{}` were not deleted: {cause}", cwd.display());
        SessionError::new(ErrorKind::Failed, message)
    })
}

pub fn copy(cwd: &Path, from: &str, to: &str) -> Result<(), SessionError> {
    open(cwd)?.copy(from, to).map_err(|cause| {
        let message = format!(
            "the thread was copied, but not the stored files of `{from}` in `{}`: {cause}",
            cwd.display()
        );
        SessionError::new(ErrorKind::Failed, message)
    })
}

/// Deletes snapshot files of a thread that none of its checkpoints references, and returns their number.
///
/// `others` is `true` if its turns worked in more folders than these.
pub async fn prune(
    (folders, mut others): (Vec<PathBuf>, bool),
    store: &dyn Checkpointer,
    graph: &CompiledGraph<AgentState>,
    thread: &ThreadId,
) -> Result<usize, SessionError> {
    // No run may take snapshots in between.
    let _lease = store.lease(thread).await?;
    // An unfinished round has taken a snapshot that no state references yet. Another branch starts its rounds
    // anew.
    if !graph.thread(thread).state().await?.next.is_empty() {
        return Ok(0);
    }
    let mut trees = BTreeSet::new();
    for meta in store.history(thread, Default::default()).await? {
        let state = graph.thread(thread).at(meta.id).state().await?;
        // A library may have begun a turn in another folder.
        others |= state.values.cwd.is_some();
        let names = state.values.files.into_iter().flat_map(|files| [files.before, files.after]);
        // A discarded round has no second one yet.
        trees.extend(names.filter(|name| !name.is_empty()));
    }
    let folders =
        folders.into_iter().map(|cwd| Ok((open(&cwd)?, cwd))).collect::<Result<Vec<_>, SessionError>>()?;
    let mut pruned = 0;
    for (files, cwd) in &folders {
        // A tree is in the folder of its round. One that is in none of them is damaged.
        let is_elsewhere = |tree: &&String| {
            !files.has(thread.as_str(), tree)
                && (others || folders.iter().any(|(files, _)| files.has(thread.as_str(), tree)))
        };
        let trees = trees.iter().filter(|tree| !is_elsewhere(tree)).cloned().collect();
        pruned += files.prune(thread.as_str(), &trees).map_err(|cause| {
            let message =
                format!("the thread was pruned, but not its stored files in `{}`: {cause}", cwd.display());
            SessionError::new(ErrorKind::Failed, message)
        })?;
    }
    Ok(pruned)
}
