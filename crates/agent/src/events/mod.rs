//! The events of the agent.
//!
//! Start at [`AgentEvent`].

mod agent_event;

use superstep_graph::Cx;

pub use self::agent_event::AgentEvent;

/// Emits the event that `event` returns. Calls `event` only if the run streams custom events.
pub(crate) fn emit(cx: &Cx, event: impl FnOnce() -> AgentEvent) {
    cx.emit_with(|| {
        let event = event();
        (event.name(), event.data())
    });
}
