//! A run at work: its graph, its place in the thread, and its current superstep.
//!
//! Start at [`Execution`].

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use superstep_checkpoint::CheckpointMeta;
use superstep_engine::Run;

use super::{
    emit::Emitter,
    nested_call::{NestedContext, Seen},
    observer::{RunObserver, RunView},
    superstep::Superstep,
};
use crate::{
    State,
    compiled::graph::Inner,
    journal::{interrupts::InterruptQueue, memories::Memories, recorder::Recorder},
    node::{
        commit_barrier::CommitBarrier,
        cx::{RunCx, RunScope},
        nested_calls::{Calls, mix},
        spawned_work::Background,
    },
    run::{
        restore::{Restored, RestoredTask},
        thread_writer::ThreadWriter,
    },
    stream::emitter::{Events, NodeEvents},
};

/// The data of a run. Its functions are in the other files of this folder, each of which does one step of it.
pub(super) struct Execution<S: State> {
    pub(super) graph: Arc<Inner<S>>,
    pub(super) cx: Arc<RunCx>,
    _end: EndOfRun,
    pub(super) emit: Emitter<S>,
    pub(super) observer: Box<dyn RunObserver<S>>,
    /// The writer of the run's thread; `None` if it is not stored.
    pub(super) writer: Option<ThreadWriter>,
    pub(super) state: S,
    /// The state of the last superstep, if its storage is delayed to the end of the run. It differs from
    /// `state`, which an incomplete superstep may have begun to change.
    pub(super) held: Option<S>,
    /// `true` while `state` is that of the thread's head.
    pub(super) is_head: bool,
    pub(super) superstep: Superstep<S>,
    /// Additional data of a nested run.
    pub(super) nested: Option<NestedContext<S>>,
    /// The encoding buffer of updates.
    pub(super) scratch: Vec<u8>,
}

/// Drops the work that nodes left behind, even if the run is dropped: that work has references to the run's
/// context itself.
struct EndOfRun(Arc<RunCx>);

impl Drop for EndOfRun {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<S: State> Execution<S> {
    pub(super) fn new(
        graph: Arc<Inner<S>>,
        scope: RunScope,
        events: Option<Events<S>>,
        observer: Box<dyn RunObserver<S>>,
    ) -> Self {
        let config = scope.config.clone();
        let recorder = Recorder::new(scope.records(), scope.cursor.is_some() || scope.supply.is_some());
        // A run without storage has no checkpoint with a stored time, but its caller has.
        let since_ms = match &scope.parent {
            Some(parent) => parent.since_ms,
            None => config.clock.now_ms(),
        };
        // The seed of a nested run is already derived from its caller's.
        let thread = config.thread.as_ref().filter(|_| scope.path.is_root());
        let seed = thread.map_or(config.seed, |thread| mix(config.seed, thread.as_str().bytes()));
        let cx = RunCx {
            topology: graph.topology.clone(),
            thread: config.thread.clone(),
            clock: config.clock.clone(),
            seed,
            cancel: config.cancel.clone(),
            drain: scope.drain.clone(),
            context: config.context.clone(),
            events: events.clone().map(|events| Box::new(events) as Box<dyn NodeEvents>),
            effects: Arc::default(),
            background: Background::default(),
            interrupts: InterruptQueue::default(),
            commit_barrier: CommitBarrier::default(),
            nonce: OnceLock::new(),
            checkpoint: AtomicU64::new(0),
            since_ms: AtomicI64::new(since_ms),
            scope,
            calls: Calls::default(),
            memories: Memories::default(),
            recorder: Arc::new(recorder),
        };
        let state = (*graph.initial).clone();
        let cx = Arc::new(cx);
        Self {
            graph,
            _end: EndOfRun(cx.clone()),
            emit: Emitter { cx: cx.clone(), events },
            cx,
            observer,
            writer: None,
            state,
            held: None,
            is_head: false,
            superstep: Superstep::new(),
            nested: None,
            scratch: Vec::new(),
        }
    }

    /// The parts that the observer reads; `plan` while a superstep is committed.
    pub(super) fn view<'a>(&'a self, plan: Option<&'a Run>) -> RunView<'a, S> {
        RunView {
            graph: &self.graph,
            cx: &self.cx,
            state: &self.state,
            done: &self.superstep.done,
            failures: &self.superstep.failures,
            written: self.superstep.written,
            is_nested: self.nested.is_some(),
            is_stored: self.writer.is_some(),
            // What a caller gave to this graph is not stored.
            can_restore: self.writer.as_ref().is_some_and(ThreadWriter::keeps_values) && !self.is_seeded(),
            plan,
        }
    }

    /// Moves to a restored checkpoint of the thread of `writer`. Returns the checkpoint and its tasks.
    pub(super) fn move_to(
        &mut self,
        mut writer: ThreadWriter,
        restored: Restored<S>,
    ) -> (CheckpointMeta, Vec<RestoredTask<S>>) {
        let Restored { meta, head, state, tasks, since_snapshot, unknown, .. } = restored;
        writer.set_current(head, &meta, since_snapshot, unknown);
        (self.writer, self.state) = (Some(writer), state);
        self.show_place();
        (meta, tasks)
    }

    /// Returns whether it started with the state of its caller.
    pub(super) fn is_seeded(&self) -> bool {
        self.nested.as_ref().is_some_and(|nested| nested.made.is_some())
    }

    /// Passes the state to the caller's observer, if there is one.
    pub(super) fn show_state(&self) {
        if let Some(watch) = self.nested.as_ref().and_then(|nested| nested.watch.as_ref()) {
            watch(Seen::State(&self.state));
        }
    }

    /// Passes the thread's nonce to the tasks.
    pub(super) fn show_nonce(&self) {
        if let Some(nonce) = self.writer.as_ref().and_then(ThreadWriter::nonce) {
            self.cx.nonce.get_or_init(|| nonce.to_owned());
        }
    }

    /// Passes the current checkpoint to the tasks.
    pub(super) fn show_place(&self) {
        if let Some((checkpoint, since_ms)) = self.writer.as_ref().and_then(ThreadWriter::current_checkpoint)
        {
            self.cx.checkpoint.store(checkpoint.0, Ordering::Relaxed);
            self.cx.since_ms.store(since_ms, Ordering::Relaxed);
        }
    }
}
