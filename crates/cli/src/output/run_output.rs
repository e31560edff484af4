//! The output of a run: text for people, or JSON.
//!
//! Start at [`Output`].

mod human;
mod json;

use std::{
    io::{self, Write},
    time::Duration,
};

use anstyle::Style;
use serde::Serialize;
use serde_json::Value;
use superstep::{
    NodeName,
    agent::{AgentOutcome, AgentState, Metadata},
    llm::is_printable,
};

pub(crate) use self::{human::Human, json::Json};
pub(crate) use superstep::llm::{printable, printable_line};

/// Receives the events of a run in order. An error means that stdout cannot be written.
pub(crate) trait Output {
    /// An event of the agent.
    fn event(&mut self, name: &str, data: &Value) -> io::Result<()>;

    /// A new input replaced these unfinished tasks.
    fn discarded(&mut self, nodes: &[NodeName]) -> io::Result<()>;

    /// This number of events was lost, because they arrived faster than they could be written.
    fn lagged(&mut self, skipped: u64) -> io::Result<()>;

    /// A note for the user beside the reply.
    fn note(&mut self, text: &str);

    /// The turn ended.
    fn end(&mut self, end: &End<'_>) -> io::Result<()>;
}

/// The end of a turn.
pub(crate) struct End<'a> {
    pub(crate) thread: &'a str,
    pub(crate) state: &'a AgentState,
    pub(crate) outcome: AgentOutcome,
    /// The duration of this run.
    pub(crate) took: Duration,
}

impl End<'_> {
    /// Returns the summary of the turn, also if it has not ended.
    pub(crate) fn metadata(&self) -> Metadata {
        match self.state.outcome {
            Some(_) => self.state.metadata.clone(),
            None => {
                Metadata { is_interrupted: self.outcome == AgentOutcome::Cancelled, ..self.state.taken() }
            }
        }
    }
}

/// Serializes a value on one line, with every unprintable character as a JSON escape: the meaning is the
/// same, and the line is safe on a terminal.
pub(crate) fn json_line(value: &impl Serialize) -> serde_json::Result<String> {
    let json = serde_json::to_string(value)?;
    let mut line = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        if is_printable(c) {
            line.push(c);
        } else {
            line.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    line.push('\n');
    Ok(line)
}

/// Prints an escaped line on stderr. A closed stderr is not a failure.
pub(crate) fn tell(text: &str) {
    tell_in(Style::new(), text);
}

/// Prints like [`tell`], in a style that only a terminal shows.
fn tell_in(style: Style, text: &str) {
    let _ = writeln!(anstream::stderr(), "{style}{}{style:#}", printable(text));
}

/// Returns the beginning of a text on one line.
pub(crate) fn brief(text: &str, most: usize) -> String {
    let line = printable_line(text.lines().next().unwrap_or_default());
    let cut: String = line.chars().take(most).collect();
    if cut.len() < line.len() || text.lines().nth(1).is_some() { format!("{cut}…") } else { cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_lines_mean_the_same_and_show_what_is_hidden() {
        let hidden = "a\u{1b}\u{9b}2J\u{202e}\u{2028}\u{e0041}\u{200b}é";
        let line = json_line(&hidden).unwrap();
        assert_eq!(line, "\"a\\u001b\\u009b2J\\u202e\\u2028\\udb40\\udc41\\u200bé\"\n");
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), hidden);
    }

    #[test]
    fn a_brief_text_is_one_line() {
        assert_eq!(brief("short", 10), "short");
        assert_eq!(brief("one\ntwo", 10), "one…");
        assert_eq!(brief("0123456789x", 10), "0123456789…");
    }
}
