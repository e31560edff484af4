//! The engine alone: scripted inputs and the resulting outputs.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod support;
mod updates;

mod contract;
mod control;
mod gotos;
mod handlers;
mod machine;
mod orders;
