//! The entry `tools` of a configuration: the names of tools and of their groups.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor, value::SeqAccessDeserializer},
};
use superstep::mcp::McpConfig;

use crate::config::memory::Memory;

/// The prefix of an MCP server's name that makes it the name of a group.
pub const SERVER: &str = "mcp.";

/// The name of the group of a memory's tools, which the memory itself switches.
pub const MEMORY: &str = "memory";

/// The groups of tools, and whether they require approval.
pub const GROUPS: [(&str, &[&str], bool); 7] = [
    ("read", &["list_files", "read_file", "search_files"], false),
    ("write", &["edit_file", "write_file"], true),
    ("shell", &["shell"], true),
    ("web", &["fetch_url"], true),
    ("todo", &["todo"], false),
    ("pin", &["pin"], false),
    ("facts", &["calculate", "current_time"], false),
];

/// Checks the names of a configuration, which may be groups of its MCP servers.
///
/// # Errors
/// The problem with them.
pub fn check(names: &[String], servers: &BTreeMap<String, McpConfig>) -> Result<(), String> {
    let is_server = |name: &str| name.strip_prefix(SERVER).is_some_and(|name| servers.contains_key(name));
    let is_known = |name: &&String| {
        let of_program =
            |(group, tools, _): &(&str, &[&str], bool)| group == name || tools.contains(&name.as_str());
        is_server(name) || GROUPS.iter().any(of_program)
    };
    match names.iter().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name)
            if name == MEMORY || Memory::default().tools().iter().any(|tool| tool.spec().name == *name) =>
        {
            Err(format!(
                "`{name}` is not among the tools to choose: `memory.tools` switches those of a memory"
            ))
        }
        Some(name) => Err(format!("unknown tool or group of tools `{name}`; see `superstep tools`")),
    }
}

/// Returns the group of a tool, and whether the tool requires approval.
pub fn group(tool: &str) -> (&'static str, bool) {
    let found = GROUPS.iter().find(|(_, tools, _)| tools.contains(&tool));
    found.map_or(("", true), |(group, _, asks)| (group, *asks))
}

pub fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    struct Names;
    impl<'de> Visitor<'de> for Names {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of names, such as `tools = [\"read\", \"shell\"]`")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, names: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(names))
        }
    }
    deserializer.deserialize_seq(Names).map(Some)
}
