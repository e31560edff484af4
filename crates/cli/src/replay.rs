//! `superstep replay`: a thread once more on what is recorded of it.

use serde_json::json;
use superstep::{CheckpointId, Replay, ReplayError, Replayed, ThreadId};

use crate::{
    args::ReplayArgs,
    exit::{Exit, Failure},
    output::printable,
    place::Place,
    run::{Purpose, Setup},
    show::print,
};

/// The nodes that ask a model, and the one that runs tools.
const ASKING: [&str; 2] = ["agent", "compact"];
const TOOLS: &str = "tools";

/// Replays a thread, and tells what came of it.
pub(crate) async fn replay(args: ReplayArgs) -> Result<Exit, Failure> {
    let ReplayArgs { thread: name, from, to, live_model, live_tools, place, turn } = args;
    let place = Place::new(place)?;
    let thread = ThreadId::from(name.as_str());
    let store = match live_model || live_tools {
        true => place.change(&[&name]).await?,
        false => place.look()?.ok_or_else(|| place.unknown(&name))?,
    };
    if store.load(&thread, None).await?.is_none() {
        return Err(place.unknown(&name));
    }
    let purpose = Purpose::Replay { asks: live_model };
    let setup = Setup::new(&place, store, thread, purpose, &turn).await?;
    let mut replay = Replay::of(setup.agent.graph(), name.as_str());
    if let Some(from) = from {
        replay = replay.from(CheckpointId(from));
    }
    if let Some(to) = to {
        replay = replay.to(CheckpointId(to));
    }
    if live_model {
        replay = replay.live(ASKING);
    }
    if live_tools {
        replay = replay.live([TOOLS]);
    }
    let replayed = replay.run().await;
    setup.close_servers().await;
    let replayed = replayed.map_err(failure)?;
    if turn.json {
        let Replayed { supersteps, taken, skipped, left, fork, divergence, .. } = &replayed;
        let line = json!({
            "thread": name,
            "supersteps": supersteps,
            "taken": taken,
            "skipped": skipped,
            "left": left,
            "fork": fork,
            "divergence": divergence,
        });
        print(&format!("{line}\n"))?;
    } else {
        let fork = replayed.fork.map(|fork| format!("the fork begins at checkpoint {fork}\n"));
        print(&format!("{}\n{}", printable(&replayed.to_string()), fork.unwrap_or_default()))?;
    }
    Ok(if replayed.is_same() { Exit::Ok } else { Exit::Diverged })
}

fn failure(error: ReplayError) -> Failure {
    match error {
        ReplayError::Run(error) => error.into(),
        other => Failure::caused(Exit::Thread, &other),
    }
}
