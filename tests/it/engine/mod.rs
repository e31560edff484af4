//! The scenarios of the engine, each under its number.

mod cancel;
mod channels;
mod checkpoints;
mod commands;
mod context;
mod control_flow;
mod crashes;
mod drain;
mod drawings;
mod errors;
mod failures;
mod fan_out;
mod forks;
mod interrupts;
mod joins;
mod lints;
mod outside;
mod panics;
mod retries;
mod state;
mod store;
mod stream;
mod threads;
mod timeouts;
mod unfinished;
mod updates;
