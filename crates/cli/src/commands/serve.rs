//! `superstep serve`: the agent, or the graphs of a program of one's own, behind the HTTP API of LangGraph's clients.

use std::{
    env::{self, VarError},
    future::ready,
    net::SocketAddr,
    sync::Arc,
};

use serde::Deserialize;
use superstep::{
    State as _,
    agent::{Agent, AgentState},
    erased::{JsonGraph, of_inputs},
    llm::{Message, Role},
};
use superstep_server::Server;
use superstep_session::{
    config::{defaults::Defaults, settings::Given},
    error::{ErrorKind, SessionError},
    turn::hosted::Hosted,
};
use tokio::net::TcpListener;

use crate::{
    args::{
        command_line::{ListenArgs, ServeArgs},
        own::OwnServeArgs,
        shared::{AGENT, Locate},
    },
    graphs::graph_set::GraphSet,
    output::{exit::Exit, note::print_note},
    session::signals,
};

/// The variable with the key that clients send. Commands of tools do not see variables whose names end with `KEY`.
const KEY: &str = "SUPERSTEP_SERVER_KEY";

/// The name by which clients call the agent.
const GRAPH: &str = "agent";

/// Serves the agent until a signal.
pub(crate) async fn serve(args: ServeArgs) -> Result<Exit, SessionError> {
    let ServeArgs { listen, location, agent } = args;
    let location = location.locate(AGENT)?;
    let door = Door::open(listen).await?;
    let rows = location.open_rows()?;
    let (stop, watch) = signals::watching();
    let defaults = Defaults::load(location.cwd())?;
    defaults.note().iter().for_each(|note| print_note(&note.text));
    let hosted = Hosted::new(location, &Given::from(agent), &defaults, [], false, &stop).await?;
    drop(watch);
    hosted.note.iter().for_each(|note| print_note(note));
    let server = Server::new()
        .graph(GRAPH, graph(&hosted.agent))
        .checkpointer(hosted.store())
        .rows(rows)
        .options(hosted.options())
        .admit(hosted.admit_with_answers());
    let served = door.serve(server, &format!("`{GRAPH}` with model {}", hosted.model())).await;
    hosted.close().await;
    served
}

/// Serves the graphs of a program of one's own until a signal.
pub(crate) async fn own(args: OwnServeArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let OwnServeArgs { listen, database, trust } = args;
    let location = Arc::new(database.locate(&graphs.program)?);
    let door = Door::open(listen).await?;
    let store = location.open_to_work(trust).await?;
    let rows = location.open_rows()?;
    let here = location.clone();
    let server =
        graphs.all().iter().fold(Server::new(), |server, graph| server.graph(graph.name(), graph.clone()));
    let server = server
        .checkpointer(store)
        .rows(rows)
        .defaults(graphs.options.clone())
        // A thread may have been imported meanwhile.
        .admit(move |thread, _| ready(here.check_job(&thread).map_err(|failure| failure.message)));
    let names: Vec<_> = graphs.all().iter().map(|graph| format!("`{}`", graph.name())).collect();
    door.serve(server, &names.join(", ")).await
}

/// An address that listens, and who may come in.
struct Door {
    address: SocketAddr,
    listener: TcpListener,
    key: Option<String>,
    allow_origin: Vec<String>,
    /// Open the studio in the browser.
    open: bool,
    /// The studio is for reading.
    read_only: bool,
}

impl Door {
    /// Listens.
    ///
    /// # Errors
    /// Other machines can reach the address, and there is no key; or the address cannot be used.
    async fn open(args: ListenArgs) -> Result<Self, SessionError> {
        let ListenArgs { host, port, allow_origin, open, read_only } = args;
        let key = key()?;
        if key.is_none() && !host.is_loopback() {
            return Err(SessionError::usage(format!(
                "other machines can reach {host}, so the server needs a key: set `{KEY}` to a long random text, or leave out `--host`"
            )));
        }
        let listener = TcpListener::bind(SocketAddr::new(host, port)).await;
        let listener = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = listener.map_err(|cause| {
            SessionError::usage(format!(
                "cannot listen on {host}, port {port}: {cause}; choose another `--port`"
            ))
        })?;
        Ok(Self { address, listener, key, allow_origin, open, read_only })
    }

    /// Serves until a signal.
    async fn serve(self, server: Server, what: &str) -> Result<Exit, SessionError> {
        let Self { address, listener, key, allow_origin, open, read_only } = self;
        let server = key.into_iter().fold(server, Server::token);
        let server = allow_origin.into_iter().fold(server, Server::allow_origin);
        let server = if read_only { server.read_only_studio() } else { server };
        print_note(&format!("serving {what} on http://{address}; Ctrl-C stops"));
        let studio = format!("http://{address}/studio");
        print_note(&format!("the studio is on {studio}"));
        // The listener accepts already, and answers when it is served.
        if open && let Err(cause) = open::that_detached(&studio) {
            print_note(&format!("no browser can be opened: {cause}"));
        }
        let (stop, watch) = signals::watching();
        let served = server.serve_until(listener, async move { stop.cancelled().await }).await;
        drop(watch);
        served.map_err(|error| SessionError::caused(ErrorKind::Failed, &error))?;
        Ok(Exit::Ok)
    }
}

/// Reads the key that clients send.
fn key() -> Result<Option<String>, SessionError> {
    match env::var(KEY) {
        Ok(key) if key.is_empty() => {
            Err(SessionError::usage(format!("the variable `{KEY}` is empty; unset it for no key")))
        }
        Ok(key) => Ok(Some(key)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            Err(SessionError::usage(format!("the variable `{KEY}` is not Unicode")))
        }
    }
}

/// The input of a turn. A client can write nothing else of the state.
#[derive(Deserialize)]
struct Conversation {
    messages: Vec<Message>,
}

fn graph(agent: &Agent) -> Arc<dyn JsonGraph> {
    of_inputs(agent.graph().clone(), |input: Conversation| {
        // The instructions are those of the configuration.
        let mut messages = input.messages;
        messages.retain(|message| message.role != Role::System);
        AgentState::update().messages(messages).output_schema(None).cwd(None)
    })
}
