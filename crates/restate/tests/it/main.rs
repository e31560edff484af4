//! The service and its callers against a Restate server. They are skipped, and say so, where it is not installed.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod conformance;
mod node;
mod runs;
mod service;
