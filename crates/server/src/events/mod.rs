//! The events of a run, and their projection to the streams of clients.
//!
//! ```text
//! a run of a graph ──▶ RunEvent ──▶ the log of the run ──▶ RunsProjection ──▶ Frame ──▶ one client
//! ```
//!
//! The log has events in the words of superstep; a projection translates them for one client and its modes. Another generation of
//! the API is another projection.

pub(crate) mod calls;
mod chain;
pub(crate) mod event;
pub(crate) mod modes;
pub(crate) mod projection;
pub(crate) mod sse;
