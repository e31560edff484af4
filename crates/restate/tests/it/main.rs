//! The service and its callers against a Restate server. They are skipped, and say so, where it is not installed.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]
#![allow(clippy::print_stdout, reason = "a proof shows its figures")]

mod cluster;
mod conformance;
mod crashes;
mod endurance;
mod equality;
mod limits;
mod node;
mod outside;
mod partition;
mod proof;
mod runs;
mod service;
mod signed;
mod speed;
mod workers;
