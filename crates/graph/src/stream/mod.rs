//! Streamed runs: events, their modes, and the buffer between a run and its consumer.
//!
//! Start at [`run_stream::RunStream`].

pub(crate) mod buffer;
pub(crate) mod emitter;
pub(crate) mod event;
pub(crate) mod message_events;
pub(crate) mod modes;
pub(crate) mod outcome;
pub(crate) mod patience;
pub(crate) mod run_stream;

pub use self::{
    event::{CustomEvent, DebugKind},
    message_events::MessageKind,
};
