//! The agent that a program builds and calls.
//!
//! Start at [`handle::Agent`].

pub(crate) mod builder;
pub(crate) mod error;
pub(crate) mod extract;
pub(crate) mod handle;
pub(crate) mod handoff;
pub(crate) mod reply_stream;
pub(crate) mod steer;
pub(crate) mod sub_agent;
pub(crate) mod thread;
