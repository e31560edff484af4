//! The exchange of one request with a server of models, for all protocols.

pub(crate) mod config;
pub(crate) mod events;
pub(crate) mod server;
