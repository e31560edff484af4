//! Workers on a PostgreSQL of their own. The tests are skipped, and say so, where it is not installed.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "the helpers of tests are tests, and processes report to each other"
)]

mod agents;
mod cancel;
mod jobs;
mod keys;
mod limits;
mod migrations;
mod pairs;
mod pairs_with_answers;
mod proof;
mod schedules;
#[allow(dead_code, reason = "the tests of the checkpointer use more of it")]
#[path = "../../../postgres/tests/it/server.rs"]
mod server;
mod support;
mod takeover;
