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

/// What the name of a server has before it where it names the group of its tools.
pub(crate) const GROUP: &str = "mcp.";

/// Under which name they stand in a configuration.
pub(crate) const KEY: &str = "mcp";

/// Reads the servers of a configuration by their names.
///
/// # Errors    What is wrong with one of them.
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

/// The servers of a configuration whose tools the agent has: those of the groups that the choice of tools names, or all of them
/// if it names none.
///
/// # Errors    What is wrong with one of them, or with the choice.
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

/// Starts, in the folder of the tools or below it, or connects all of them at once. If one of them cannot be used, or the program
/// is told to stop meanwhile, the others are ended.
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
