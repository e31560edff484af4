#![doc = include_str!("../docs/testing.md")]

pub mod conformance;
pub mod hostile;
pub mod mem0;
pub mod provider;
pub mod script;
pub mod scripted;
pub mod sim;
pub mod transcript;
pub mod wire;
pub mod wrapped;
