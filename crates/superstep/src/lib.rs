#![doc = superstep_macros::guide!("README.md")]

extern crate self as superstep;

pub use superstep_graph::*;

#[cfg(feature = "agent")]
pub use superstep_agent as agent;
#[cfg(feature = "agent")]
pub use superstep_llm as llm;
#[cfg(feature = "mcp")]
pub use superstep_mcp as mcp;
#[cfg(feature = "agent")]
pub use superstep_memory as memory;
#[cfg(feature = "sqlite")]
pub use superstep_sqlite as sqlite;
/// The former name of [`sqlite`].
#[cfg(feature = "sqlite")]
#[doc(hidden)]
pub use superstep_sqlite as checkpoint;
#[cfg(feature = "agent")]
pub use superstep_tools as tools;

pub mod guide;

/// The imports of a typical graph.
pub mod prelude {
    pub use superstep_graph::{
        Command, CompiledGraph, Cx, END, Fatal, History, Log, MemoryCheckpointer, NodeError, NodeFailure,
        NodeOptions, Retries, RetryPolicy, Route, RunConfig, START, State, StateGraph, StreamMode,
    };
}
