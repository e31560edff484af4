//! The agent's sessions: a thread and its turns, with models, tools, memory and decisions as a folder configures them, without a
//! terminal.
//!
//! ```text
//! live       sessions: turns that shells begin, watch, answer and cancel
//!    │
//! turn       a turn: its setup, its MCP servers, the calls that wait, dreams
//!    │
//! config     the settings: of a command, a file, a thread, the environment; models, memory, trust
//!    │
//! offline    a demonstration without a language model
//!    │
//! error, text, suggest
//! ```
//!
//! Each folder uses only those below it.

#![cfg_attr(
    not(feature = "full"),
    allow(dead_code, reason = "what only the commands of absent features use")
)]

#[doc(hidden)]
pub mod config;
#[doc(hidden)]
pub mod error;
pub mod live;
#[doc(hidden)]
pub mod offline;
#[doc(hidden)]
pub mod suggest;
#[doc(hidden)]
pub mod text;
#[doc(hidden)]
pub mod turn;
