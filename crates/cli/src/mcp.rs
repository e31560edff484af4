//! The MCP servers of a configuration: `[mcp.NAME]`.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use futures::future::try_join_all;
use serde::Deserialize;
use serde_json::Value;
use superstep::mcp::{self, McpConfig, McpServer};

use crate::{
    exit::{Exit, Failure},
    settings::Chosen,
};

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

/// Starts, in the folder of the tools or below it, or connects all of them at once.
pub(crate) async fn connect(
    servers: BTreeMap<String, McpConfig>,
    folder: &Path,
) -> Result<Vec<Arc<McpServer>>, Failure> {
    let connecting = servers.into_iter().map(async |(name, mut config)| {
        if let mcp::Place::Program { cwd, .. } = &mut config.place {
            *cwd = Some(folder.join(cwd.take().unwrap_or_default()));
        }
        McpServer::connect(name, config).await.map(Arc::new)
    });
    try_join_all(connecting).await.map_err(|error| Failure::caused(Exit::Failed, &error))
}
