//! The command line.
//!
//! Start at [`command_line::Command`].

pub(crate) mod command_line;
pub(crate) mod decisions;
pub(crate) mod export;
pub(crate) mod jobs;
pub(crate) mod memory;
pub(crate) mod new;
pub(crate) mod own;
pub(crate) mod serve;
pub(crate) mod service;
pub(crate) mod shared;
pub(crate) mod storage;
pub(crate) mod values;
