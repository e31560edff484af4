//! A server and its tools.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use superstep_llm::{
    Tool, ToolRegistry,
    toolset::{RefreshFuture, RegistryError, ToolSource},
};

use crate::{
    McpConfig, McpError,
    link::Link,
    listed::{Listed, Unusable},
    names::name,
    tool::McpTool,
};

/// The maximum number of requests for a list that fails.
const MAX_TRIES: usize = 3;

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

impl McpServer {
    /// Connects and requests the tools. Their names are `name_tool`, with characters and a length that
    /// providers accept; a name that has others gets a hash of the original at its end.
    ///
    /// # Errors
    /// [`McpError`] if this takes too long or fails, or if a configured tool does not exist.
    pub async fn connect(name: impl Into<String>, config: McpConfig) -> Result<Self, McpError> {
        let link = Arc::new(Link::new(name.into(), config));
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
                Some(why) if link.config.tools.is_some() => {
                    return Err(unlisted(link.notifications.hidden(why.clone())));
                }
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
                Err(_) if known.tries + 1 < MAX_TRIES => known.tries += 1,
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
        for listed in taken {
            let inserted = listed.and_then(|listed| {
                let name = name(&link.name, &listed.name);
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
