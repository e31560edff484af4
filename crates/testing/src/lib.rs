//! Node tests, scripted models and tools, transcripts, cassettes, and, behind features, fixtures, properties, the suites of backends and the
//! simulator.
//!
//! The guide is [docs/testing.md], the module `guide::testing` of `superstep`. Start at [`node`](node()), [`scripted`] or [`transcript`].
//!
//! [docs/testing.md]: https://docs.rs/superstep/latest/superstep/guide/testing/

#[cfg(feature = "wire")]
pub mod cassette;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod expect;
mod expectations;
#[cfg(feature = "fixture")]
pub mod fixture;
#[cfg(feature = "wire")]
pub mod hostile;
#[doc(hidden)]
pub mod lines;
#[cfg(feature = "wire")]
mod loopback;
#[cfg(feature = "wire")]
pub mod mem0;
mod nodes;
mod progress;
#[cfg(feature = "proof")]
#[doc(hidden)]
pub mod proof;
#[cfg(feature = "property")]
pub mod property;
pub mod provider;
pub mod replays;
pub mod script;
pub mod scripted;
#[cfg(feature = "sim")]
pub mod sim;
mod skip;
pub mod transcript;
#[cfg(feature = "wire")]
pub mod wire;
pub mod wrapped;

pub use replays::replay_all;
#[doc(hidden)]
pub use skip::skipped;

pub use nodes::{
    Called, Chain, ChainTest, CxTest, NodeTest, NodeTestError, Transition, chain, cx, node, route,
    route_table, state_diff,
};
