//! The behaviour of the SQLite checkpointer.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod bits;
mod conformance;
mod crash;
mod damage;
mod format;
mod groups;
mod lease;
mod opening;
mod power;
mod records;
mod sidecars;
mod size;
mod store;
mod support;
