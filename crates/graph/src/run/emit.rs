//! The events that a run emits to its stream.
//!
//! Start at [`Emitter`].

use std::{collections::BTreeMap, error::Error, sync::Arc};

use serde::Serialize;
use serde_json::{Value, json};
use superstep_checkpoint::CheckpointMeta;
use superstep_engine::Task;
use superstep_state::{chain, internal::unpanicked};

use crate::{
    Event, Interrupt, State, StreamMode,
    node::cx::RunCx,
    stream::{DebugKind, emitter::Events, event::Channels},
};

/// Emits the events of a run, if there is a stream.
pub(super) struct Emitter<S: State> {
    pub(super) cx: Arc<RunCx>,
    pub(super) events: Option<Events<S>>,
}

impl<S: State> Emitter<S> {
    #[inline]
    fn wants(&self, mode: StreamMode) -> bool {
        self.events.as_ref().is_some_and(|events| events.wants(mode))
    }

    /// Returns whether the metadata of stored checkpoints is emitted.
    pub(super) fn describes(&self) -> bool {
        self.wants(StreamMode::Checkpoints) || self.wants(StreamMode::Debug)
    }

    pub(super) fn emit(&self, event: Event<S>) {
        if let Some(events) = &self.events {
            events.send(event);
        }
    }

    /// Delays events until [`release`](Self::release), so that only stored results are emitted, unless a function before the writes
    /// needs them.
    #[inline]
    pub(super) fn stage(&self) {
        if let Some(events) = &self.events
            && self.cx.scope.config.before_write.is_none()
        {
            events.stage();
        }
    }

    #[inline]
    pub(super) fn release(&self) {
        if let Some(events) = &self.events {
            events.release();
        }
    }

    /// Lets the consumer take the events; a cancelled run does not wait.
    pub(super) async fn give_way(&self) {
        if let Some(events) = &self.events {
            self.cx.cancel.run_until_cancelled(events.give_way()).await;
        }
    }

    /// Emits the start of an attempt.
    pub(super) fn start(&self, task: Task, state: &S, items: &BTreeMap<u32, String>) {
        if self.wants(StreamMode::Tasks) {
            let (step, attempt) = (task.id.step, task.attempt);
            let node = self.cx.topology.name(task.node).clone();
            self.emit(Event::TaskStart { step, node, attempt });
        }
        self.debug(task.id.step, DebugKind::Task, || {
            let input = match items.get(&task.id.slot) {
                Some(item) => serde_json::from_str(item).unwrap_or_else(|_| item.as_str().into()),
                None => shown(Channels::all(state)),
            };
            json!({
                "slot": task.id.slot,
                "node": self.cx.topology.name(task.node),
                "attempt": task.attempt,
                "input": input,
            })
        });
    }

    /// Emits the update of a finished task, and its end if it ran.
    pub(super) fn update(&self, task: Task, state: &S, update: &S::Update, cached: bool) {
        let Some(events) = &self.events else { return };
        events.update(task.id.step, self.cx.topology.name(task.node), state, update, cached);
        if cached {
            return;
        }
        self.end(task, None);
        self.debug_result(task, || json!({ "update": shown(&*state.stored(update)) }));
    }

    /// Emits the failure of an attempt.
    pub(super) fn failure(&self, task: Task, error: &(dyn Error + 'static)) {
        self.end(task, Some(error));
        self.debug_result(task, || json!({ "error": chain(error) }));
    }

    /// Emits the questions of a task.
    pub(super) fn interrupts(&self, task: Task, interrupts: &[Interrupt]) {
        for interrupt in interrupts {
            self.emit(Event::Interrupt(interrupt.clone()));
        }
        self.debug_result(task, || json!({ "interrupts": interrupts }));
    }

    /// Emits stored checkpoints.
    pub(super) fn checkpoints(&self, stored: Vec<CheckpointMeta>, state: &S) {
        stored.into_iter().for_each(|meta| self.checkpoint(meta, state));
    }

    fn checkpoint(&self, meta: CheckpointMeta, state: &S) {
        self.debug(meta.control.step, DebugKind::Checkpoint, || {
            let mut payload = shown(&meta);
            payload["values"] = shown(Channels::all(state));
            payload
        });
        if self.wants(StreamMode::Checkpoints) {
            self.emit(Event::Checkpoint(meta));
        }
    }

    fn end(&self, task: Task, error: Option<&(dyn Error + 'static)>) {
        if self.wants(StreamMode::Tasks) {
            let (step, node) = (task.id.step, self.cx.topology.name(task.node).clone());
            self.emit(Event::TaskEnd { step, node, attempt: task.attempt, error: error.map(chain) });
        }
    }

    /// Sends a debug event. `result` returns the differences from a task without effects.
    fn debug_result(&self, task: Task, result: impl FnOnce() -> Value) {
        self.debug(task.id.step, DebugKind::TaskResult, || {
            let mut payload = json!({
                "slot": task.id.slot,
                "node": self.cx.topology.name(task.node),
                "attempt": task.attempt,
                "update": null,
                "error": null,
                "interrupts": [],
            });
            if let (Value::Object(payload), Value::Object(result)) = (&mut payload, result()) {
                payload.extend(result);
            }
            payload
        });
    }

    fn debug(&self, step: i64, kind: DebugKind, payload: impl FnOnce() -> Value) {
        if self.wants(StreamMode::Debug) {
            let timestamp_ms = self.cx.clock.now_ms();
            self.emit(Event::Debug { step, timestamp_ms, kind, payload: payload() });
        }
    }
}

/// Converts to JSON, with a replacement for values of graphs without a checkpointer that have no JSON form.
fn shown(value: impl Serialize) -> Value {
    unpanicked("Serialize", || serde_json::to_value(value))
        .unwrap_or_else(|error| format!("has no JSON form: {error}").into())
}
