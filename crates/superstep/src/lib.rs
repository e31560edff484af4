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
#[cfg(feature = "sealed")]
pub use superstep_sealed as sealed;
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
/// A name of your own, or one that you import by name, takes precedence over one of the prelude.
pub mod prelude {
    pub use superstep_graph::{
        Answers, CheckpointId, Checkpointer, Command, CompileError, CompiledGraph, Cx, Durability, END,
        Event, FailureKind, Fatal, History, Input, Interrupt, JsonChannels, JsonState, JsonUpdate, Log,
        MemoryCheckpointer, MemoryStore, NodeError, NodeFailure, NodeOptions, NodeRef, OnExisting,
        OnUnfinished, Outcome, Question, ReduceError, Reducer, Retries, RetryPolicy, Route, RoutingRef,
        RunError, RunOptions, RunStream, START, State, StateGraph, Status, Store, StreamMode, Streaming,
        Thread, ThreadId, View, WorkerRef,
        node::{CachePolicy, OnCancel},
    };

    #[cfg(feature = "agent")]
    pub use superstep_agent::{
        Agent, AgentBuilder, AgentError, AgentEvent, AgentOutcome, AgentState, AgentThread, Approval,
        ReactConfig, Reply,
    };
    #[cfg(feature = "openai")]
    pub use superstep_llm::{ApiKey, OpenAiConfig, OpenAiModel};
    #[cfg(feature = "agent")]
    pub use superstep_llm::{
        ChatModel, Delta, FinishReason, Message, Request, ResponseStream, Role, Tool, ToolCx, ToolError,
        ToolReply, ToolSpec, Usage, tool, tool_fn,
    };
    #[cfg(feature = "sqlite")]
    pub use superstep_sqlite::{SqliteCheckpointer, SqliteStore};
}
