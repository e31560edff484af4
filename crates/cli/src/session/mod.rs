//! A run of the agent in the terminal: its events, its questions, its signals.
//!
//! Start at [`run_loop::AgentRun`].

pub(crate) mod approve;
pub(crate) mod decisions;
pub(crate) mod form;
pub(crate) mod own_run;
pub(crate) mod run_loop;
#[cfg(test)]
pub(crate) mod sample;
pub(crate) mod signals;
pub(crate) mod stdin;
pub(crate) mod typed;
