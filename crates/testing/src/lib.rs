#![doc = include_str!("../docs/testing.md")]

pub mod cassette;
mod clock;
pub mod conformance;
pub mod expect;
mod expectations;
pub mod fixture;
pub mod hostile;
#[doc(hidden)]
pub mod lines;
mod loopback;
pub mod mem0;
mod nodes;
mod progress;
pub mod property;
pub mod provider;
pub mod replays;
pub mod script;
pub mod scripted;
pub mod sim;
mod skip;
pub mod transcript;
pub mod wire;
pub mod wrapped;

pub use replays::replay_all;
#[doc(hidden)]
pub use skip::skipped;

pub use nodes::{
    Called, Chain, ChainTest, CxTest, NodeTest, NodeTestError, Transition, chain, cx, node, route,
    route_table, state_diff,
};
