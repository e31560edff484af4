//! The section `mcp` of a configuration: MCP servers.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use superstep::mcp::McpConfig;

use crate::config::{settings::Chosen, tools};

/// Prefix of a server's name in the name of its group of tools.
pub(crate) const GROUP: &str = "mcp.";

/// Their key in a configuration.
pub(crate) const KEY: &str = "mcp";

/// Parses the servers of a configuration by name.
///
/// # Errors    The problem with one of them.
pub(crate) fn servers(chosen: &Chosen) -> Result<BTreeMap<String, McpConfig>, String> {
    let Some(servers) = chosen.get(KEY) else { return Ok(BTreeMap::new()) };
    let Value::Object(servers) = servers else {
        return Err("`mcp` is a table of servers, such as `[mcp.files]`".to_owned());
    };
    let read = |(name, server): (&String, &Value)| {
        let server = McpConfig::deserialize(server).map_err(|error| format!("`mcp.{name}`: {error}"))?;
        Ok((name.clone(), server))
    };
    servers.iter().map(read).collect()
}

/// Returns the servers of a configuration whose tools the agent uses: those of the chosen groups, or all of
/// them without a choice.
///
/// # Errors    The problem with one of them, or with the choice.
pub(crate) fn wanted(chosen: &Chosen) -> Result<BTreeMap<String, McpConfig>, String> {
    let mut servers = servers(chosen)?;
    if let Some(names) = chosen.get(tools::KEY) {
        let names = tools::names(names, &servers)?;
        let named: Vec<&str> = names.into_iter().filter_map(|name| name.strip_prefix(GROUP)).collect();
        if !named.is_empty() {
            servers.retain(|server, _| named.contains(&&**server));
        }
    }
    Ok(servers)
}
