//! What a run shows: for people, or as JSON.
//!
//! Start at [`Output`].

mod human;
mod json;

use std::{io, time::Duration};

use serde_json::Value;
use superstep::{
    NodeName,
    agent::{AgentOutcome, AgentState, Metadata},
};

pub(crate) use self::{human::Human, json::Json};

/// Takes what happens in a run, in order. An error means that stdout cannot be written.
pub(crate) trait Output {
    /// An event of the agent.
    fn event(&mut self, name: &str, data: &Value) -> io::Result<()>;

    /// A new input took the place of these unfinished tasks.
    fn discarded(&mut self, nodes: &[NodeName]) -> io::Result<()>;

    /// So many events came faster than they could be written, and are lost.
    fn lagged(&mut self, skipped: u64) -> io::Result<()>;

    /// Something the user should know that is not part of the answer.
    fn note(&mut self, text: &str);

    /// The turn is over.
    fn end(&mut self, end: &End<'_>) -> io::Result<()>;
}

/// How a turn ended.
pub(crate) struct End<'a> {
    pub(crate) thread: &'a str,
    pub(crate) state: &'a AgentState,
    pub(crate) outcome: AgentOutcome,
    /// How long this run of it took.
    pub(crate) took: Duration,
}

impl End<'_> {
    /// What the turn took, also if it has not ended.
    pub(crate) fn metadata(&self) -> Metadata {
        match self.state.outcome {
            Some(_) => self.state.metadata.clone(),
            None => {
                Metadata { is_interrupted: self.outcome == AgentOutcome::Cancelled, ..self.state.taken() }
            }
        }
    }
}

/// Text that a terminal only shows: control characters of models, tools and files are written out, so that they cannot
/// move the cursor or worse.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && !['\n', '\t'].contains(&c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// The beginning of a text, on one line.
pub(crate) fn brief(text: &str, most: usize) -> String {
    let line = printable(text.lines().next().unwrap_or_default());
    let cut: String = line.chars().take(most).collect();
    if cut.len() < line.len() || text.lines().nth(1).is_some() { format!("{cut}…") } else { cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_written_out() {
        assert_eq!(printable("a\u{1b}[2Jb\r\n\tc"), "a\\u{1b}[2Jb\\r\n\tc");
    }

    #[test]
    fn a_brief_text_is_one_line() {
        assert_eq!(brief("short", 10), "short");
        assert_eq!(brief("one\ntwo", 10), "one…");
        assert_eq!(brief("0123456789x", 10), "0123456789…");
    }
}
