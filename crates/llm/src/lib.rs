//! Chat models, messages and tools.
//!
//! Start at [`ChatModel`]: it turns a [`Request`] into a stream of [`Delta`]s. [`Assembler`] folds them into a
//! [`Response`]. A [`Tool`] is what a model may call. Nothing here knows of graphs.

mod error;
mod message;
mod model;
mod tool;

pub use error::{ModelError, ModelErrorKind};
pub use message::{Message, Role, ToolCall};
pub use model::{ChatModel, Delta, FinishReason, Request, Response, ResponseStream, Usage};
pub use tool::{Tool, ToolCx, ToolError, ToolFuture, ToolSpec};
