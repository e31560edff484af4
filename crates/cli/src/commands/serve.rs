//! `superstep serve`: the agent, or the graphs of a program of one's own, behind the HTTP API of LangGraph's clients.

use std::{
    env::{self, VarError},
    fs::{self, OpenOptions},
    future::ready,
    io::{self, Write as _},
    net::SocketAddr,
    path::Path,
    sync::Arc,
};

use serde::Deserialize;
use superstep::{
    State as _,
    agent::{Agent, AgentState},
    erased::{JsonGraph, of_inputs},
    llm::{Message, Role},
};
use superstep_server::{Keys, Limits, Server, User};
use superstep_session::{
    config::{defaults::Defaults, place::Db},
    error::{ErrorKind, SessionError},
    turn::hosted::Hosted,
};
use tokio::net::TcpListener;

use crate::{
    args::{
        own::OwnServeArgs,
        serve::{ListenArgs, ServeArgs},
        shared::{AGENT, Locate},
    },
    commands::serve_actions::AgentActions,
    graphs::graph_set::GraphSet,
    output::{exit::Exit, note::print_note, table::written},
    session::signals,
};

/// The variable with the key that clients send. Commands of tools do not see variables whose names end with `KEY`.
const KEY: &str = "SUPERSTEP_SERVER_KEY";

/// The name by which clients call the agent.
const GRAPH: &str = "agent";

/// The channels of the agent that clients see. The others have the system prompt, the rules and the folder of the agent, or are
/// internal.
const SHOWN: [&str; 19] = [
    "current_step",
    "error",
    "estimated_cost",
    "files",
    "final_reply",
    "llm_calls",
    "max_steps",
    "messages",
    "metadata",
    "model",
    "outcome",
    "output",
    "output_problem",
    "parts",
    "started_ms",
    "stop_reason",
    "tools_used",
    "usage",
    "usage_by_model",
];

/// Serves the agent until a signal.
pub(crate) async fn serve(args: ServeArgs) -> Result<Exit, SessionError> {
    let ServeArgs { listen, location, agent } = args;
    if let Some(added) = new_key(&listen)? {
        return Ok(added);
    }
    let location = location.locate(AGENT)?;
    let door = Door::open(listen).await?;
    let rows = location.open_rows()?;
    let given = agent.given(Some(&location.cwd))?;
    let (stop, watch) = signals::watching();
    let defaults = Defaults::load(location.cwd())?;
    defaults.note().iter().for_each(|note| print_note(&note.text));
    let hosted = Hosted::new(location, &given, &defaults, [], false, &stop).await?;
    drop(watch);
    hosted.notes.iter().for_each(|note| print_note(note));
    let agent = graph(&hosted.agent);
    let names = agent.channels().iter().map(|channel| channel.name.to_string());
    let hidden: Vec<_> = names.filter(|name| !SHOWN.contains(&&**name)).collect();
    let server = Server::new()
        .graph(GRAPH, agent)
        .hide(GRAPH, hidden)
        .checkpointer(hosted.store())
        .rows(rows)
        .thread_actions(GRAPH, AgentActions { location: hosted.location(), store: hosted.store() })
        .options(hosted.options())
        .admit(hosted.admit_with_answers());
    let server = with_crons(server, hosted.location().db());
    let served = door.serve(server, &format!("`{GRAPH}` with model {}", hosted.model())).await;
    hosted.close().await;
    served
}

/// Serves the graphs of a program of one's own until a signal.
pub(crate) async fn own(args: OwnServeArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let OwnServeArgs { listen, database, trust } = args;
    if let Some(added) = new_key(&listen)? {
        return Ok(added);
    }
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
    let server = with_crons(server, location.db());
    let names: Vec<_> = graphs.all().iter().map(|graph| format!("`{}`", graph.name())).collect();
    door.serve(server, &names.join(", ")).await
}

/// Lets clients create crons on PostgreSQL, where schedules are stored as well.
#[cfg(feature = "postgres")]
fn with_crons(server: Server, db: &Db) -> Server {
    if matches!(db, Db::Server(_)) { server.crons() } else { server }
}

/// Leaves crons refused, as this build has no schedules.
#[cfg(not(feature = "postgres"))]
fn with_crons(server: Server, _: &Db) -> Server {
    server
}

/// An address that listens, and who may come in.
struct Door {
    address: SocketAddr,
    listener: TcpListener,
    key: Option<String>,
    keys: Option<Keys>,
    args: ListenArgs,
}

impl Door {
    /// Listens.
    ///
    /// # Errors
    /// Other machines can reach the address, and there is no key; or the address cannot be used.
    async fn open(args: ListenArgs) -> Result<Self, SessionError> {
        let ListenArgs { host, port, .. } = args;
        let key = key()?;
        let keys = args.keys.as_deref().map(read_keys).transpose()?;
        if key.is_none() && keys.is_none() && !host.is_loopback() {
            return Err(SessionError::usage(format!(
                "other machines can reach {host}, so the server needs a key: set `{KEY}` to a long random text, name a file of keys with `--keys`, or leave out `--host`"
            )));
        }
        let listener = TcpListener::bind(SocketAddr::new(host, port)).await;
        let listener = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = listener.map_err(|cause| {
            SessionError::usage(format!(
                "cannot listen on {host}, port {port}: {cause}; choose another `--port`"
            ))
        })?;
        Ok(Self { address, listener, key, keys, args })
    }

    /// Serves until a signal.
    async fn serve(self, server: Server, what: &str) -> Result<Exit, SessionError> {
        let Self { address, listener, key, keys, args } = self;
        let open = args.open;
        let server = server.limits(Limits { rate: args.rate, ..Limits::default() });
        let server = key.into_iter().fold(server, Server::token);
        let server = keys.into_iter().fold(server, Server::authenticate);
        let server = args.allow_origin.into_iter().fold(server, Server::allow_origin);
        let server = if args.read_only { server.read_only() } else { server };
        let server = if args.metrics_open { server.open_metrics() } else { server };
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

/// Reads the keys of users.
fn read_keys(path: &Path) -> Result<Keys, SessionError> {
    let shown = path.display();
    let text = fs::read_to_string(path).map_err(|cause| {
        SessionError::usage(format!(
            "cannot read the keys in {shown}: {cause}; `--new-key USER` makes the first one"
        ))
    })?;
    Keys::parse(&text).map_err(|error| SessionError::usage(format!("{shown}: {error}")))
}

/// Adds a key to the file of keys, if the command line says so, and prints it.
fn new_key(args: &ListenArgs) -> Result<Option<Exit>, SessionError> {
    let (Some(path), Some(id)) = (&args.keys, &args.new_key) else { return Ok(None) };
    let role = superstep_server::Role::named(&args.role).unwrap_or_default();
    let key = Keys::generate();
    let line = Keys::line(&User::new(id).role(role), &key)
        .map_err(|error| SessionError::usage(format!("`{id}` is not valid as a user: {}", error.reason)))?;
    let file = OpenOptions::new().create(true).append(true).open(path);
    let added = file.and_then(|mut file| writeln!(file, "{line}"));
    let shown = path.display();
    added.map_err(|cause| SessionError::usage(format!("cannot add a key to {shown}: {cause}")))?;
    print_note(&format!("the key of `{id}`, of which {shown} has the hash; it is not shown again"));
    let mut out = io::stdout();
    written(writeln!(out, "{key}").and_then(|()| out.flush())).map(Some)
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
