//! A server and its tools.

use std::{fmt, sync::Arc};

use rmcp::model::{PaginatedRequestParams, Tool as RemoteTool};
use superstep_llm::Tool;
use tokio::{sync::Mutex, time::timeout};

use crate::{
    McpConfig,
    connection::{Connection, connect},
    names::names,
    tool::McpTool,
};

/// The most tools of a server; models cannot choose among more.
const MOST_TOOLS: usize = 1_000;

/// A server that was asked for its tools. It lives as long as this, or any of its tools.
///
/// A server that ends, or whose connection breaks, is started or connected anew by the next call. The call that it was at
/// gets an error as its result: nobody knows what came of it.
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
    tools: Vec<Arc<dyn Tool>>,
}

/// A server that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum McpError {
    /// It cannot be reached, or does not speak the protocol.
    #[error("MCP server `{server}`: {problem}")]
    Connect {
        /// The server.
        server: String,
        /// What went wrong. Never has a secret of the configuration.
        problem: String,
    },
    /// It does not say which tools it has.
    #[error("MCP server `{server}` does not list its tools: {problem}")]
    List {
        /// The server.
        server: String,
        /// What went wrong.
        problem: String,
    },
    /// A tool that is wanted is not there.
    #[error("MCP server `{server}` has no tool `{tool}`; it has {}", .has.join(", "))]
    NoSuchTool {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
        /// Those that it has.
        has: Vec<String>,
    },
}

/// The connection to a server, made anew when it breaks.
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) config: McpConfig,
    connection: Mutex<Option<Arc<Connection>>>,
}

impl McpServer {
    /// Connects, and asks for the tools. Their names are `name_tool`, in characters and of a length that providers take.
    ///
    /// # Errors
    /// [`McpError`] if that takes too long or fails, or a tool that the configuration names is not there.
    pub async fn connect(name: impl Into<String>, config: McpConfig) -> Result<Self, McpError> {
        let link = Arc::new(Link { name: name.into(), config, connection: Mutex::new(None) });
        let server = || link.name.clone();
        let refused = |problem| McpError::Connect { server: server(), problem };
        let connection = link.connection().await.map_err(refused)?;
        let listed = timeout(link.config.start_timeout, list(&connection)).await;
        let late = |_| Err(format!("it said nothing for {} ms", link.config.start_timeout.as_millis()));
        let listed =
            listed.unwrap_or_else(late).map_err(|problem| McpError::List { server: server(), problem })?;
        let taken = link.taken(listed)?;
        let names = names(&link.name, taken.iter().map(|tool| &*tool.name));
        let tool = |(tool, name): (&RemoteTool, String)| -> Arc<dyn Tool> {
            Arc::new(McpTool::new(link.clone(), tool, name))
        };
        let tools = taken.iter().zip(names).map(tool).collect();
        Ok(Self { link, tools })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.link.name
    }

    /// Its tools, in its own order.
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.clone()
    }

    /// Tells it to end, and waits for that. A tool of it that is called later starts it again.
    pub async fn close(&self) {
        let Some(connection) = self.link.connection.lock().await.take() else { return };
        // A call that is still out keeps it; then it ends with that.
        if let Some(mut connection) = Arc::into_inner(connection) {
            let _ = connection.close_with_timeout(self.link.config.start_timeout).await;
        }
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.tools.iter().map(|tool| &tool.spec().name);
        f.debug_struct("McpServer")
            .field("name", &self.link.name)
            .field("tools", &names.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Link {
    /// The connection as it is, or a new one if it broke.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>, String> {
        let mut connection = self.connection.lock().await;
        if let Some(whole) = connection.as_ref().filter(|it| !it.is_closed() && !it.is_transport_closed()) {
            return Ok(whole.clone());
        }
        *connection = None;
        let new = Arc::new(connect(&self.config).await?);
        *connection = Some(new.clone());
        Ok(new)
    }

    /// Those of the server's tools that the configuration wants, in its order.
    fn taken(&self, listed: Vec<RemoteTool>) -> Result<Vec<RemoteTool>, McpError> {
        let Some(wanted) = &self.config.tools else { return Ok(listed) };
        let find = |name: &String| match listed.iter().find(|tool| tool.name == name.as_str()) {
            Some(tool) => Ok(tool.clone()),
            None => Err(McpError::NoSuchTool {
                server: self.name.clone(),
                tool: name.clone(),
                has: listed.iter().map(|tool| tool.name.to_string()).collect(),
            }),
        };
        wanted.iter().map(find).collect()
    }
}

/// All tools, page by page.
async fn list(connection: &Connection) -> Result<Vec<RemoteTool>, String> {
    let (mut tools, mut cursor) = (Vec::new(), None);
    loop {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let page = connection.list_tools(Some(page)).await.map_err(|error| error.to_string())?;
        tools.extend(page.tools);
        cursor = page.next_cursor;
        match cursor {
            None => return Ok(tools),
            Some(_) if tools.len() > MOST_TOOLS => return Err(format!("it has more than {MOST_TOOLS}")),
            Some(_) => {}
        }
    }
}
