//! `superstep tools`: the agent's tools, in their groups.

use std::sync::Arc;

use serde_json::json;
use superstep::{llm::Tool, mcp::McpServer};
use superstep_session::{
    config::{
        file,
        location::Location,
        memory::Memory,
        tools::{GROUPS, MEMORY, SERVER, group},
    },
    error::SessionError,
    text::indented,
    turn::{mcp, tools::all},
};

use crate::{
    args::{command_line::ToolsArgs, shared::AGENT},
    output::{
        exit::Exit,
        note::print_note,
        table::{formatted, lines, new_table, print},
    },
    session::signals,
};

pub(crate) async fn list(args: &ToolsArgs) -> Result<Exit, SessionError> {
    let location = Location::new(AGENT, None, None)?;
    let configuration = args.config.as_deref().map(file::read).transpose()?.unwrap_or_default();
    let mut tools = all(&location.cwd, &configuration.tool_settings())?;
    tools.sort_by_key(|tool| GROUPS.iter().position(|(name, ..)| *name == group(&tool.spec().name).0));
    let (stop, _watch) = signals::watching();
    let servers = mcp::connect(configuration.mcp.clone(), &location.cwd, &stop).await?;
    let memory = configuration.memory.on().map(Memory::tools);
    let own = tools.into_iter().map(|tool| {
        let (group, asks) = group(&tool.spec().name);
        (group.to_owned(), asks, tool)
    });
    let of_server = |server: &Arc<McpServer>| {
        let name = format!("{}{}", SERVER, server.name());
        let asks = |tool: &Arc<dyn Tool>| tool.approval(&json!({})).is_some();
        server.tools().into_iter().map(|tool| (name.clone(), asks(&tool), tool)).collect::<Vec<_>>()
    };
    let of_memory = memory.into_iter().flatten().map(|tool| (MEMORY.to_owned(), false, tool));
    let tools: Vec<_> = own.chain(of_memory).chain(servers.iter().flat_map(of_server)).collect();
    for server in &servers {
        // Unusable tools, and other notes.
        for said in server.logged() {
            let line = format!("MCP server `{}`: {}", server.name(), said.trim_end());
            print_note(&indented(&line));
        }
    }
    mcp::close(&servers).await;
    if args.json {
        return print(&lines(tools.iter().map(|(group, asks, tool)| {
            let spec = tool.spec();
            json!({
                "tool": spec.name,
                "group": group,
                "asks": asks,
                "about": spec.description,
                "parameters": spec.parameters,
            })
        })));
    }
    let mut table = new_table(&["GROUP", "TOOL", "APPROVAL", "WHAT IT DOES"]);
    for (group, asks, tool) in &tools {
        let spec = tool.spec();
        let first = spec.description.split(". ").next().unwrap_or_default().trim_end_matches('.');
        table.add_row([group.as_str(), &spec.name, if *asks { "required" } else { "" }, first]);
    }
    print(&formatted(table))
}
