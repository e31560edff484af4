//! Threads as a whole: copied, pruned, deleted.

use std::collections::BTreeMap;

use superstep_checkpoint::{CheckpointError, Prune, Retention, internal::input_metadata};
use superstep_engine::ChannelSet;

use crate::{
    History, RunError, State, Thread, ThreadId,
    api::adopt::mark_all,
    journal::task_origin::Origins,
    run::{
        finish::snapshot,
        restore::{Restored, load},
    },
};

impl<S: State> Thread<S> {
    /// Copies the thread with its checkpoints, under the same ids, the records of their tasks, and the threads of subgraphs.
    /// Later changes of one do not reach the other, and the keys of their tasks differ ([`Cx::key`](crate::Cx::key)). Returns a handle to the copy with the default options.
    ///
    /// # Errors
    /// [`CheckpointError::NoThread`] if the thread does not exist, [`CheckpointError::ThreadExists`] if the copy does,
    /// [`CheckpointError::Busy`] while one of them runs.
    pub async fn copy_to(&self, id: impl Into<ThreadId>) -> Result<Self, RunError> {
        let (checkpointer, from) = self.stored()?;
        let to = &id.into();
        if from == to {
            return Err(CheckpointError::ThreadExists { thread: to.clone() }.into());
        }
        let _from = checkpointer.lease(from).await?;
        let _to = checkpointer.lease(to).await?;
        checkpointer.copy(from, to).await?;
        // A deleted thread may have had this name; its keys must not be reused.
        let nonce = checkpointer.nonce(to).await?;
        mark_all(&**checkpointer, to, |mark| mark.with_nonce(nonce.clone())).await?;
        Ok(self.graph.thread(to.clone()))
    }

    /// Deletes the thread with the threads of its subgraphs. Does nothing if it does not exist.
    ///
    /// # Errors
    /// [`CheckpointError::Busy`] while the thread runs.
    pub async fn delete(&self) -> Result<(), RunError> {
        let (checkpointer, thread) = self.stored()?;
        let _lease = checkpointer.lease(thread).await?;
        Ok(checkpointer.delete(thread).await?)
    }

    /// Deletes the checkpoints that `keep` does not retain, and returns their number.
    ///
    /// A retained checkpoint has the same state as before, and the same tasks with their records; so the thread can be
    /// resumed, and retained checkpoints can be forked. A retained checkpoint without its parent gets a full state of its
    /// own, and the [metadata](Self::metadata) of the input before it. The threads of subgraphs are deleted with the
    /// checkpoints whose tasks called them.
    ///
    /// # Errors
    /// [`CheckpointError::Busy`] while the thread runs, [`RunError::UnknownCheckpoint`] if it lacks one of [`Retention::Only`],
    /// or the error of the checkpointer or the state. Nothing is deleted then.
    pub async fn prune(&self, keep: Retention) -> Result<usize, RunError> {
        let (checkpointer, thread) = self.stored()?;
        let _lease = checkpointer.lease(thread).await?;
        let history = checkpointer.history(thread, History::default()).await?;
        let Some(head) = history.first() else { return Ok(0) };
        let graph = &self.graph.inner;
        graph.owns(thread, head)?;
        if let Retention::Only(ids) = &keep
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
            let mut remembered = input_metadata(&history, meta.id);
            if !remembered.is_empty() {
                remembered.extend(meta.metadata.clone());
                metadata.insert(meta.id, remembered);
            }
            if let Some(restored) =
                load(graph, checkpointer, thread, Some(meta.id), ChannelSet::EMPTY).await?
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
