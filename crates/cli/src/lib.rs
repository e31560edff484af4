//! The `superstep` program, a ReAct agent in the terminal, and the same commands as a library for graphs of one's own.
//!
//! Start at [`main`] for a program with graphs of your own, which `docs/own-program.md` describes. The interface of
//! `superstep` is documented in `docs/cli.md`.
//!
//! ```text
//! program     the programs: that of the agent, and those with graphs of their own
//!    │
//! commands    the commands: run, threads, show, revert, ..
//!    │
//! args        the command line
//!    │
//! chat        the chat in the terminal
//!    │
//! inspect     threads, tools and memories as text
//!    │
//! session     a run in the terminal: run loop, questions, signals
//!    │
//! acp         sessions behind the protocol of editors
//!    │
//! graphs      graphs of any state: inputs and states as JSON
//!    │
//! output      errors, exit codes, tables; a run for people or as JSON
//! ```
//!
//! Each folder uses only those below it. What a run does without a terminal is in the crate `superstep-session`.

#![cfg_attr(
    not(feature = "full"),
    allow(dead_code, reason = "what only the commands of absent features use")
)]

/// The code of the page about programs of one's own, which is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/own-program.md")]
mod own_program_page {}

mod acp;
mod args;
mod chat;
mod commands;
mod graphs;
mod inspect;
mod output;
mod program;
mod session;

#[doc(hidden)]
pub use program::agent::agent;
pub use program::own::{GraphList, IntoGraphs, Program, main};
#[doc(hidden)]
pub use superstep_session::config::configuration_problem;
