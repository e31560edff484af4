//! The connection of a server and its tools, which outlives the connection to the server.
//!
//! Start at [`Link::connection`].

use std::{sync::Arc, time::Duration};

use superstep_llm::timers::check_timers;
use tokio::time::timeout;

use crate::{
    McpConfig, McpError,
    connection::{Connection, connect},
    listed::{Listed, Unusable, list},
    notifications::Notifications,
    secrets::without_secrets,
};

/// The minimum time limit for a server's end.
const MAX_SHUTDOWN: Duration = Duration::from_secs(10);

/// The connection to a server, renewed when it breaks.
pub(crate) struct Link {
    pub(crate) name: String,
    /// The name of the sequence that orders its calls.
    pub(crate) sequence: String,
    pub(crate) config: McpConfig,
    pub(crate) notifications: Arc<Notifications>,
    connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
}

impl Link {
    /// Creates the link of a server that is not connected yet.
    pub(crate) fn new(name: String, config: McpConfig) -> Self {
        let sequence = format!("mcp.{name}");
        let notifications = Arc::new(Notifications::of(&name));
        Self { name, sequence, config, notifications, connection: tokio::sync::Mutex::new(None) }
    }

    /// Returns the connection, or a new one if it broke.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>, String> {
        let mut connection = self.connection.lock().await;
        if let Some(whole) = connection.as_ref().filter(|it| is_whole(it)) {
            return Ok(whole.clone());
        }
        if connection.take().is_some() {
            self.notifications.tools_changed();
        }
        let new = Arc::new(connect(&self.config, self.notifications.clone()).await?);
        *connection = Some(new.clone());
        Ok(new)
    }

    /// Drops a broken connection, which running calls may still use.
    pub(crate) async fn forget(&self, useless: &Arc<Connection>) {
        let mut connection = self.connection.lock().await;
        if connection.as_ref().is_some_and(|connection| Arc::ptr_eq(connection, useless)) {
            *connection = None;
            self.notifications.tools_changed();
        }
    }

    pub(crate) async fn close(&self) {
        let Some(connection) = self.connection.lock().await.take() else { return };
        self.notifications.tools_changed();
        // A running call owns a reference; the connection then ends with that call.
        if let Some(mut connection) = Arc::into_inner(connection) {
            let _ = connection.close_with_timeout(self.config.start_timeout.max(MAX_SHUTDOWN)).await;
        }
    }

    /// Returns the connection, if there is one.
    pub(crate) async fn open(&self) -> Option<Arc<Connection>> {
        self.connection.lock().await.clone().filter(|it| is_whole(it))
    }

    pub(crate) async fn list(
        &self,
        connection: &Connection,
    ) -> Result<Vec<Result<Listed, Unusable>>, String> {
        check_timers().map_err(|error| error.to_string())?;
        let late = |_| Err(format!("it did not answer for {} ms", self.config.start_timeout.as_millis()));
        let listed = timeout(self.config.start_timeout, list(connection)).await.unwrap_or_else(late);
        listed.map_err(|problem| without_secrets(&self.config, problem))
    }

    /// Returns the configured tools of the server, in its order.
    pub(crate) fn taken(
        &self,
        listed: Vec<Result<Listed, Unusable>>,
    ) -> Result<Vec<Result<Listed, Unusable>>, McpError> {
        let missing = |name: &&String| !listed.iter().any(|tool| name_of(tool) == name.as_str());
        match self.config.tools.iter().flatten().find(missing) {
            None => Ok(self.still_there(listed)),
            Some(tool) => Err(McpError::NoSuchTool {
                server: self.name.clone(),
                tool: tool.clone(),
                has: listed.iter().map(|tool| name_of(tool).to_owned()).collect(),
            }),
        }
    }

    /// Selects the configured tools, of which some may be missing.
    pub(crate) fn still_there(&self, listed: Vec<Result<Listed, Unusable>>) -> Vec<Result<Listed, Unusable>> {
        let Some(wanted) = &self.config.tools else { return listed };
        let find = |name: &String| listed.iter().find(|tool| name_of(tool) == name.as_str()).cloned();
        wanted.iter().filter_map(find).collect()
    }
}

fn name_of(tool: &Result<Listed, Unusable>) -> &str {
    match tool {
        Ok(tool) => &tool.name,
        Err(unusable) => &unusable.name,
    }
}

fn is_whole(connection: &Connection) -> bool {
    !connection.is_closed() && !connection.is_transport_closed()
}
