//! Tools of MCP servers, for the agents of superstep.
//!
//! A server is a program, connected through its stdin and stdout, or an address, connected through HTTP.
//! Start at [`McpServer::connect`]; pass [`McpServer::tools`] to an agent.

mod config;
mod connection;
mod content;
mod elicit;
mod error;
mod failed_requests;
mod http;
mod link;
mod listed;
mod mend;
mod message;
mod names;
mod notifications;
mod observed_transport;
mod program;
mod running;
mod secrets;
mod server;
mod tool;
mod trace;

pub use config::{Ask, Endpoint, McpConfig, McpConfigError};
pub use error::McpError;
pub use running::{all_ended, kill_all};
pub use server::McpServer;

/// The maximum size of a server's message, in bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 8 << 20;
