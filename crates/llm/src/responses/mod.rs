//! The Responses API of OpenAI, which other servers have as well, also under the name of Open Responses.

pub(crate) mod config;
mod items;
pub(crate) mod model;
mod reader;
mod repairs;
mod request;

/// The protocol of the messages.
const WIRE: &str = "responses";
