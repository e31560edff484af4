//! The checkpoints of a thread, as callers read them.
//!
//! Start at [`ThreadHistory`].

use std::fmt;

use serde_json::Value;
use superstep_checkpoint::{CheckpointMeta, Source};
use superstep_engine::NodeName;

use crate::{
    CheckpointId, History, RunError, State, Thread, api::state::StateSnapshot, journal::memories::head,
    run::failed_end::last_pending,
};

impl<S: State> Thread<S> {
    /// Returns the thread's checkpoints, newest first: narrow them down with the methods of [`ThreadHistory`].
    pub fn history(&self) -> ThreadHistory<S> {
        ThreadHistory { thread: self.clone(), range: History::default() }
    }

    /// Returns the newest checkpoint on the branch of the head at which this node is pending, alone or beside others.
    ///
    /// # Errors
    /// [`RunError::NoCheckpointer`], [`RunError::NoThread`], or the error of the checkpointer.
    pub async fn last_pending(&self, node: impl Into<NodeName>) -> Result<Option<CheckpointId>, RunError> {
        let (checkpointer, thread) = self.stored()?;
        let head = head(&**checkpointer, thread).await?.map(|head| head.id);
        Ok(last_pending(&**checkpointer, thread, head, &node.into()).await?)
    }
}

/// The checkpoints of a thread, newest first; each method narrows them down, and all conditions apply together.
#[derive(Clone)]
#[must_use = "reads nothing until `checkpoints` or `states` runs"]
pub struct ThreadHistory<S: State> {
    thread: Thread<S>,
    range: History,
}

impl<S: State> fmt::Debug for ThreadHistory<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadHistory").field("thread", &self.thread).field("range", &self.range).finish()
    }
}

impl<S: State> ThreadHistory<S> {
    /// Returns at most this many checkpoints.
    pub fn limit(mut self, count: usize) -> Self {
        self.range.limit = Some(count);
        self
    }

    /// Skips this checkpoint and newer ones: pass the last id of a page to read the next one.
    pub fn before(mut self, checkpoint: CheckpointId) -> Self {
        self.range.before = Some(checkpoint);
        self
    }

    /// Selects checkpoints that exist for this reason.
    pub fn source(mut self, source: Source) -> Self {
        self.range.source = Some(source);
        self
    }

    /// Selects checkpoints of this superstep; each branch may have one.
    pub fn step(mut self, step: i64) -> Self {
        self.range.step = Some(step);
        self
    }

    /// Selects checkpoints at which this node is pending.
    pub fn pending(mut self, node: impl Into<NodeName>) -> Self {
        self.range.next = Some(node.into());
        self
    }

    /// Selects checkpoints whose metadata has this entry.
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.range.metadata.insert(name.into(), value.into());
        self
    }

    /// Replaces all conditions by those of `range`.
    pub fn range(mut self, range: History) -> Self {
        self.range = range;
        self
    }

    /// Reads the checkpoints without their states.
    ///
    /// # Errors
    /// [`RunError::OtherGraph`], or the error of the checkpointer.
    pub async fn checkpoints(&self) -> Result<Vec<CheckpointMeta>, RunError> {
        let (checkpointer, thread) = self.thread.stored()?;
        let history = checkpointer.history(thread, self.range.clone()).await?;
        history.iter().try_for_each(|meta| self.thread.graph.inner.owns(thread, meta))?;
        Ok(history.into_iter().map(CheckpointMeta::shown).collect())
    }

    /// Reads the checkpoints with their states, and with the updates of their tasks.
    ///
    /// # Errors
    /// [`RunError::OtherGraph`], or the error of the checkpointer or the state.
    pub async fn states(&self) -> Result<Vec<StateSnapshot<S>>, RunError> {
        let (checkpointer, thread) = self.thread.stored()?;
        let mut snapshots = Vec::new();
        for meta in checkpointer.history(thread, self.range.clone()).await? {
            match self.thread.at(meta.id).state().await {
                // A prune has deleted it meanwhile.
                Err(RunError::UnknownCheckpoint { .. }) => {}
                state => snapshots.push(state?),
            }
        }
        Ok(snapshots)
    }
}
