//! The protocol AG-UI 1.0: one request is one run, whose events are one stream.
//!
//! Start at [`run`](endpoint::run).

mod endpoint;
mod events;
mod input;

pub(crate) use endpoint::run;
