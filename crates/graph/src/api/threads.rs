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
    /// Makes `to` a thread like `from`: the same checkpoints under the same ids, what is known of their tasks, and the
    /// threads of subgraphs. From then on they know nothing of each other, and the keys of their tasks are different
    /// ([`Cx::key`](crate::Cx::key)).
    ///
    /// # Errors
    /// [`CheckpointError::NoThread`] if there is no `from`, [`CheckpointError::ThreadExists`] if there is a `to`,
    /// [`CheckpointError::Busy`] if someone runs one of them.
    pub async fn copy_thread(&self, from: &ThreadId, to: &ThreadId) -> Result<(), RunError> {
        let checkpointer = self.checkpointer()?;
        if from == to {
            return Err(CheckpointError::ThreadExists { thread: to.clone() }.into());
        }
        let _from = checkpointer.lease(from).await?;
        let _to = checkpointer.lease(to).await?;
        checkpointer.copy(from, to).await?;
        // There may have been another one of this name, whose keys are not to come back.
        let nonce = checkpointer.nonce(to).await?;
        mark_all(&**checkpointer, to, |mark| mark.with_nonce(nonce.clone())).await?;
        Ok(())
    }

    /// Forgets a thread with the threads of its subgraphs. Nothing happens if there is none.
    ///
    /// # Errors
    /// [`CheckpointError::Busy`] if someone runs it.
    pub async fn delete_thread(&self, thread: &ThreadId) -> Result<(), RunError> {
        let checkpointer = self.checkpointer()?;
        let _lease = checkpointer.lease(thread).await?;
        Ok(checkpointer.delete(thread).await?)
    }

    /// Forgets the checkpoints of a thread that `keep` does not keep, and returns how many those were.
    ///
    /// What is kept has the same state as before, and the same tasks with what is known of them; so the thread goes on,
    /// and kept checkpoints can be forked. A kept checkpoint without its parent gets a full state of its own, and remembers
    /// what the input before it does ([`RunConfig::metadata`](crate::RunConfig::metadata)). The threads of subgraphs go with
    /// the checkpoints whose tasks called them.
    ///
    /// # Errors
    /// [`CheckpointError::Busy`] if someone runs the thread, [`RunError::UnknownCheckpoint`] if it lacks one of
    /// [`Keep::Only`], or what the checkpointer or the state reports. Nothing is forgotten then.
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
