//! The error of a server.

/// The error of a server that cannot be used.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum McpError {
    /// The server cannot be reached, or does not support the protocol.
    #[error("MCP server `{server}`: {problem}")]
    Connect {
        /// The server.
        server: String,
        /// The problem. Never contains a secret of the configuration.
        problem: String,
    },
    /// The list of tools is not available.
    #[error("MCP server `{server}` does not list its tools: {problem}")]
    List {
        /// The server.
        server: String,
        /// The problem. Never contains a secret of the configuration.
        problem: String,
    },
    /// A configured tool does not exist.
    #[error("MCP server `{server}` has no tool `{tool}`; it has {}", .has.join(", "))]
    NoSuchTool {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
        /// The existing tools.
        has: Vec<String>,
    },
}

superstep_llm::debug_by_chain!(McpError);
