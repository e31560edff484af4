//! The results of replays, for people and as JSON.

use serde_json::{Value, json};
use superstep::replay::Replayed;

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
