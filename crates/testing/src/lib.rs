//! Transcripts, scripted models and conformance suites for superstep.

pub mod conformance;
pub mod script;
pub mod scripted;
pub mod sim;
pub mod transcript;
pub mod wire;
