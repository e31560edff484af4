//! The storage of supersteps, immediately or at the end of the run.

use std::sync::atomic::Ordering;

use serde_json::Map;
use superstep_checkpoint::internal::own::STATE;
use superstep_engine::Control;

use super::{
    driver::{Done, Driver},
    finish::snapshot,
};
use crate::{
    AppliedTask, CheckpointMeta, RunError, Source, State, StreamMode,
    journal::memories::with_memories,
    run::thread_writer::{Hold, NewCheckpoint},
};

impl<S: State> Driver<S> {
    /// Stores a folded superstep.
    pub(super) async fn store_superstep(&mut self, mut control: Control) -> Result<(), RunError> {
        control.items.clone_from(&self.items);
        let mut applied = Vec::with_capacity(self.done.len());
        for (slot, done) in (0..).zip(self.done.drain(..)) {
            let Some(Done { node, json, recorded, .. }) = done else { continue };
            let node = self.graph.topology.name(node).clone();
            applied.push(AppliedTask { slot, recorded, node, update: json });
        }
        let mut metadata = Map::new();
        if self.cx.tape.records {
            metadata.insert(STATE.to_owned(), self.fingerprints().into());
        }
        let records = Vec::new();
        self.checkpoint(NewCheckpoint { source: Source::Loop, control, metadata, applied, records }).await
    }

    /// Stores a checkpoint and emits its event.
    pub(super) async fn checkpoint(&mut self, new: NewCheckpoint) -> Result<(), RunError> {
        let new = NewCheckpoint { metadata: with_memories(new.metadata, &self.cx.memories.commit()), ..new };
        let describe = self.wants(StreamMode::Checkpoints) || self.wants(StreamMode::Debug);
        let seeded = self.is_seeded();
        let (state, control) = (&self.state, &new.control);
        let (source, step) = (new.source, control.step);
        let snapshot = || snapshot(state, step);
        let made_ms = self.along().filter(|along| !along.script.is_any_live());
        let made_ms =
            made_ms.and_then(|along| along.script.place(&along.thread).1).map(|next| next.created_ms);
        let Some(hold) = &mut self.hold else {
            return Ok(());
        };
        hold.made_ms = made_ms;
        // A graph that starts with its caller's state returns its updates only.
        let may_snapshot = source == Source::Loop && !seeded;
        let stored = hold.commit(new, may_snapshot.then_some(snapshot), describe).await?;
        self.held = hold.holds().then(|| self.state.clone());
        self.show_place();
        self.tell(stored);
        Ok(())
    }

    /// Stores all remaining data of the run.
    pub(super) async fn flush(&mut self) -> Result<(), RunError> {
        let describe = self.wants(StreamMode::Checkpoints) || self.wants(StreamMode::Debug);
        let Some(hold) = &mut self.hold else { return Ok(()) };
        let state = self.held.as_ref().unwrap_or(&self.state);
        let stored = hold.flush(|step| snapshot(state, step), describe).await?;
        self.tell(stored);
        Ok(())
    }

    /// Emits the events of stored checkpoints.
    pub(super) fn tell(&self, stored: impl IntoIterator<Item = CheckpointMeta>) {
        stored.into_iter().for_each(|meta| self.tell_checkpoint(meta));
    }

    /// Passes the thread's nonce to the tasks.
    pub(super) fn show_nonce(&self) {
        if let Some(nonce) = self.hold.as_ref().and_then(Hold::nonce) {
            self.cx.nonce.get_or_init(|| nonce.to_owned());
        }
    }

    /// Passes the current checkpoint to the tasks.
    pub(super) fn show_place(&self) {
        if let Some((checkpoint, since_ms)) = self.hold.as_ref().and_then(Hold::place) {
            self.cx.checkpoint.store(checkpoint.0, Ordering::Relaxed);
            self.cx.since_ms.store(since_ms, Ordering::Relaxed);
        }
    }
}
