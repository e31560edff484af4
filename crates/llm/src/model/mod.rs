//! Models of any provider: requests, the assembly of responses, bounds and retries.
//!
//! Start at [`ChatModel`](chat_model::ChatModel).

pub(crate) mod assemble;
pub(crate) mod chat_model;
pub(crate) mod content;
pub mod limits;
pub(crate) mod retry;
pub(crate) mod retrying;
pub mod timers;
pub(crate) mod trace;
