//! Tools of MCP servers, for the agents of superstep.
//!
//! A server is a program that is started and spoken to over its stdin and stdout, or an address that is spoken to over
//! HTTP. Start at [`McpServer::connect`]; [`McpServer::tools`] is what an agent is given.

mod config;
mod connection;
mod content;
mod heard;
mod names;
mod server;
mod tool;
mod unsent;

pub use config::{Ask, McpConfig, McpConfigError, Place};
pub use server::{McpError, McpServer};
