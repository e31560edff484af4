//! `superstep replay`: replays a thread from its recorded inputs.

use serde_json::{Value, json};
use superstep::{
    CheckpointId, Checkpointer, History, ThreadId,
    agent::replay::{ReplayTools, ToolDifference},
    checkpoint::Source,
    replay::Replayed,
};

use crate::{
    args::{command_line::ReplayArgs, shared::TurnArgs},
    config::location::Location,
    output::{
        exit::{Exit, Failure},
        table::print,
        text::print_note,
    },
    session::setup::{Purpose, Setup},
};

/// The nodes that call a model, and the one that runs tools.
const ASKING: [&str; 2] = ["agent", "compact"];
const TOOLS: &str = "tools";

/// The key of the configuration in the metadata of an input.
const CONFIG: &str = "config";

/// Replays a thread and reports the result.
pub(crate) async fn replay(args: ReplayArgs) -> Result<Exit, Failure> {
    let ReplayArgs { thread: name, from, to, live_model, live_tools, current_tools, strict, location, turn } =
        args;
    let location = Location::new(location)?;
    let thread = ThreadId::from(name.as_str());
    let store = match live_model || live_tools {
        true => location.change(&[&name]).await?,
        false => location.look()?.ok_or_else(|| location.unknown(&name))?,
    };
    if store.load(&thread, None).await?.is_none() {
        return Err(location.unknown(&name));
    }
    let tools = if current_tools { ReplayTools::Current } else { ReplayTools::Recorded };
    let purpose = Purpose::Replay { asks: live_model, acts: live_model || live_tools, tools };
    let setup = Setup::new(&location, store.clone(), thread.clone(), purpose, &turn).await?;
    let mut replay = setup.agent.graph().thread(name.as_str()).replay();
    if let Some(from) = from {
        replay = replay.from(CheckpointId(from));
    }
    if let Some(to) = to {
        replay = replay.to(CheckpointId(to));
    }
    if live_model {
        // Not every agent has the node `compact`.
        let graph = setup.agent.graph().topology();
        replay = replay.live(ASKING.into_iter().filter(|node| graph.find(node).is_some()));
    }
    if live_tools {
        replay = replay.live([TOOLS]);
    }
    let replayed = replay.run().await;
    setup.close_servers().await;
    let replayed = replayed?;
    let difference = match current_tools || live_model || live_tools || setup.servers.is_empty() {
        true => None,
        false => {
            let recorded = setup.agent.graph().thread(&thread).at(to.map(CheckpointId)).state().await?.values;
            let now: Vec<_> = setup.servers.iter().flat_map(|server| server.tools()).collect();
            ToolDifference::of(&recorded, &now)
        }
    };
    if turn.json {
        let mut line = line_of(&name, &replayed);
        if let Some(difference) = difference {
            line["tools"] = json!(difference);
        }
        print(&format!("{line}\n"))?;
    } else {
        if let Some(difference) = difference {
            print_note(&format!(
                "the replay has the tools of MCP servers that the thread recorded; they are others now: {difference}; \
                 `--current-tools` has those of now"
            ));
        }
        print(&text_of(&replayed))?;
    }
    if let Some(divergence) = &replayed.divergence {
        let TurnArgs { preset, config, mode, max_steps, tools, .. } = &turn;
        let is_as_it_was = preset.is_none() && config.is_none() && mode.is_none() && tools.is_none();
        if let (true, None, Some(since)) =
            (is_as_it_was, max_steps, first_input_since(&*store, &thread, divergence.checkpoint).await?)
        {
            let again = location.command("replay", &[&name, "--from", &since.to_string()]);
            let hint = format!(
                "the turn ran with another configuration than the newest one, which this replay used; \
                 replay the turns since then with: {again}"
            );
            print_note(&hint);
        }
        return Ok(Exit::Diverged);
    }
    if strict && !replayed.is_whole() {
        let message = format!("not all of thread `{name}` was replayed, which `--strict` requires");
        return Err(Failure::new(Exit::Failed, message));
    }
    Ok(Exit::Ok)
}

/// Returns the first input after a checkpoint from which on all turns had the newest configuration; `None` if
/// that applies to the checkpoint itself.
async fn first_input_since(
    store: &dyn Checkpointer,
    thread: &ThreadId,
    at: CheckpointId,
) -> Result<Option<CheckpointId>, Failure> {
    let range = History { source: Some(Source::Input), ..History::default() };
    let inputs = store.history(thread, range).await?;
    let Some(newest) = inputs.first() else { return Ok(None) };
    let alike = inputs.iter().take_while(|input| input.metadata.get(CONFIG) == newest.metadata.get(CONFIG));
    Ok(alike.last().map(|first| first.id).filter(|first| *first > at))
}

/// Returns the line of JSON about a replay.
pub(crate) fn line_of(thread: &str, replayed: &Replayed) -> Value {
    let Replayed { supersteps, taken, skipped, left, fork, divergence, .. } = replayed;
    json!({
        "thread": thread,
        "supersteps": supersteps,
        "taken": taken,
        "skipped": skipped,
        "left": left,
        "fork": fork,
        "divergence": divergence,
    })
}

/// Formats a replay for people.
pub(crate) fn text_of(replayed: &Replayed) -> String {
    let fork = replayed.fork.map(|fork| format!("the fork begins at checkpoint {fork}\n"));
    format!("{replayed}\n{}", fork.unwrap_or_default())
}
