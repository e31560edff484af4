//! The context of a request: its frame, its size, and a view of the conversation that is extended from request to request.
//!
//! The conversation itself is never changed. [`ContextView`](crate::state::ContextView) determines which part of it is sent and the
//! summary of the rest; [`plan`] decides on a new view, and [`summary`] formats the summary request.
//! Start at [`plan::plan`].

pub(crate) mod conversation_text;
pub(crate) mod finish;
pub(crate) mod frame;
pub(crate) mod instructions;
pub(crate) mod meter;
pub(crate) mod plan;
pub(crate) mod retained;
pub(crate) mod retrieved;
pub(crate) mod shown;
pub(crate) mod summary;
