//! The chat completions API of OpenAI, which other servers have as well.
//!
//! A folder for each provider: a model, its requests, and the reader of its streams.

pub(crate) mod chunk;
#[cfg(feature = "openai")]
pub(crate) mod config;
pub(crate) mod message;
#[cfg(feature = "openai")]
pub(crate) mod model;
#[cfg(feature = "openai")]
pub(crate) mod repairs;
pub(crate) mod request;
