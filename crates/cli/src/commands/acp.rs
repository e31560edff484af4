//! `superstep acp`: the agent for editors.

use superstep_session::{
    config::settings::Given,
    error::SessionError,
    live::{Mode, Sessions},
};
use tokio_util::sync::CancellationToken;

use crate::{
    acp::agent::Agent,
    args::{command_line::AcpArgs, shared::AGENT},
    output::exit::Exit,
    session::signals,
};

/// Serves an editor on stdin and stdout until it leaves.
pub(crate) async fn acp(args: AcpArgs) -> Result<Exit, SessionError> {
    let AcpArgs { database, agent, no_memory } = args;
    // The mode of a session can be changed, and the flag is its first value.
    let mode = if agent.yes { Mode::Auto } else { Mode::Ask };
    let given = Given { approves_all: false, ..Given::from(agent) };
    let given = if no_memory { given.without_memory() } else { given };
    let sessions = Sessions::new(AGENT, database.db, given);
    let stop = CancellationToken::new();
    let watch = tokio::spawn(signals::watch(stop.clone()));
    let handler = |client| Agent::new(client, sessions, mode);
    superstep_acp::serve(handler, tokio::io::stdin(), tokio::io::stdout(), stop.cancelled()).await;
    watch.abort();
    Ok(Exit::Ok)
}
