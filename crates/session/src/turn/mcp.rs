//! Connections to the MCP servers of a configuration.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::join_all;
use superstep::mcp::{self, McpConfig, McpError, McpServer};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::error::{ErrorKind, SessionError};

/// The servers of a command that sets up its agent several times, which are connected once.
#[derive(Default)]
pub struct Pool(Mutex<Vec<Connected>>);

/// The servers of a configuration in a folder.
struct Connected {
    configs: BTreeMap<String, McpConfig>,
    folder: PathBuf,
    servers: Vec<Arc<McpServer>>,
}

impl Pool {
    /// Returns the servers of an equal configuration, or connects them as [`connect`] does.
    pub async fn connect(
        &self,
        configs: BTreeMap<String, McpConfig>,
        folder: &Path,
        stop: &CancellationToken,
    ) -> Result<Vec<Arc<McpServer>>, SessionError> {
        let mut all = self.0.lock().await;
        let known = all.iter().find(|known| known.configs == configs && known.folder == folder);
        if let Some(known) = known {
            return Ok(known.servers.clone());
        }
        let servers = connect(configs.clone(), folder, stop).await?;
        all.push(Connected { configs, folder: folder.to_owned(), servers: servers.clone() });
        Ok(servers)
    }

    /// Returns the connected servers; none while some are being connected.
    pub fn connected(&self) -> Vec<Arc<McpServer>> {
        let Ok(all) = self.0.try_lock() else { return Vec::new() };
        all.iter().flat_map(|known| known.servers.iter().cloned()).collect()
    }

    /// Shuts all of them down.
    pub async fn close(&self) {
        let all = std::mem::take(&mut *self.0.lock().await);
        close(all.iter().flat_map(|known| &known.servers)).await;
    }
}

/// Starts all of them in or below the folder of the tools, or connects to them, concurrently. If one fails,
/// or `stop` is cancelled meanwhile, the others are shut down.
pub async fn connect(
    servers: BTreeMap<String, McpConfig>,
    folder: &Path,
    stop: &CancellationToken,
) -> Result<Vec<Arc<McpServer>>, SessionError> {
    if servers.is_empty() {
        return Ok(Vec::new());
    }
    let connecting: Vec<_> =
        servers.into_iter().map(|(name, config)| connect_one(name, config, folder)).collect();
    let connected = tokio::select! {
        connected = join_all(connecting) => connected,
        () = stop.cancelled() => {
            return Err(SessionError::new(ErrorKind::Interrupted, "stopped while the MCP servers were started"));
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
    close(&servers).await;
    Err(SessionError::caused(ErrorKind::Failed, &error))
}

async fn connect_one(name: String, mut config: McpConfig, folder: &Path) -> Result<Arc<McpServer>, McpError> {
    if let mcp::Endpoint::Program { cwd, .. } = &mut config.endpoint {
        *cwd = Some(folder.join(cwd.take().unwrap_or_default()));
    }
    McpServer::connect(name, config).await.map(Arc::new)
}

/// Shuts servers down, which may take seconds.
pub async fn close<'a>(servers: impl IntoIterator<Item = &'a Arc<McpServer>>) {
    join_all(servers.into_iter().map(|server| server.close())).await;
}
