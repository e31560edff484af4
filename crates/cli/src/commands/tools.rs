//! `superstep tools`: the agent's tools, in their groups.

use serde_json::json;
use superstep_session::{
    config::{defaults::Defaults, file, location::Location},
    error::SessionError,
    text::indented,
    turn::mcp,
};

use crate::{
    args::{command_line::ToolsArgs, shared::AGENT},
    inspect::tools::{Listed, listed, table},
    output::{
        exit::Exit,
        note::print_note,
        table::{lines, print},
    },
    session::signals,
};

pub(crate) async fn list(args: &ToolsArgs) -> Result<Exit, SessionError> {
    let location = Location::new(AGENT, None, None)?;
    let configuration = match &args.config {
        Some(file) => file::read(file)?,
        None => Defaults::load(&location.cwd)?.configuration().clone(),
    };
    let (stop, _watch) = signals::watching();
    let servers = mcp::connect(configuration.mcp.clone(), &location.cwd, &stop).await?;
    let tools = listed(&location.cwd, &configuration, &servers);
    for server in &servers {
        // Unusable tools, and other notes.
        for said in server.logged() {
            let line = format!("MCP server `{}`: {}", server.name(), said.trim_end());
            print_note(&indented(&line));
        }
    }
    mcp::close(&servers).await;
    let tools = tools?;
    if args.json {
        return print(&lines(tools.iter().map(|Listed { group, asks, tool }| {
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
    print(&table(&tools))
}
