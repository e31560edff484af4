//! The program's output: a run for people or as JSON, tables, errors and exit codes.
//!
//! Start at [`run_output::Output`].

pub(crate) mod cost;
pub(crate) mod exit;
pub(crate) mod human;
pub(crate) mod json;
pub(crate) mod log;
pub(crate) mod note;
pub(crate) mod picture;
pub(crate) mod run_output;
pub(crate) mod table;
#[cfg_attr(not(feature = "telemetry"), path = "no_telemetry.rs")]
mod telemetry;
