//! The MCP servers that an editor names.

use std::collections::BTreeMap;

use superstep::mcp::{Endpoint, McpConfig};
use superstep_acp::wire::{McpServer, NameValue};
use superstep_session::config::tools::GROUPS;

/// Maximum length of a server's name, which begins the names of its tools.
const MAX_NAME: usize = 24;

/// Converts the servers of a client. Names become parts of tools' names, so that other signs in them are replaced, and equal names
/// numbered.
pub(super) fn configs(servers: Vec<McpServer>) -> BTreeMap<String, McpConfig> {
    let mut configs = BTreeMap::new();
    for server in servers {
        let (name, config) = match server {
            McpServer::Stdio { name, command, args, env } => {
                let mut config = McpConfig::program(command, args);
                if let Endpoint::Program { env: variables, .. } = &mut config.endpoint {
                    variables.extend(pairs(env));
                }
                (name, config)
            }
            McpServer::Http { name, url, headers } => {
                let mut config = McpConfig::http(url);
                if let Endpoint::Http { headers: own, .. } = &mut config.endpoint {
                    own.extend(pairs(headers));
                }
                (name, config)
            }
        };
        let name = safe(&name);
        let numbered = (2..).map(|number: u64| format!("{name}-{number}"));
        let free = |name: &String| !configs.contains_key(name);
        let name = std::iter::once(name.clone()).chain(numbered).find(free).expect("numbers do not end");
        configs.insert(name, config);
    }
    configs
}

/// Replaces `$` by `$$`: values of a client name no variables.
fn pairs(values: Vec<NameValue>) -> impl Iterator<Item = (String, String)> {
    values.into_iter().map(|NameValue { name, value }| (name, value.replace('$', "$$")))
}

/// Returns a name of letters, digits and `-` for a server.
fn safe(name: &str) -> String {
    let mut safe = String::new();
    for sign in name.chars() {
        match sign {
            sign if sign.is_ascii_alphanumeric() => safe.push(sign.to_ascii_lowercase()),
            _ if safe.is_empty() || safe.ends_with('-') => {}
            _ => safe.push('-'),
        }
    }
    safe.truncate(MAX_NAME);
    let safe = safe.trim_end_matches('-');
    let is_ours = GROUPS
        .iter()
        .flat_map(|(_, tools, _)| *tools)
        .any(|tool| tool.strip_prefix(safe).is_some_and(|rest| rest.starts_with('_')));
    match safe {
        "" => "server".to_owned(),
        // Its tools must not have the names of the agent's own.
        safe if is_ours => format!("{safe}-server"),
        safe => safe.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_and_different() {
        assert_eq!(safe("My Server!"), "my-server");
        assert_eq!(safe("читатель"), "server");
        assert_eq!(safe("read"), "read-server");
        let stdio = |name: &str| McpServer::Stdio {
            name: name.into(),
            command: "c".into(),
            args: Vec::new(),
            env: vec![NameValue { name: "T".into(), value: "a$b".into() }],
        };
        let configs = configs(vec![stdio("A b"), stdio("a_B"), stdio("c")]);
        assert_eq!(configs.keys().collect::<Vec<_>>(), ["a-b", "a-b-2", "c"]);
        let Endpoint::Program { env, .. } = &configs["c"].endpoint else { panic!("a program") };
        assert_eq!(env["T"], "a$$b");
    }
}
