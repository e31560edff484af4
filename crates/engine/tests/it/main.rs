//! The engine alone: scripted inputs, and the outputs they give.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod support;

mod contract;
mod control;
mod gotos;
mod handlers;
mod machine;
mod orders;
