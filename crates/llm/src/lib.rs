//! Chat models, messages and tools.
//!
//! Start at [`ChatModel`]: it turns a [`Request`] into a stream of [`Delta`]s. [`Assembler`] folds them into
//! a [`Response`]. [`Retrying`] is the only layer that retries a request. A model may call [`Tool`]s; a
//! [`ToolRegistry`] contains those of one agent. This crate does not depend on graphs.

extern crate self as superstep_llm;

mod api_key;
mod arguments;
mod assemble;
mod body;
mod chat_json;
mod chunk;
mod error;
#[cfg(feature = "openai")]
mod events;
mod fn_tool;
#[cfg(feature = "http")]
pub mod http;
mod limits;
mod media;
mod message;
mod model;
#[cfg(feature = "openai")]
mod openai;
#[cfg(feature = "openai")]
mod openai_config;
mod partial_json;
mod printable;
mod reads_calls;
mod refusal;
mod registry;
mod retry;
mod retrying;
mod subject;
mod text_calls;
mod thinking;
#[cfg(feature = "tiktoken")]
mod tiktoken;
mod timers;
mod tokens;
mod tool;
mod tool_cx;
mod tool_macro;
mod tool_source;

pub use api_key::ApiKey;
pub use arguments::{ArgumentCheck, ToolCallError, check_arguments};
pub use assemble::{Assembler, complete};
pub use body::{OutputLimit, ReasoningPolicy, WireConfig, WirePolicy};
pub use chat_json::ChatJsonError;
pub use chunk::{Chunk, ChunkReader};
pub use error::{ModelError, ModelErrorKind};
pub use fn_tool::{FnTool, tool_fn};
pub use limits::{AnswerLimits, bounded};
pub use media::{Accepts, Media, MediaError, MediaType};
pub use message::{Message, Role, ToolCall};
pub use model::{ChatModel, Delta, FinishReason, Named, Request, Response, ResponseStream, Usage};
#[cfg(feature = "openai")]
pub use openai::{Clock, OpenAiModel};
#[cfg(feature = "openai")]
pub use openai_config::{OpenAiConfig, OpenAiConfigError, Timeouts};
pub use partial_json::partial_json;
pub use printable::{is_printable, printable, printable_line};
pub use reads_calls::ReadsTextCalls;
pub use refusal::{excerpt, retry_after};
pub use registry::{RegistryError, ToolRegistry};
pub use retry::{Jitter, JitterSource, ModelRetry, RetryClass, seeded_jitter};
pub use retrying::Retrying;
pub use subject::Subject;
pub use superstep_macros::tool;
pub use text_calls::{TextCalls, text_calls};
pub use thinking::split_thinking;
#[cfg(feature = "tiktoken")]
pub use tiktoken::Tiktoken;
pub use timers::{NoTimers, check_timers};
pub use tokens::{Estimate, TokenCounter, default_counter};
pub use tool::{
    Behaviour, FileChange, FileChangeKind, FileChanges, ReconcileFuture, Sequence, SnapshotError,
    SnapshotFuture, Snapshots, Spill, SpillError, SpillFuture, SpillText, Tool, ToolError, ToolFuture,
    ToolReply, ToolSpec,
};
pub use tool_cx::{AnswerFuture, ToolAnswer, ToolCx, ToolQuestion};
pub use tool_source::{RefreshFuture, ToolSource};

/// For what `#[tool]` expands to.
#[doc(hidden)]
pub mod __private {
    pub use schemars;
    pub use serde;
    pub use serde_json;

    pub use crate::tool_macro::{Stands, fallible, plain, subject};
}
