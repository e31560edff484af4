//! The run loop: events, approvals, and the next command.

use std::io::{self, IsTerminal};

use futures::StreamExt;
use superstep::{
    Event, RunError, RunStream, Status,
    agent::{AgentOutcome, AgentState},
    node::NodeName,
};
use superstep_session::{
    config::{location::Location, notes},
    error::{ErrorKind, SessionError},
    text::{indented, printable_line},
    turn::{
        dreams, mcp,
        setup::{Setup, streaming},
        waiting::Waiting,
    },
};
use tokio::time::Instant;

use crate::{
    output::{
        exit::{self, Exit},
        human::Human,
        json::Json,
        note::{print_new, print_note},
        run_output::{End, Output},
    },
    session::{approve::Approve, signals},
};

pub(crate) struct AgentRun {
    pub(crate) setup: Setup,
    pub(crate) json: bool,
    /// Prints only the reply and errors.
    pub(crate) quiet: bool,
    /// The user has not seen the thread's name yet.
    pub(crate) is_fresh: bool,
}

impl AgentRun {
    pub(crate) fn output(&self) -> Box<dyn Output> {
        let out = io::stdout();
        if self.json {
            Box::new(Json::new(out))
        } else {
            let on_terminal = out.is_terminal();
            Box::new(Human::new(out, on_terminal, self.quiet))
        }
    }

    /// Shows the run to its end, and requests decisions in between.
    pub(crate) async fn follow(&self, mut stream: RunStream<AgentState>) -> Result<Exit, SessionError> {
        let began = Instant::now();
        let mut output = self.output();
        let note = self.setup.choice.note.as_deref();
        if !self.quiet
            && notes::is_new(&["model"], note)
            && let Some(note) = note
        {
            output.note(note);
        }
        let watch = tokio::spawn(signals::watch(self.setup.cancel.clone()));
        let mut announces_thread = self.is_fresh;
        let (outcome, waiting, written) = loop {
            let written = self.show_events(&mut stream, &mut *output, &mut announces_thread).await;
            let outcome = match stream.outcome().await {
                Ok(outcome) => {
                    self.begins_run();
                    outcome
                }
                Err(error) => return Err(self.refused(error).await),
            };
            let waiting = Waiting::of(&outcome.interrupts)?;
            print_new(self.setup.decided.take_notes(), false);
            if waiting.is_empty() || written.is_err() {
                break (outcome, waiting, written);
            }
            match Approve::new(self.json).decide(&waiting, &self.setup.cancel).await {
                None => break (outcome, waiting, written),
                Some(answers) => {
                    let options = self.setup.answering(&waiting, answers)?;
                    stream =
                        self.setup.agent.configured(options).resume_point().await?.resume_stream(streaming());
                }
            }
        };
        watch.abort();
        let end = match outcome.status {
            Status::Completed => outcome.state.outcome.unwrap_or(AgentOutcome::Completed),
            _ if self.setup.cancel.is_cancelled() || waiting.is_empty() => AgentOutcome::Cancelled,
            _ => AgentOutcome::AwaitingApproval,
        };
        let took = began.elapsed();
        let shown = End { thread: self.setup.thread.as_str(), state: &outcome.state, outcome: end, took };
        for (server, said) in
            self.setup.servers.iter().flat_map(|it| it.logged().into_iter().map(|said| (it.name(), said)))
        {
            output.note(&indented(&format!("MCP server `{server}`: {}", said.trim_end())));
        }
        let written = written.and_then(|()| output.end(&shown));
        self.conclude(&mut *output, &shown, &waiting, written)
    }

    /// Records the end of the thread, dreams if the turn is done and a dream is due, then shuts down the servers.
    pub(crate) async fn close(&self, exit: Result<Exit, SessionError>) -> Result<Exit, SessionError> {
        let Setup { location, thread, store, .. } = &self.setup;
        location.anchor(&**store, thread, &exit).await;
        if let Ok(Exit::Ok) = exit {
            let watch = tokio::spawn(signals::watch(self.setup.cancel.clone()));
            if let Some(text) = dreams::after_turn(&self.setup).await {
                self.output().note(&text);
            }
            watch.abort();
        }
        mcp::close(&self.setup.servers).await;
        exit
    }

    /// Stores the user's decisions, because the run was not refused.
    fn begins_run(&self) {
        if let Err(failure) = self.setup.decided.begins_run() {
            print_note(&failure.message);
        }
    }

    /// Shows the events of a run. Once stdout is closed the run is cancelled, and further events are dropped.
    async fn show_events(
        &self,
        stream: &mut RunStream<AgentState>,
        output: &mut dyn Output,
        announces_thread: &mut bool,
    ) -> io::Result<()> {
        let mut written = Ok(());
        while let Some(event) = stream.next().await {
            self.begins_run();
            if std::mem::take(announces_thread) {
                // From here on the turn can be resumed if the program is killed.
                output.note(&format!("thread {}", self.setup.thread));
            }
            if written.is_ok() {
                written = match &event {
                    Event::Custom { name, data, .. } => output.event(name, data),
                    Event::Discarded { nodes } => output.discarded(nodes),
                    Event::Lagged { skipped } => output.lagged(*skipped),
                    _ => Ok(()),
                };
                if written.is_err() {
                    self.setup.cancel.cancel();
                }
            }
        }
        written
    }

    /// Prints the next command and returns the exit code.
    fn conclude(
        &self,
        output: &mut dyn Output,
        end: &End<'_>,
        waiting: &[Waiting],
        written: io::Result<()>,
    ) -> Result<Exit, SessionError> {
        let resume = format!("resume with: {}", self.command("resume", &[self.setup.thread.as_str()]));
        // Some messages are printed even with `--quiet`.
        match (end.outcome, &written) {
            (AgentOutcome::LlmError, Ok(())) => {
                let error = &end.state.error;
                let error = error.as_ref().map_or("no reason was stored", |error| error.message.as_str());
                let error = indented(error);
                return Err(SessionError::new(
                    ErrorKind::Model,
                    format!("the model call failed: {error}\n{resume}"),
                ));
            }
            (AgentOutcome::HookFailed, Ok(())) => {
                let error = end.state.hook_error.as_ref();
                let error =
                    error.map_or_else(|| "a hook failed".to_owned(), |error| indented(&error.to_string()));
                return Err(SessionError::new(ErrorKind::Failed, format!("{error}\n{resume}")));
            }
            (AgentOutcome::Cancelled | AgentOutcome::LlmError, _) => {
                print_note(&format!("interrupted; {resume}"))
            }
            (AgentOutcome::AwaitingApproval, _) => {
                let flags = &self.setup.choice.repeated_flags;
                print_note(&waits(&self.setup.location, self.setup.thread.as_str(), waiting, flags));
            }
            (outcome, Ok(())) => {
                let more = self.command("run", &["--thread", self.setup.thread.as_str()]);
                if self.setup.has_schema && end.state.output.is_none() {
                    let problem = match outcome {
                        AgentOutcome::InvalidOutput => {
                            format!("the reply does not fit its schema: {}", end.state.output_problem)
                        }
                        other => format!(
                            "the turn ended without a reply that fits its schema ({})",
                            other.as_str()
                        ),
                    };
                    return Err(SessionError::new(
                        ErrorKind::Failed,
                        format!("{problem}\nask again with: {more} \"...\""),
                    ));
                }
                match outcome {
                    AgentOutcome::Refused => output.note("the model refused to answer"),
                    AgentOutcome::ContentFilter => {
                        output.note("the provider's content filter withheld the answer, or the rest of it");
                    }
                    _ => {}
                }
                output.note(&format!("ask more with: {more} \"...\""));
            }
            (_, Err(_)) => {}
        }
        if let Some(failure) = written.err().and_then(|error| exit::unwritten(&error)) {
            return Err(failure);
        }
        Ok(match end.outcome {
            AgentOutcome::Cancelled => Exit::Interrupted,
            AgentOutcome::AwaitingApproval => Exit::Waiting,
            // As configured, this is not an end with an answer.
            AgentOutcome::ToolFailed | AgentOutcome::HookFailed => Exit::Failed,
            _ => Exit::Ok,
        })
    }

    /// Formats a command on this thread, with the flags that are not stored.
    fn command(&self, command: &str, words: &[&str]) -> String {
        let mut words = words.to_vec();
        words.extend(self.setup.choice.repeated_flags.iter().map(String::as_str));
        self.setup.location.command(command, &words)
    }

    /// Converts the error of a run, with the command that resumes it, if possible.
    async fn refused(&self, error: RunError) -> SessionError {
        let thread = self.setup.thread.as_str();
        let resume = self.command("resume", &[thread]);
        let head = self.setup.agent.graph().thread(&self.setup.thread).state().await;
        if let RunError::Unfinished { next, .. } = error {
            let asked = head.iter().flat_map(|head| &head.tasks).flat_map(|task| &task.interrupts);
            let message = match Waiting::of(asked) {
                Ok(waiting) if !waiting.is_empty() => {
                    // The stored question is not the tool's own text, which `resume` shows.
                    let calls = waiting.iter().map(|call| {
                        let (id, tool) = (printable_line(&call.id), printable_line(&call.request.tool));
                        format!("call `{id}` of {tool}")
                    });
                    let calls = calls.collect::<Vec<_>>().join(", ");
                    format!("thread `{thread}` waits for a decision about {calls}; decide with: {resume}")
                }
                _ => {
                    let shown = |node: &NodeName| format!("`{}`", printable_line(node.as_str()));
                    let next = next.iter().map(shown).collect::<Vec<_>>().join(", ");
                    format!(
                        "thread `{thread}` is not finished, {next} still to run; resume it with: {resume}"
                    )
                }
            };
            return SessionError::new(ErrorKind::Thread, format!("{message}\nor drop that with `--discard`"));
        }
        let SessionError { kind, mut message } = SessionError::from(error);
        if kind != ErrorKind::Thread && head.is_ok_and(|head| !head.next.is_empty()) {
            message.push_str(&format!("\nresume with: {resume}"));
        }
        SessionError { kind, message }
    }
}

/// Formats the waiting calls and the commands that decide them.
pub(crate) fn waits(location: &Location, thread: &str, waiting: &[Waiting], flags: &[String]) -> String {
    let resume = |words: &[&str]| {
        let flags = flags.iter().map(String::as_str);
        location.command(
            "resume",
            &[thread].into_iter().chain(words.iter().copied()).chain(flags).collect::<Vec<_>>(),
        )
    };
    let mut text = String::new();
    for call in waiting {
        let (id, tool) = (printable_line(&call.id), printable_line(&call.request.tool));
        let question = call.question().replace('\n', "\n    ");
        let waits = if call.request.form.is_some() { "asks" } else { "waits" };
        text.push_str(&format!("call `{id}` of {tool} {waits}:\n    {question}\n"));
        if let Some(hidden) = call.hidden() {
            let state = location.command("state", &[thread]);
            text.push_str(&format!("    [{hidden}; see all of it with: {state}]\n"));
        }
    }
    let approve = resume(&["--approve"]);
    if waiting.iter().all(|call| call.request.form.is_some()) {
        let example = waiting.first().map_or_else(String::new, |call| format!("{}=JSON", call.id));
        let answer = resume(&["--answer", &example]);
        return text
            + &format!("answer with: {answer}\nor with --approve (no values), --deny ID, --cancel ID");
    }
    let has_form = waiting.iter().any(|call| call.request.form.is_some());
    let forms = if has_form { ", --answer ID=JSON, --cancel ID" } else { "" };
    text + &format!(
        "decide with: {approve}\nor with --deny-all REASON, --always, --edit ID=JSON, --respond ID=TEXT{forms}"
    )
}
