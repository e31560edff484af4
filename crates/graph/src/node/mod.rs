//! Nodes as users write them: their context, results and options.
//!
//! Start at [`cx::Cx`].

pub(crate) mod barrier;
pub(crate) mod cache;
pub(crate) mod clock;
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
pub(crate) mod parent_recorder;
pub(crate) mod refs;
pub(crate) mod retries;
pub(crate) mod route;
pub(crate) mod routing;
pub(crate) mod run_config;
pub(crate) mod spawned_work;
pub(crate) mod timeout;
