//! The results of replays, for people and as JSON.

use serde_json::{Value, json};
use superstep::{checkpoint::text::FILE_END, replay::Replayed};
use superstep_session::config::location::Location;

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

/// Formats a replay for people. `accept` is how to accept a divergence.
pub(crate) fn text_of(replayed: &Replayed, accept: &str) -> String {
    let fork = replayed.fork.map(|fork| format!("the fork begins at checkpoint {fork}\n"));
    let accept = replayed.divergence.as_ref().map(|_| format!("{accept}\n"));
    format!("{replayed}\n{}{}", fork.unwrap_or_default(), accept.unwrap_or_default())
}

/// Returns how to accept an intended divergence: of a text in this folder or file, or else of a thread of the database.
pub(crate) fn accepting(location: &Location, path: Option<&str>, thread: &str) -> String {
    let accept = |file: &str| location.command("replay --accept", &[file]);
    match path {
        Some(path) => format!("if the change is intended, accept it with `{}`", accept(path)),
        None => {
            let file = format!("{thread}{FILE_END}");
            let export = location.command("export", &[thread]);
            format!(
                "if the change is intended, export the thread and accept it there: `{export} > {file}`, then `{}`",
                accept(&file)
            )
        }
    }
}
