//! The API of Gemini, which Vertex AI has as well.

pub(crate) mod config;
pub(crate) mod model;
mod parts;
mod reader;
mod refusals;
mod request;

/// The protocol of the messages.
const WIRE: &str = "gemini";
