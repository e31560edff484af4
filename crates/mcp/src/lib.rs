//! Tools of MCP servers, for the agents of superstep.
//!
//! A server is a program that is started and spoken to over its stdin and stdout, or an address that is spoken to over
//! HTTP. Start at [`McpServer::connect`]; [`McpServer::tools`] is what an agent is given.

mod config;
mod connection;
mod content;
mod elicit;
mod heard;
mod http;
mod listed;
mod message;
mod names;
mod overheard;
mod program;
mod running;
mod server;
mod tool;
mod unsent;

pub use config::{Ask, McpConfig, McpConfigError, Place};
pub use running::{all_ended, kill_all};
pub use server::{McpError, McpServer};

/// The largest message of a server, in bytes.
pub(crate) const LARGEST_MESSAGE: usize = 8 << 20;
