//! The entry `tools` of a configuration: which tools the agent has.

use std::collections::BTreeMap;

use serde_json::Value;
use superstep::mcp::McpConfig;

use crate::config::mcp;

/// Its key in a configuration.
pub(crate) const KEY: &str = "tools";

/// The groups of tools, and whether they require approval.
pub(crate) const GROUPS: [(&str, &[&str], bool); 6] = [
    ("read", &["list_files", "read_file", "search_files"], false),
    ("write", &["edit_file", "write_file"], true),
    ("shell", &["shell"], true),
    ("web", &["fetch_url"], true),
    ("todo", &["todo"], false),
    ("facts", &["calculate", "current_time"], false),
];

/// Parses a choice, which may name the groups of these MCP servers.
///
/// # Errors    The problem with them.
pub(crate) fn names<'a>(
    chosen: &'a Value,
    servers: &BTreeMap<String, McpConfig>,
) -> Result<Vec<&'a str>, String> {
    let names: Option<Vec<&str>> =
        chosen.as_array().and_then(|names| names.iter().map(Value::as_str).collect());
    let names = names.ok_or("`tools` is a list of names, such as `tools = [\"read\", \"shell\"]`")?;
    let is_server = |name: &str| name.strip_prefix(mcp::GROUP).is_some_and(|name| servers.contains_key(name));
    let is_known = |name: &&str| {
        is_server(name) || GROUPS.iter().any(|(group, tools, _)| group == name || tools.contains(name))
    };
    match names.iter().find(|name| !is_known(name)) {
        None => Ok(names),
        Some(name) => Err(format!("there is no tool and no group of tools `{name}`; see `superstep tools`")),
    }
}

/// The group of a tool, and whether the tool asks before it runs.
pub(crate) fn group(tool: &str) -> (&'static str, bool) {
    let found = GROUPS.iter().find(|(_, tools, _)| tools.contains(&tool));
    found.map_or(("", true), |(group, _, asks)| (group, *asks))
}
