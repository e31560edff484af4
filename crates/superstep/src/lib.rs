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
#[cfg(feature = "postgres")]
pub use superstep_postgres as postgres;
#[cfg(feature = "restate")]
pub use superstep_restate as restate;
#[cfg(feature = "sealed")]
pub use superstep_sealed as sealed;
#[cfg(feature = "server")]
pub use superstep_server as server;
#[cfg(feature = "sqlite")]
pub use superstep_sqlite as sqlite;
#[cfg(feature = "opentelemetry")]
pub use superstep_telemetry as telemetry;
#[cfg(feature = "agent")]
pub use superstep_tools as tools;
#[cfg(feature = "worker")]
pub use superstep_worker as worker;

pub mod guide;

/// The imports of a typical graph, and of a typical agent with the feature `agent`.
///
/// ```
/// use superstep::prelude::*;
/// ```
/// Has the 45 names of most programs; the others are in the root, and in the modules by subject. A name of your own, or one that you
/// import by name, takes precedence over one of the prelude.
pub mod prelude {
    pub use superstep_graph::{
        Answers, Checkpointer, Command, CompileError, CompiledGraph, Cx, END, Event, Log, MemoryCheckpointer,
        NodeError, NodeFailure, NodeOptions, NodeRef, Outcome, RetryPolicy, Route, RunError, RunOptions,
        START, State, StateGraph, Status, Store, StreamMode, Thread, ThreadId,
    };

    #[cfg(feature = "agent")]
    pub use superstep_agent::{Agent, AgentEvent, AgentOutcome, AgentState, Approval, ReactConfig, Reply};
    #[cfg(feature = "anthropic")]
    pub use superstep_llm::AnthropicModel;
    #[cfg(feature = "gemini")]
    pub use superstep_llm::GeminiModel;
    #[cfg(feature = "agent")]
    pub use superstep_llm::{ChatModel, Message, Tool, ToolError, ToolSpec, tool};
    #[cfg(feature = "openai")]
    pub use superstep_llm::{OpenAiModel, ResponsesModel};
    #[cfg(feature = "sqlite")]
    pub use superstep_sqlite::SqliteCheckpointer;
}
