//! The exchange of one request with a server of models, for all protocols.

pub(crate) mod config;
pub(crate) mod events;
#[cfg(any(feature = "anthropic", feature = "gemini"))]
pub(crate) mod json;
pub(crate) mod server;
#[cfg(any(feature = "anthropic", feature = "gemini"))]
pub(crate) mod token;
#[cfg(any(feature = "anthropic", feature = "gemini"))]
pub(crate) mod vertex;
