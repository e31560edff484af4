//! An explicit state-graph workflow engine with a ReAct agent as its first citizen.

extern crate self as superstep;

pub use superstep_graph::*;

#[cfg(feature = "agent")]
pub use superstep_agent as agent;
#[cfg(feature = "sqlite")]
pub use superstep_checkpoint as checkpoint;
#[cfg(feature = "agent")]
pub use superstep_llm as llm;
