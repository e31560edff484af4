//! Threads as a whole: copied, pruned, deleted.

use superstep_checkpoint::{CheckpointError, Retention, internal::own};

use crate::{History, RunError, State, Thread, ThreadId, api::adopt::mark_all, run::prune::prune};

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
        let newest = History { limit: Some(1), ..History::default() };
        let head = checkpointer.history(from, newest).await?;
        if head.first().is_some_and(|head| head.metadata.contains_key(own::SEALED)) {
            let what = format!("thread `{from}` is encrypted; copy it through `SealedCheckpointer`");
            return Err(CheckpointError::Key { what, source: None }.into());
        }
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
        prune(graph, checkpointer, thread, &history, keep.choose(&history)).await
    }
}
