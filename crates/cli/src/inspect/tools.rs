//! The tools of an agent, in their groups.
//!
//! Start at [`listed`].

use std::{path::Path, sync::Arc};

use serde_json::json;
use superstep::{llm::Tool, mcp::McpServer};
use superstep_session::{
    config::{
        configuration::Configuration,
        memory::Memory,
        tools::{GROUPS, MEMORY, SERVER, group},
    },
    error::SessionError,
    turn::tools::all,
};

use crate::output::table::{formatted, new_table, terminal_width};

/// A tool with its group.
pub(crate) struct Listed {
    pub(crate) group: String,
    /// `true` if its calls require approval.
    pub(crate) asks: bool,
    pub(crate) tool: Arc<dyn Tool>,
}

/// Returns the tools of a folder, of a configuration's memory, and of its MCP servers.
///
/// # Errors
/// The folder cannot be used.
pub(crate) fn listed(
    folder: &Path,
    configuration: &Configuration,
    servers: &[Arc<McpServer>],
) -> Result<Vec<Listed>, SessionError> {
    let mut tools = all(folder, &configuration.tool_settings())?;
    tools.sort_by_key(|tool| GROUPS.iter().position(|(name, ..)| *name == group(&tool.spec().name).0));
    let own = tools.into_iter().map(|tool| {
        let (group, asks) = group(&tool.spec().name);
        Listed { group: group.to_owned(), asks, tool }
    });
    let of_memory = configuration.memory.on().map(Memory::tools).into_iter().flatten();
    let of_memory = of_memory.map(|tool| Listed { group: MEMORY.to_owned(), asks: false, tool });
    let of_servers = servers.iter().flat_map(|server| {
        let group = format!("{SERVER}{}", server.name());
        server.tools().into_iter().map(move |tool| {
            let asks = tool.approval(&json!({})).is_some();
            Listed { group: group.clone(), asks, tool }
        })
    });
    Ok(own.chain(of_memory).chain(of_servers).collect())
}

/// Minimum number of columns of a terminal in which descriptions are readable beside names.
const MIN_WIDTH: u16 = 60;

/// Formats tools for people, in a narrow terminal without their descriptions.
pub(crate) fn table(tools: &[Listed]) -> String {
    let header = ["GROUP", "TOOL", "APPROVAL", "WHAT IT DOES"];
    let shown = if terminal_width().is_some_and(|width| width < MIN_WIDTH) { 3 } else { header.len() };
    let mut table = new_table(&header[..shown]);
    for Listed { group, asks, tool } in tools {
        let spec = tool.spec();
        let first = spec.description.split(". ").next().unwrap_or_default().trim_end_matches('.');
        let row = [group.as_str(), &spec.name, if *asks { "required" } else { "" }, first];
        table.add_row(&row[..shown]);
    }
    formatted(table)
}
