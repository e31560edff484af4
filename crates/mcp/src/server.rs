//! A server and its tools.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use superstep_llm::{RefreshFuture, RegistryError, Tool, ToolRegistry, ToolSource, check_timers};
use tokio::time::timeout;

use crate::{
    McpConfig,
    connection::{Connection, connect, without_secrets},
    listed::{Listed, Unusable, list},
    names::names,
    notifications::Notifications,
    tool::McpTool,
};

/// The minimum time limit for a server's end.
const LONGEST_END: Duration = Duration::from_secs(10);

/// The maximum number of requests for a list that fails.
const MOST_TRIES: usize = 3;

/// A connected server with its tools. It lives as long as this value, or any of its tools.
///
/// A server that ends, or whose connection breaks, is started or connected anew by the next call. The
/// interrupted call returns an error: its result is unknown.
/// # Example
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use superstep_mcp::{McpConfig, McpServer};
///
/// let server = McpServer::connect("time", McpConfig::program("mcp-server-time", [])).await?;
/// let names: Vec<String> = server.tools().iter().map(|tool| tool.spec().name.clone()).collect();
/// assert_eq!(names, ["time_get_current_time", "time_convert_time"]);
/// // let agent = Agent::builder(model).tools(server.tools()).build()?;
/// server.close().await;
/// # Ok(())
/// # }
/// ```
pub struct McpServer {
    link: Arc<Link>,
    offered: Mutex<Offered>,
}

/// The current tools.
#[derive(Clone)]
struct Offered {
    /// The tools, in the server's order.
    tools: Vec<Arc<dyn Tool>>,
    by_name: Arc<ToolRegistry>,
    /// The change of the list to which they belong.
    changes: u64,
    /// The number of failed requests for the list of a later change.
    tries: usize,
}

/// The error of a server that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum McpError {
    /// It cannot be reached, or does not support the protocol.
    #[error("MCP server `{server}`: {problem}")]
    Connect {
        /// The server.
        server: String,
        /// The problem. Never contains a secret of the configuration.
        problem: String,
    },
    /// The list of tools is not available.
    #[error("MCP server `{server}` does not list its tools: {problem}")]
    List {
        /// The server.
        server: String,
        /// The problem. Never contains a secret of the configuration.
        problem: String,
    },
    /// A configured tool does not exist.
    #[error("MCP server `{server}` has no tool `{tool}`; it has {}", .has.join(", "))]
    NoSuchTool {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
        /// The existing tools.
        has: Vec<String>,
    },
}

/// The connection to a server, renewed when it breaks.
pub(crate) struct Link {
    pub(crate) name: String,
    /// The name of the sequence that orders its calls.
    pub(crate) sequence: String,
    pub(crate) config: McpConfig,
    pub(crate) notifications: Arc<Notifications>,
    connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
}

impl McpServer {
    /// Connects and requests the tools. Their names are `name_tool`, with characters and a length that
    /// providers accept.
    ///
    /// # Errors
    /// [`McpError`] if this takes too long or fails, or if a configured tool does not exist.
    pub async fn connect(name: impl Into<String>, config: McpConfig) -> Result<Self, McpError> {
        let name = name.into();
        let (notifications, connection) = (Arc::new(Notifications::of(&name)), tokio::sync::Mutex::new(None));
        let link =
            Arc::new(Link { sequence: format!("mcp.{name}"), name, config, notifications, connection });
        let server = || link.name.clone();
        let refused = |problem| McpError::Connect { server: server(), problem };
        let connection = link.connection().await.map_err(refused)?;
        let unlisted = |problem| McpError::List { server: server(), problem };
        let listed = link.list(&connection).await.map_err(unlisted).and_then(|listed| link.taken(listed));
        drop(connection);
        let offered = listed.and_then(|taken| {
            let (offered, left_out) = Offered::of(&link, taken);
            match left_out.first() {
                // It was configured, so that the user relies on it.
                Some(why) if link.config.tools.is_some() => return Err(unlisted(why.clone())),
                _ => link.notifications.warn(&left_out),
            }
            Ok(offered)
        });
        match offered {
            Ok(offered) => Ok(Self { link, offered: Mutex::new(offered) }),
            Err(error) => {
                link.close().await;
                Err(error)
            }
        }
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.link.name
    }

    /// Returns its current tools, in its own order. An agent that follows changes takes the server as a
    /// [`ToolSource`] instead.
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.offered().tools.clone()
    }

    /// Takes the messages that it logged outside of calls.
    pub fn logged(&self) -> Vec<String> {
        self.link.notifications.take()
    }

    fn offered(&self) -> MutexGuard<'_, Offered> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the server and waits for its end. A later call of one of its tools starts it again.
    pub async fn close(&self) {
        self.link.close().await;
    }
}

impl ToolSource for McpServer {
    fn tools(&self) -> Arc<ToolRegistry> {
        self.offered().by_name.clone()
    }

    /// Requests the tools if the server reported a change or was restarted. A server that is not running is
    /// not started. A failed request changes nothing and is repeated a few times.
    fn refresh(&self) -> RefreshFuture<'_> {
        Box::pin(async {
            let changes = self.link.notifications.changes();
            if self.offered().changes == changes {
                return;
            }
            let Some(connection) = self.link.open().await else { return };
            let listed = self.link.list(&connection).await;
            let mut known = self.offered();
            match listed {
                Ok(listed) => {
                    let (offered, left_out) = Offered::of(&self.link, self.link.still_there(listed));
                    self.link.notifications.warn(&left_out);
                    *known = Offered { changes, ..offered };
                }
                Err(_) if known.tries + 1 < MOST_TRIES => known.tries += 1,
                Err(problem) => {
                    self.link.notifications.warn(&[format!("its tools are listed no more: {problem}")]);
                    (known.changes, known.tries) = (changes, 0);
                }
            }
        })
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServer")
            .field("name", &self.link.name)
            .field("tools", &self.offered().by_name)
            .finish_non_exhaustive()
    }
}

impl Offered {
    /// Separates the usable tools from the reasons why others are not usable.
    fn of(link: &Arc<Link>, taken: Vec<Result<Listed, Unusable>>) -> (Self, Vec<String>) {
        let (mut tools, mut by_name, mut left_out) = (Vec::new(), ToolRegistry::new(), Vec::new());
        let names = names(&link.name, taken.iter().flatten().map(|tool| &*tool.name));
        let mut names = names.into_iter();
        for listed in taken {
            let inserted = listed.and_then(|listed| {
                let name = names.next().expect("each tool that was read has one");
                let tool: Arc<dyn Tool> = Arc::new(McpTool::new(link.clone(), &listed, name));
                let refused = |error: RegistryError| Unusable { name: listed.name, why: error.to_string() };
                by_name.insert(tool.clone()).map_err(refused)?;
                Ok(tool)
            });
            match inserted {
                Ok(tool) => tools.push(tool),
                Err(unusable) => left_out.push(unusable.to_string()),
            }
        }
        (Self { tools, by_name: Arc::new(by_name), changes: 0, tries: 0 }, left_out)
    }
}

impl Link {
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

    async fn close(&self) {
        let Some(connection) = self.connection.lock().await.take() else { return };
        self.notifications.tools_changed();
        // A running call owns a reference; the connection then ends with that call.
        if let Some(mut connection) = Arc::into_inner(connection) {
            let _ = connection.close_with_timeout(self.config.start_timeout.max(LONGEST_END)).await;
        }
    }

    /// Returns the connection, if there is one.
    async fn open(&self) -> Option<Arc<Connection>> {
        self.connection.lock().await.clone().filter(|it| is_whole(it))
    }

    async fn list(&self, connection: &Connection) -> Result<Vec<Result<Listed, Unusable>>, String> {
        check_timers().map_err(|error| error.to_string())?;
        let late = |_| Err(format!("it sent nothing for {} ms", self.config.start_timeout.as_millis()));
        let listed = timeout(self.config.start_timeout, list(connection)).await.unwrap_or_else(late);
        listed.map_err(|problem| without_secrets(&self.config, problem))
    }

    /// Returns the configured tools of the server, in its order.
    fn taken(
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
    fn still_there(&self, listed: Vec<Result<Listed, Unusable>>) -> Vec<Result<Listed, Unusable>> {
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
