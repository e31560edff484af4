//! Nodes as users write them: their context, results and options.
//!
//! Start at [`cx::Cx`].

pub(crate) mod barrier;
pub(crate) mod before_write;
pub(crate) mod cache;
pub(crate) mod call_observer;
pub(crate) mod command;
pub(crate) mod commit_barrier;
pub(crate) mod cx;
pub(crate) mod discarded;
pub(crate) mod drain;
pub(crate) mod erased;
pub(crate) mod error;
pub(crate) mod nested_calls;
pub(crate) mod options;
pub(crate) mod output;
pub(crate) mod refs;
pub(crate) mod retries;
pub(crate) mod routing;
pub(crate) mod run_options;
pub(crate) mod spawned_work;
pub(crate) mod timeout;

pub use superstep_engine::{NodeName, OnCancel};

pub use self::{
    cache::CachePolicy, command::RoutingOutput, discarded::Discarded, options::Persistence,
    output::NodeOutput, routing::Routes,
};
pub use crate::journal::inbox::Posted;
