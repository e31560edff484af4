//! A store with possible crashes between its writes.

use std::{collections::BTreeMap, future::Future, sync::Arc};

use futures::future::BoxFuture;
use futures_executor::block_on;
use superstep_graph::{
    CheckpointId, Checkpointer, History, ThreadId,
    checkpoint::{CheckpointError, CheckpointMeta, Commit, Lease, Loaded, TaskKey, TaskRecord},
    state::RawJson,
};
use tokio::task::unconstrained;

use super::{CrashPoint, Sim};
use crate::wrapped::Wrapper;

/// A checkpointer that delegates all requests, and stops before or after a write if its process crashes
/// there.
pub(super) struct CrashingCheckpointer {
    pub(super) store: Arc<dyn Checkpointer>,
    pub(super) sim: Sim,
}

/// Executes a request at one instant of the simulated clock, for any real duration.
///
/// Without it, a store with its own threads would advance the clock by an amount that depends on the machine.
pub(super) fn at_once<T>(request: impl Future<Output = T>) -> T {
    // The runtime cannot give the request more of its budget before this returns.
    block_on(unconstrained(request))
}

impl Wrapper for CrashingCheckpointer {
    fn store(&self) -> &dyn Checkpointer {
        &*self.store
    }

    fn lease(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Lease, CheckpointError>> {
        let request = self.store.lease(thread);
        Box::pin(async { at_once(request) })
    }

    fn load(
        &self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> BoxFuture<'_, Result<Option<Loaded>, CheckpointError>> {
        let request = self.store.load(thread, at);
        Box::pin(async { at_once(request) })
    }

    fn record(&self, task: &TaskKey, record: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let task = task.clone();
        Box::pin(async move {
            let (step, slot) = (self.sim.fate().ledger.step(&task.thread), task.slot);
            let fails =
                |written| self.sim.fails(CrashPoint::RecordFails { step, slot, written }.on(&task.thread));
            self.sim.pass(CrashPoint::BeforeRecord { step, slot }.on(&task.thread)).await;
            fails(false)?;
            at_once(self.store.record(&task, record.clone()))?;
            self.sim.fate().ledger.recorded(&task, &record);
            fails(true)?;
            self.sim.pass(CrashPoint::AfterRecord { step, slot }.on(&task.thread)).await;
            Ok(())
        })
    }

    fn add_effects(
        &self,
        task: &TaskKey,
        results: BTreeMap<String, RawJson>,
    ) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let task = task.clone();
        Box::pin(async move {
            let (step, slot) = (self.sim.fate().ledger.step(&task.thread), task.slot);
            let fails =
                |written| self.sim.fails(CrashPoint::RecordFails { step, slot, written }.on(&task.thread));
            self.sim.pass(CrashPoint::BeforeRecord { step, slot }.on(&task.thread)).await;
            fails(false)?;
            let added = at_once(self.store.add_effects(&task, results.clone()))?;
            if added {
                self.sim.fate().ledger.added(&task, results.keys());
                fails(true)?;
            }
            self.sim.pass(CrashPoint::AfterRecord { step, slot }.on(&task.thread)).await;
            Ok(added)
        })
    }

    /// Returns `None`, so that the run is deterministic: no simulated thread is deleted and created again.
    fn nonce(&self, _: &ThreadId) -> BoxFuture<'_, Result<Option<String>, CheckpointError>> {
        Box::pin(async { Ok(None) })
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            let (control, records) = (next.control.clone(), next.records.clone());
            let step = control.step;
            let fails = |written| self.sim.fails(CrashPoint::CommitFails { step, written }.on(&thread));
            self.sim.pass(CrashPoint::BeforeCommit { step }.on(&thread)).await;
            fails(false)?;
            let id = at_once(self.store.commit(&thread, expected, next))?;
            self.sim.fate().ledger.committed(&thread, id, control, &records);
            fails(true)?;
            self.sim.pass(CrashPoint::AfterCommit { step }.on(&thread)).await;
            Ok(id)
        })
    }

    /// Crashes before the first or after the last checkpoint, since they are stored at once.
    fn commit_all(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Vec<Commit>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            let head = expected.map_or(0, |head| head.0);
            let stored: Vec<_> = (head + 1..)
                .zip(&next)
                .map(|(id, next)| (CheckpointId(id), next.control.clone(), next.records.clone()))
                .collect();
            let (Some(first), Some(last)) = (stored.first(), stored.last()) else { return Ok(()) };
            let (first, last) = (first.1.step, last.1.step);
            let fails = |step, written| self.sim.fails(CrashPoint::CommitFails { step, written }.on(&thread));
            self.sim.pass(CrashPoint::BeforeCommit { step: first }.on(&thread)).await;
            fails(first, false)?;
            at_once(self.store.commit_all(&thread, expected, next))?;
            for (id, control, records) in stored {
                self.sim.fate().ledger.committed(&thread, id, control, &records);
            }
            fails(last, true)?;
            self.sim.pass(CrashPoint::AfterCommit { step: last }.on(&thread)).await;
            Ok(())
        })
    }

    fn history(
        &self,
        thread: &ThreadId,
        range: History,
    ) -> BoxFuture<'_, Result<Vec<CheckpointMeta>, CheckpointError>> {
        let request = self.store.history(thread, range);
        Box::pin(async { at_once(request) })
    }

    fn has_input(&self, thread: &ThreadId, id: &str) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let request = self.store.has_input(thread, id);
        Box::pin(async { at_once(request) })
    }

    fn threads(&self) -> BoxFuture<'_, Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError>> {
        Box::pin(async { at_once(self.store.threads()) })
    }

    fn children(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        let request = self.store.children(thread);
        Box::pin(async { at_once(request) })
    }

    fn delete(&self, thread: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let request = self.store.delete(thread);
        Box::pin(async { at_once(request) })
    }
}
