//! `superstep acp`: the agent for editors.

use superstep_acp::wire::Implementation;
use superstep_session::{
    config::settings::Given,
    error::SessionError,
    live::{Mode, Sessions},
};
use tokio_util::sync::CancellationToken;

use crate::{
    acp::agent::Agent,
    args::{command_line::AcpArgs, own::OwnAcpArgs, shared::AGENT},
    commands::own::agent::OwnProgram,
    output::exit::Exit,
    session::signals,
};

/// Serves an editor on stdin and stdout until it leaves.
pub(crate) async fn acp(args: AcpArgs) -> Result<Exit, SessionError> {
    let AcpArgs { database, agent, no_memory } = args;
    // The mode of a session can be changed, and the flag is its first value.
    let mode = if agent.yes { Mode::Auto } else { Mode::Ask };
    let given = Given { approves_all: false, ..agent.given(None)? };
    let given = if no_memory { given.without_memory() } else { given };
    let version = env!("CARGO_PKG_VERSION");
    serve(AGENT, version, Sessions::new(AGENT, database.db, given), mode).await
}

/// Serves the agent of a program of one's own.
pub(crate) async fn own(args: OwnAcpArgs, agent: OwnProgram) -> Result<Exit, SessionError> {
    let OwnAcpArgs { database, yes } = args;
    let mode = if yes { Mode::Auto } else { Mode::Ask };
    serve(&agent.name, &agent.version, agent.sessions(database.db), mode).await
}

async fn serve(name: &str, version: &str, sessions: Sessions, mode: Mode) -> Result<Exit, SessionError> {
    let name = name.to_owned();
    let info = Implementation { title: Some(name.clone()), name, version: version.to_owned() };
    let stop = CancellationToken::new();
    let watch = tokio::spawn(signals::watch(stop.clone()));
    let handler = |client| Agent::new(client, sessions, info, mode);
    superstep_acp::serve(handler, tokio::io::stdin(), tokio::io::stdout(), stop.cancelled()).await;
    watch.abort();
    Ok(Exit::Ok)
}
