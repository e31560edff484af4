//! `superstep replay`: replays threads from their recorded inputs.
//!
//! ```text
//! replay THREAD ─▶ Turns, each with its configuration ─▶ report
//! replay --all  ─▶ cases of a database or of files ────▶ report
//! replay --review ─▶ cases of files ─▶ decision ─▶ a new case
//! ```

pub(crate) mod all;
pub(crate) mod review;

use std::sync::Arc;

use futures::FutureExt;
use superstep::{CheckpointId, ThreadId, agent::replay::ToolDifference, replay::Replayed};

use self::{
    all::{Cases, Replayer},
    review::review,
};
use superstep_session::{
    config::{location::Location, names::thread_name},
    error::{ErrorKind, SessionError},
    turn::{mcp, stored_graph::graph},
};

use crate::{
    args::{
        command_line::ReplayArgs,
        shared::{AGENT, DatabaseArgs, Locate, ReplayedArgs, TurnArgs},
    },
    inspect::{
        report::{accepting, line_of, text_of},
        turns::Turns,
    },
    output::{
        exit::Exit,
        note::{print_new, print_note},
        table::{lines, print},
    },
};

/// Replays one thread or many, and reports the results. MCP servers are connected once, and closed at the end.
pub(crate) async fn replay(args: ReplayArgs) -> Result<Exit, SessionError> {
    let servers = Arc::new(mcp::Pool::default());
    let replayed = replay_with(args, servers.clone()).await;
    servers.close().await;
    replayed
}

async fn replay_with(args: ReplayArgs, servers: Arc<mcp::Pool>) -> Result<Exit, SessionError> {
    let ReplayArgs { cases, live_model, live_tools, current_tools, database, agent, no_memory } = args;
    let ReplayedArgs { target, all, review: reviews, accept, from, to, strict } = cases;
    let DatabaseArgs { location, json } = database;
    let location = Arc::new(location.locate(AGENT)?);
    let given = TurnArgs { agent, no_memory, ..TurnArgs::default() }.given(&location.cwd)?;
    let (from, to) = (from.map(CheckpointId), to.map(CheckpointId));
    let turns = &Turns {
        location: &location,
        given: &given,
        from,
        to,
        live_model,
        live_tools,
        current_tools,
        servers,
        show: &|notes| print_new(notes, false),
    };
    if all || reviews || accept {
        let graph = graph()?;
        let is_own = |name: &str| name == graph.name();
        let replay = |store, thread: ThreadId| {
            async move { turns.run(store, &thread).await.map(|(replayed, _)| replayed) }.boxed_local()
        };
        let rerecord = |store, thread: ThreadId, target| {
            async move { turns.rerecord(store, &thread, target).await }.boxed_local()
        };
        let how = &accepting(&location, target.as_deref(), "THREAD");
        let replayer =
            Replayer { is_own: &is_own, replay: &replay, rerecord: &rerecord, accept: how, json, strict };
        return if all {
            Cases::of(&location, target.as_deref())?.replay(&replayer).await
        } else {
            review(&location, target.as_deref(), accept, &replayer).await
        };
    }
    let name = named(target)?;
    let thread = ThreadId::from(name.as_str());
    let is_live = live_model || live_tools;
    let store = if is_live { location.change(&[&name]).await? } else { location.existing(&name)? };
    if store.load(&thread, None).await?.is_none() {
        return Err(location.unknown(&name));
    }
    let (replayed, tools) = turns.run(store, &thread).await?;
    show(&location, &name, &replayed, tools, json)?;
    ended(&name, &replayed, strict)
}

/// Returns the thread that the command line names.
pub(crate) fn named(target: Option<String>) -> Result<String, SessionError> {
    let name = target.ok_or_else(|| SessionError::usage("name a thread, or replay all with `--all`"))?;
    thread_name(&name).map_err(SessionError::usage)
}

fn show(
    location: &Location,
    name: &str,
    replayed: &Replayed,
    tools: Option<ToolDifference>,
    json: bool,
) -> Result<Exit, SessionError> {
    if json {
        let mut line = line_of(name, replayed);
        if let Some(tools) = tools {
            line["tools"] = serde_json::json!(tools);
        }
        return print(&lines([line]));
    }
    if let Some(tools) = tools {
        print_note(&format!(
            "the replay uses the recorded tools of MCP servers, which differ from the current ones: {tools}; \
             `--current-tools` uses the current ones"
        ));
    }
    print(&text_of(replayed, &accepting(location, None, name)))
}

pub(crate) fn ended(name: &str, replayed: &Replayed, strict: bool) -> Result<Exit, SessionError> {
    if replayed.divergence.is_some() {
        return Ok(Exit::Diverged);
    }
    if strict && !replayed.is_whole() {
        let message = format!("not all of thread `{name}` was replayed, which `--strict` requires");
        return Err(SessionError::new(ErrorKind::Failed, message));
    }
    Ok(Exit::Ok)
}
