//! The MCP servers of a configuration: `[mcp.NAME]`.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use futures::future::join_all;
use serde::Deserialize;
use serde_json::Value;
use superstep::mcp::{self, McpConfig, McpServer};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    exit::{Exit, Failure},
    settings::Chosen,
    signals, tools,
};

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

/// Starts all of them in or below the folder of the tools, or connects to them, concurrently. If one fails,
/// or the program is stopped meanwhile, the others are shut down.
pub(crate) async fn connect(
    servers: BTreeMap<String, McpConfig>,
    folder: &Path,
) -> Result<Vec<Arc<McpServer>>, Failure> {
    if servers.is_empty() {
        return Ok(Vec::new());
    }
    let connecting = servers.into_iter().map(async |(name, mut config)| {
        if let mcp::Place::Program { cwd, .. } = &mut config.place {
            *cwd = Some(folder.join(cwd.take().unwrap_or_default()));
        }
        McpServer::connect(name, config).await.map(Arc::new)
    });
    let stop = CancellationToken::new();
    let _watch = AbortOnDropHandle::new(tokio::spawn(signals::watch(stop.clone())));
    let connected = tokio::select! {
        connected = join_all(connecting) => connected,
        () = stop.cancelled() => {
            return Err(Failure::new(Exit::Interrupted, "stopped while the MCP servers were started"));
        }
    };
    let (mut servers, mut failure) = (Vec::new(), None);
    for connected in connected {
        match connected {
            Ok(server) => servers.push(server),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    let Some(error) = failure else { return Ok(servers) };
    join_all(servers.iter().map(|server| server.close())).await;
    Err(Failure::caused(Exit::Failed, &error))
}
