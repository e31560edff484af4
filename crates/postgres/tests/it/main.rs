//! The checkpointer and the store against a server of their own. They are skipped, and say so, where PostgreSQL is not installed.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "the helpers of tests are tests, and processes report to each other"
)]

mod conformance;
mod crash;
mod damage;
mod follow;
mod format;
mod leases;
mod maintain;
mod network;
mod pgvector;
mod proxy;
mod server;
mod support;
#[cfg(target_os = "linux")]
mod tls;
mod upgrade;
