//! The storage of supersteps, immediately or at the end of the run.

use std::sync::atomic::Ordering;

use serde_json::{Map, Value};
use superstep_checkpoint::{AppliedTask, CheckpointMeta, Source};
use superstep_engine::Run;

use super::{driver::Driver, finish::DueSnapshot, stop::Stop, task_result::FinishedTask, trace};
use crate::{
    RunError, State, StreamMode,
    journal::memories::{MemoryCall, after_call},
    run::thread_writer::{NewCheckpoint, ThreadWriter},
};

impl<S: State> Driver<S> {
    /// Creates the checkpoint of a folded superstep.
    pub(super) fn folded(&mut self, run: &Run) -> Box<NewCheckpoint> {
        let control = run.control().expect("a commit is pending");
        let mut new = NewCheckpoint::new(Source::Loop, control, Map::new());
        if !self.items.is_empty() {
            new.control.items.clone_from(&self.items);
        }
        new.applied = Vec::with_capacity(self.done.len());
        for (slot, done) in (0..).zip(self.done.drain(..)) {
            let Some(FinishedTask { node, stored: Some(update), recorded, .. }) = done else { continue };
            let node = self.graph.topology.name(node).clone();
            new.applied.push(AppliedTask { slot, recorded, node, update });
        }
        new
    }

    /// Stores a checkpoint and emits its event. `plan` is the run whose superstep it ends.
    pub(super) async fn checkpoint(
        &mut self,
        mut new: Box<NewCheckpoint>,
        plan: Option<&Run>,
    ) -> Result<(), Stop> {
        if self.writer.is_none() {
            return Ok(());
        }
        if let Some(wait) = self.observer.before_commit(self.view(plan), &mut new) {
            wait.await?;
        }
        let unknown = self.cx.memories.commit(&mut new.metadata, &new.applied, &self.graph.topology);
        if !unknown.is_empty() {
            self.add_abandoned(unknown, &mut new.metadata).await?;
        }
        let describe = self.wants(StreamMode::Checkpoints) || self.wants(StreamMode::Debug);
        let seeded = self.is_seeded();
        let (state, control) = (&self.state, &new.control);
        let (source, step) = (new.source, control.step);
        let (tasks, bytes) = (new.applied.len(), trace::bytes(&new.applied));
        let snapshot = DueSnapshot { state, step };
        let writer = self.writer.as_mut().expect("it was just there");
        // A graph that starts with its caller's state returns its updates only.
        let may_snapshot = source == Source::Loop && !seeded;
        let stored = writer.commit(new, may_snapshot.then_some(&snapshot), describe).await?;
        if let Some(checkpoint) = writer.at() {
            trace::stored(checkpoint, step, tasks, bytes);
        }
        if writer.holds() {
            self.held = Some(self.state.clone());
        }
        // The task of `START` is folded before the superstep that it belongs to.
        self.is_head = source == Source::Loop;
        self.show_place();
        self.emit_checkpoints(stored);
        match self.observer.after_commit(self.view(plan)) {
            Some(wait) => wait.await,
            None => Ok(()),
        }
    }

    /// Adds the positions of subgraphs whose calls were abandoned: those of the supersteps that they had stored.
    async fn add_abandoned(
        &self,
        unknown: Vec<MemoryCall>,
        metadata: &mut Map<String, Value>,
    ) -> Result<(), RunError> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let (checkpointer, thread) = writer.stored_in();
        for MemoryCall { segment, task, .. } in unknown {
            if let Some(at) = after_call(&**checkpointer, &thread.child(&segment), task).await? {
                self.cx.memories.add(metadata, &segment, at);
            }
        }
        Ok(())
    }

    /// Stores all remaining data of the run.
    pub(super) async fn flush(&mut self) -> Result<(), RunError> {
        let describe = self.wants(StreamMode::Checkpoints) || self.wants(StreamMode::Debug);
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let state = self.held.as_ref().unwrap_or(&self.state);
        let stored = writer.flush(|step| DueSnapshot { state, step }, describe).await?;
        self.emit_checkpoints(stored);
        Ok(())
    }

    /// Emits the events of stored checkpoints.
    pub(super) fn emit_checkpoints(&self, stored: impl IntoIterator<Item = CheckpointMeta>) {
        stored.into_iter().for_each(|meta| self.emit_checkpoint(meta));
    }

    /// Passes the thread's nonce to the tasks.
    pub(super) fn show_nonce(&self) {
        if let Some(nonce) = self.writer.as_ref().and_then(ThreadWriter::nonce) {
            self.cx.nonce.get_or_init(|| nonce.to_owned());
        }
    }

    /// Passes the current checkpoint to the tasks.
    pub(super) fn show_place(&self) {
        if let Some((checkpoint, since_ms)) = self.writer.as_ref().and_then(ThreadWriter::place) {
            self.cx.checkpoint.store(checkpoint.0, Ordering::Relaxed);
            self.cx.since_ms.store(since_ms, Ordering::Relaxed);
        }
    }
}
