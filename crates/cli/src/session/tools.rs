//! The choice of the agent's tools, by name or by group.

use std::{collections::BTreeMap, io::Write, path::Path, sync::Arc};

use futures::future::join_all;
use serde_json::{Value, json};
use superstep::{
    Clock, SystemClock,
    agent::PermissionRule,
    llm::Tool,
    mcp::{McpConfig, McpServer},
};

use crate::{
    args::{PlaceArgs, ToolsArgs},
    exit::{Exit, Failure},
    mcp,
    memory::{self, Memory},
    output::printable,
    place::Place,
    settings::{self, Chosen},
    show,
};

/// Its key in a configuration.
pub(crate) const KEY: &str = "tools";

/// The groups of tools, and whether they require approval.
const GROUPS: [(&str, &[&str], bool); 6] = [
    ("read", &["list_files", "read_file", "search_files"], false),
    ("write", &["edit_file", "write_file"], true),
    ("shell", &["shell"], true),
    ("web", &["fetch_url"], true),
    ("todo", &["todo"], false),
    ("facts", &["calculate", "current_time"], false),
];

/// Returns the chosen tools for a folder; all of them without a choice.
pub(crate) fn chosen(cwd: &Path, chosen: &Chosen) -> Result<Vec<Arc<dyn Tool>>, Failure> {
    let mut tools = all(cwd)?;
    if let Some(wanted) = chosen.get(KEY) {
        let servers = mcp::servers(chosen).map_err(Failure::usage)?;
        let wanted = names(wanted, &servers).map_err(Failure::usage)?;
        tools.retain(|tool| {
            let name = tool.spec().name.as_str();
            wanted.iter().any(|wanted| *wanted == name || group(name).0 == *wanted)
        });
    }
    Ok(tools)
}

/// Parses a choice, which may name the groups of these MCP servers.
///
/// # Errors    The problem with it.
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

/// Checks that permission rules match a tool: a rule with a wrong name would have no effect, also if it
/// denies.
pub(crate) fn check_rules(rules: &[PermissionRule], tools: &[Arc<dyn Tool>]) -> Result<(), Failure> {
    for rule in rules {
        let about: Vec<_> =
            tools.iter().map(|tool| tool.spec()).filter(|spec| rule.is_about(&spec.name)).collect();
        let wrong = |what: &str| {
            let tool = &rule.tool;
            Err(Failure::usage(format!(
                "a permission rule is about tool `{tool}`, {what}; see `superstep tools`"
            )))
        };
        if about.is_empty() {
            return wrong("but there is none of that name");
        }
        let takes = |name: &str| {
            about.iter().any(|spec| {
                let (named, others) =
                    (&spec.parameters["properties"], &spec.parameters["additionalProperties"]);
                named.get(name).is_some() || others.is_object() || *others == Value::Bool(true)
            })
        };
        if let Some(name) = rule.arguments.keys().find(|name| !takes(name)) {
            return wrong(&format!("which has no argument `{name}`"));
        }
    }
    Ok(())
}

pub(crate) fn all(cwd: &Path) -> Result<Vec<Arc<dyn Tool>>, Failure> {
    superstep::tools::all(cwd, || SystemClock.now_ms())
        .map_err(|cause| Failure::usage(format!("cannot work in `{}`: {cause}", cwd.display())))
}

fn group(tool: &str) -> (&'static str, bool) {
    let found = GROUPS.iter().find(|(_, tools, _)| tools.contains(&tool));
    found.map_or(("", true), |(group, _, asks)| (group, *asks))
}

/// Lists the tools.
pub(crate) async fn list(args: &ToolsArgs) -> Result<Exit, Failure> {
    let place = Place::new(PlaceArgs { db: None, cwd: None })?;
    let mut tools = all(&place.cwd)?;
    tools.sort_by_key(|tool| GROUPS.iter().position(|(name, ..)| *name == group(&tool.spec().name).0));
    let chosen = args.config.as_deref().map(settings::read).transpose()?.unwrap_or_default();
    let servers = mcp::connect(mcp::servers(&chosen).map_err(Failure::usage)?, &place.cwd).await?;
    let memory = Memory::of(&chosen).map_err(Failure::usage)?.map(|memory| memory.tools());
    let own = tools.into_iter().map(|tool| {
        let (group, asks) = group(&tool.spec().name);
        (group.to_owned(), asks, tool)
    });
    let of_server = |server: &Arc<McpServer>| {
        let name = format!("{}{}", mcp::GROUP, server.name());
        let asks = |tool: &Arc<dyn Tool>| tool.approval(&json!({})).is_some();
        server.tools().into_iter().map(|tool| (name.clone(), asks(&tool), tool)).collect::<Vec<_>>()
    };
    let of_memory = memory.into_iter().flatten().map(|tool| (memory::KEY.to_owned(), false, tool));
    let tools: Vec<_> = own.chain(of_memory).chain(servers.iter().flat_map(of_server)).collect();
    for server in &servers {
        // Unusable tools, and other notes.
        for said in server.logged() {
            let line = format!("MCP server `{}`: {}", server.name(), said.trim_end());
            drop(writeln!(anstream::stderr(), "{}", printable(&line)));
        }
    }
    join_all(servers.iter().map(|server| server.close())).await;
    if args.json {
        return show::print(&show::lines(tools.iter().map(|(group, asks, tool)| {
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
    let mut table = show::new_table(&["GROUP", "TOOL", "", "WHAT IT DOES"]);
    for (group, asks, tool) in &tools {
        let spec = tool.spec();
        let first = spec.description.split_once(". ").map_or(spec.description.as_str(), |(first, _)| first);
        table.add_row([group.as_str(), &spec.name, if *asks { "asks" } else { "" }, first]);
    }
    show::print(&format!("{}\n", table.trim_fmt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_in_a_group_that_says_whether_it_asks() {
        let grouped: usize = GROUPS.iter().map(|(_, tools, _)| tools.len()).sum();
        let tools = all(Path::new(".")).unwrap();
        assert_eq!(tools.len(), grouped);
        for tool in tools {
            let name = tool.spec().name.as_str();
            let args = match name {
                "edit_file" => json!({"path": "a", "old": "b", "new": "c"}),
                "write_file" => json!({"path": "a", "content": ""}),
                "shell" => json!({"command": "true"}),
                _ => json!({"url": "https://example.com"}),
            };
            let (group, asks) = group(name);
            assert_eq!((group.is_empty(), tool.approval(&args).is_some()), (false, asks), "{name}");
        }
    }
}
