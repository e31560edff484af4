//! The layer in front of each checkpointer and store.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "the helpers of tests are tests, and processes report to each other"
)]

mod attacks;
mod conformance;
mod format;
mod graphs;
mod keys;
mod pairs;
mod refusals;
mod rotation;
#[path = "../../../postgres/tests/it/server.rs"]
#[allow(dead_code, reason = "the tests of that crate use more of it")]
mod server;
mod support;
mod vectors;
