//! Threads as a whole: copied, pruned, deleted.

use std::collections::BTreeMap;

use superstep_checkpoint::internal::asked_as;
use superstep_engine::ChannelSet;

use crate::{
    CheckpointError, CompiledGraph, History, Keep, Prune, RunError, State, ThreadId,
    api::adopt::mark_all,
    journal::task_origin::Origins,
    run::{
        finish::snapshot,
        restore::{Restored, load},
    },
};

impl<S: State> CompiledGraph<S> {
    /// Copies the thread `from` to `to`: the same checkpoints under the same ids, the records of their tasks,
    /// and the threads of subgraphs. The copies are then independent, and the keys of their tasks differ
    /// ([`Cx::key`](crate::Cx::key)).
    ///
    /// # Errors
    /// [`CheckpointError::NoThread`] if `from` does not exist, [`CheckpointError::ThreadExists`] if `to`
    /// exists, [`CheckpointError::Busy`] if one of them has another writer.
    pub async fn copy_thread(&self, from: &ThreadId, to: &ThreadId) -> Result<(), RunError> {
        let checkpointer = self.checkpointer()?;
        if from == to {
            return Err(CheckpointError::ThreadExists { thread: to.clone() }.into());
        }
        let _from = checkpointer.lease(from).await?;
        let _to = checkpointer.lease(to).await?;
        checkpointer.copy(from, to).await?;
        // A deleted thread may have had this name; its keys must not be reused.
        let nonce = checkpointer.nonce(to).await?;
        mark_all(&**checkpointer, to, |mark| mark.with_nonce(nonce.clone())).await?;
        Ok(())
    }

    /// Deletes a thread and the threads of its subgraphs. No effect if it does not exist.
    ///
    /// # Errors
    /// [`CheckpointError::Busy`] if it has another writer.
    pub async fn delete_thread(&self, thread: &ThreadId) -> Result<(), RunError> {
        let checkpointer = self.checkpointer()?;
        let _lease = checkpointer.lease(thread).await?;
        Ok(checkpointer.delete(thread).await?)
    }

    /// Deletes the checkpoints of a thread that `keep` does not retain, and returns their number.
    ///
    /// Retained checkpoints have the same state and the same task records as before, so that the thread
    /// continues and they can be forked. One without its parent gets a full state of its own, and the
    /// metadata of the input before it ([`RunConfig::metadata`](crate::RunConfig::metadata)). The threads of
    /// subgraphs are deleted with the checkpoints whose tasks called them.
    ///
    /// # Errors
    /// [`CheckpointError::Busy`] if the thread has another writer, [`RunError::UnknownCheckpoint`] if a
    /// checkpoint of [`Keep::Only`] does not exist, and errors of the checkpointer or the state. The thread
    /// is then unchanged.
    pub async fn prune_thread(&self, thread: &ThreadId, keep: Keep) -> Result<usize, RunError> {
        let checkpointer = self.checkpointer()?;
        let _lease = checkpointer.lease(thread).await?;
        let history = checkpointer.history(thread, History::default()).await?;
        let Some(head) = history.first() else { return Ok(0) };
        self.inner.owns(thread, head)?;
        if let Keep::Only(ids) = &keep
            && let Some(&checkpoint) = ids.iter().find(|id| !history.iter().any(|meta| meta.id == **id))
        {
            return Err(RunError::UnknownCheckpoint { thread: thread.clone(), checkpoint });
        }
        let kept = keep.choose(&history);
        let (mut snapshots, mut metadata) = (BTreeMap::new(), BTreeMap::new());
        for meta in history.iter().filter(|meta| kept.contains(&meta.id)) {
            if meta.parent.is_none_or(|parent| kept.contains(&parent)) || meta.parent_pruned {
                continue;
            }
            let mut remembered = asked_as(&history, meta.id);
            if !remembered.is_empty() {
                remembered.extend(meta.metadata.clone());
                metadata.insert(meta.id, remembered);
            }
            if let Some(restored) =
                load(&self.inner, checkpointer, thread, Some(meta.id), ChannelSet::EMPTY).await?
            {
                let Restored { state, kept, .. } = restored;
                let channels = snapshot(&state, meta.control.step)?;
                snapshots.insert(meta.id, channels.into_iter().chain(kept.entry()).collect());
            }
        }
        let origins = history.iter().filter(|meta| kept.contains(&meta.id)).map(Origins::of);
        let callers =
            origins.flat_map(|origins| origins.carried.into_values().map(|origin| origin.checkpoint));
        let callers = callers.collect();
        let prune = Prune { keep: kept, snapshots, callers, metadata };
        Ok(checkpointer.prune(thread, head.id, prune).await?)
    }
}
