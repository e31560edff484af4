//! A run of a graph of one's own, as it is shown.
//!
//! Start at [`OwnRun`].

use std::io::{self, Write};

use futures::StreamExt as _;
use serde_json::{Map, Value, json};
use superstep::{
    CheckpointId, Interrupt, RunError, StreamMode, Streaming, ThreadId,
    erased::{JsonOutcome, JsonRun, JsonStream, JsonThread},
};
use superstep_session::{
    config::location::{Location, own_database::Trusted},
    error::{ErrorKind, SessionError},
    text::{brief, count, json_line, json_pretty, printable_line},
};
use tokio_util::sync::CancellationToken;

use crate::{
    graphs::input::unfit,
    output::{
        exit::{self, Exit},
        note::print_note,
        table::print,
    },
    session::signals,
};

/// Maximum number of characters of a value in a line.
const MAX_SHOWN: usize = 100;

/// A run of a thread, and the form of its output.
pub(crate) struct OwnRun<'a> {
    pub(crate) location: &'a Location,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) graph: &'a str,
    pub(crate) thread: &'a ThreadId,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) opened: &'a dyn JsonThread,
}

impl OwnRun<'_> {
    /// Shows a run to its end. `is_fresh` announces the name of a new thread; once the run has begun, what it trusts is stored.
    pub(crate) async fn follow(
        &self,
        run: JsonRun,
        is_fresh: bool,
        trusted: &Trusted,
    ) -> Result<Exit, SessionError> {
        let modes = [StreamMode::Updates, StreamMode::Custom, StreamMode::Messages, StreamMode::Checkpoints];
        let run = self.opened.stream(run, Streaming::from(modes).subgraphs());
        let mut run: Box<dyn JsonStream> = run.map_err(|error| unfit("input", &error))?;
        let watch = tokio::spawn(signals::watch(self.cancel.clone()));
        let (mut written, mut announces_thread) = (Ok(()), is_fresh);
        while let Some(event) = run.next().await {
            self.begins_run(trusted);
            if std::mem::take(&mut announces_thread) {
                // From here on the run can be resumed if the program is killed.
                self.note(&format!("thread {}", self.thread));
            }
            let event = event.map_err(|error| SessionError::caused(ErrorKind::Failed, &error))?;
            if written.is_ok() {
                written = self.event(&event);
                if written.is_err() {
                    self.cancel.cancel();
                }
            }
        }
        let end = run.outcome().await;
        watch.abort();
        match end {
            Ok(end) => {
                self.begins_run(trusted);
                self.conclude(end, written)
            }
            Err(error) => Err(self.failed(error).await),
        }
    }

    /// Stores what the run trusts, because it was not refused.
    fn begins_run(&self, trusted: &Trusted) {
        if let Err(failure) = trusted.begins_run() {
            print_note(&failure.message);
        }
    }

    fn note(&self, text: &str) {
        if !self.quiet {
            print_note(text);
        }
    }

    fn event(&self, event: &Value) -> io::Result<()> {
        if self.json {
            return write_line(event);
        }
        let (data, node) = (&event["data"], event["data"]["node"].as_str().unwrap_or_default());
        let node = printable_line(node);
        match event["event"].as_str() {
            Some("update") => {
                let channels = data["update"].as_object().map(written_channels).unwrap_or_default();
                let wrote = if channels.is_empty() { "nothing" } else { &channels };
                let cached = if data["cached"] == true { " (cached)" } else { "" };
                self.note(&format!("superstep {}  {node}: {wrote}{cached}", data["step"]));
            }
            Some("custom") => {
                let name = printable_line(data["name"].as_str().unwrap_or_default());
                self.note(&format!("  {node}: {name} {}", brief(&data["data"].to_string(), MAX_SHOWN)));
            }
            Some("discarded") => {
                let nodes = data["nodes"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let nodes: Vec<_> = nodes.map(printable_line).collect();
                self.note(&format!("discarded pending nodes: {}", nodes.join(", ")));
            }
            Some("lagged") => {
                self.note(&format!("lost {}", count(data["skipped"].as_u64().unwrap_or_default(), "event")));
            }
            _ => {}
        }
        Ok(())
    }

    /// Shows the end, and returns the exit code.
    fn conclude(&self, end: JsonOutcome, written: io::Result<()>) -> Result<Exit, SessionError> {
        let Self { location, json, graph, thread, .. } = *self;
        let (values, status) = (end.state.values()?, end.status.as_str());
        let JsonOutcome { checkpoint, interrupts, .. } = end;
        OwnEnd { location, json, graph, thread, status, checkpoint, values, interrupts }.show(written)
    }

    /// Converts the error of a run, with the command that resumes it, if possible.
    async fn failed(&self, error: RunError) -> SessionError {
        let (thread, resume) = (self.thread, self.location.command("resume", &[self.thread.as_str()]));
        let head = self.opened.state().await;
        if let RunError::Unfinished { next, .. } = error {
            let next: Vec<_> =
                next.iter().map(|node| format!("`{}`", printable_line(node.as_str()))).collect();
            let asked: Vec<_> = head.iter().flat_map(|head| head.interrupts()).cloned().collect();
            let message = match &asked[..] {
                [] => format!(
                    "thread `{thread}` is not finished, {} still to run; resume it with: {resume}",
                    next.join(", ")
                ),
                asked => format!(
                    "thread `{thread}` is not finished:\n{}",
                    questions(self.location, self.thread, asked)
                ),
            };
            return SessionError::new(ErrorKind::Thread, format!("{message}\nor drop that with `--discard`"));
        }
        let SessionError { kind, mut message } = SessionError::from(error);
        if matches!(kind, ErrorKind::Failed | ErrorKind::Invalid)
            && head.is_ok_and(|head| !head.next.is_empty())
        {
            message.push_str(&format!("\nresume with: {resume}"));
        }
        SessionError { kind, message }
    }
}

/// The end of a run.
pub(crate) struct OwnEnd<'a> {
    pub(crate) location: &'a Location,
    pub(crate) json: bool,
    pub(crate) graph: &'a str,
    pub(crate) thread: &'a ThreadId,
    pub(crate) status: &'a str,
    pub(crate) checkpoint: Option<CheckpointId>,
    pub(crate) values: Map<String, Value>,
    pub(crate) interrupts: Vec<Interrupt>,
}

impl OwnEnd<'_> {
    /// Shows it, unless its events could not be written, and returns the exit code.
    pub(crate) fn show(&self, written: io::Result<()>) -> Result<Exit, SessionError> {
        let written = match (written, self.json) {
            (Ok(()), true) => write_line(&json!({
                "event": "final",
                "data": {
                    "thread": self.thread,
                    "graph": self.graph,
                    "checkpoint": self.checkpoint,
                    "status": self.status,
                    "values": self.values,
                    "interrupts": self.interrupts,
                },
            })),
            (Ok(()), false) => {
                print(&format!("{}\n", pretty(&self.values)))?;
                Ok(())
            }
            (failed, _) => failed,
        };
        let resume = self.location.command("resume", &[self.thread.as_str()]);
        if let Some(failure) = written.as_ref().err().and_then(exit::unwritten) {
            return Err(failure);
        }
        match self.status {
            "completed" if written.is_err() => Ok(Exit::Interrupted),
            "completed" => Ok(Exit::Ok),
            "interrupted" if !self.interrupts.is_empty() => {
                print_note(&questions(self.location, self.thread, &self.interrupts));
                Ok(Exit::Waiting)
            }
            "interrupted" => {
                print_note(&format!("stopped at a breakpoint; resume with: {resume}"));
                Ok(Exit::Waiting)
            }
            _ => {
                print_note(&format!("{}; resume with: {resume}", stopped(self.status)));
                Ok(Exit::Interrupted)
            }
        }
    }
}

/// Returns the word for the status of a run that was stopped by a node, or by the user.
fn stopped(status: &str) -> &str {
    match status {
        "drained" => status,
        _ => "interrupted",
    }
}

/// Formats questions, and the commands that answer them.
pub(crate) fn questions(location: &Location, thread: &ThreadId, interrupts: &[Interrupt]) -> String {
    let mut lines = Vec::new();
    for Interrupt { id, node, key, question, schema } in interrupts {
        let is_unique = interrupts.iter().filter(|other| other.key == *key).count() == 1;
        let name = if is_unique { key } else { id };
        lines.push(format!(
            "node `{}` waits for an answer to `{}`:\n  {}",
            printable_line(node.as_str()),
            printable_line(name),
            question_text(question).replace('\n', "\n  ")
        ));
        if let Some(schema) = schema {
            lines.push(format!("  the answer matches {}", brief(&schema.to_string(), 4 * MAX_SHOWN)));
        }
        let answer = location.command("answer", &[thread.as_str(), name]);
        lines.push(format!("answer with: {answer} JSON"));
    }
    lines.join("\n")
}

fn written_channels(update: &Map<String, Value>) -> String {
    let channels = update
        .iter()
        .map(|(name, value)| format!("{} = {}", printable_line(name), brief(&value.to_string(), MAX_SHOWN)));
    channels.collect::<Vec<_>>().join(", ")
}

/// Formats a question: a text as it is, everything else as JSON.
pub(crate) fn question_text(question: &Value) -> String {
    match question {
        Value::String(text) => text.clone(),
        other => pretty(other),
    }
}

/// Formats JSON with indentation.
pub(crate) fn pretty(value: &impl serde::Serialize) -> String {
    json_pretty(value).expect("a JSON value can be written")
}

fn write_line(value: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(json_line(value)?.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use superstep::Status;

    use super::*;

    #[test]
    fn a_run_that_a_node_drained_was_not_interrupted() {
        let shown = |status: Status| stopped(status.as_str());
        assert_eq!((shown(Status::Drained), shown(Status::Cancelled)), ("drained", "interrupted"));
    }
}
