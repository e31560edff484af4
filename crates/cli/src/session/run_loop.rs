//! The run loop: events, approvals, and the next command.

use std::{
    collections::BTreeSet,
    io::{self, IsTerminal},
    time::Duration,
};

use superstep::agent::AgentOutcome;
use superstep_session::{
    config::location::Location,
    error::{ErrorKind, SessionError},
    live::{Ended, Events, Notice, Session, SessionEvent, Since, TurnEnd, TurnId},
    text::{indented, printable_line},
    turn::waiting::Waiting,
};

use crate::{
    output::{
        exit::{self, Exit},
        human::Human,
        json::Json,
        note::print_note,
        run_output::{End, Output},
    },
    session::{approve::Approve, signals},
};

/// A turn in the terminal, and the form of its output.
pub(crate) struct AgentRun {
    pub(crate) session: Session,
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

    /// Begins a turn, shows it to its end, requests decisions in between, and closes the session.
    pub(crate) async fn follow(
        &self,
        begin: impl FnOnce(&Session) -> Result<TurnId, SessionError>,
    ) -> Result<Exit, SessionError> {
        let (cancel, _watch) = signals::watching();
        let mut output = self.output();
        let mut events = self.session.subscribe(Since::Now);
        begin(&self.session)?;
        let (mut is_stopped, mut announces_thread, mut written) = (false, self.is_fresh, Ok(()));
        let mut decided = BTreeSet::new();
        let end = loop {
            let event = tokio::select! {
                biased;
                () = cancel.cancelled(), if !is_stopped => {
                    is_stopped = true;
                    self.session.cancel();
                    continue;
                }
                event = events.next() => event,
            };
            let Some((_, event)) = event else { unreachable!("a turn ends before its session is closed") };
            let begins = matches!(
                event,
                SessionEvent::Agent { .. } | SessionEvent::Checkpoint { .. } | SessionEvent::Discarded(_)
            );
            if begins && std::mem::take(&mut announces_thread) {
                // From here on the turn can be resumed if the program is killed.
                output.note(&format!("thread {}", self.session.thread()));
            }
            match event {
                SessionEvent::TurnEnded(end) => break end,
                SessionEvent::Asked(_) if written.is_err() => self.session.leave(),
                SessionEvent::Asked(_) => {
                    // All questions of a round are decided with its first one.
                    let open = self.session.questions().into_iter().map(|question| question.waiting);
                    let waiting: Vec<_> = open.filter(|call| !decided.contains(&call.interrupt)).collect();
                    if waiting.is_empty() {
                        continue;
                    }
                    match Approve::new(self.json).decide(&waiting, &cancel).await {
                        // The signal is handled above.
                        None if cancel.is_cancelled() => {}
                        None => self.session.leave(),
                        Some(answers) => {
                            decided.extend(answers.iter().map(|(id, _)| id.clone()));
                            self.session.answer(answers)?;
                        }
                    }
                }
                SessionEvent::Answered { id, .. } => _ = decided.remove(&id),
                event if written.is_ok() => {
                    written = self.show(&mut *output, event);
                    if written.is_err() {
                        self.session.cancel();
                    }
                }
                _ => {}
            }
        };
        let TurnEnd { result, took, .. } = end;
        let exit = match &result {
            Ok(ended) => self.conclude(&mut *output, ended, took, written),
            Err(error) => Err(error.clone()),
        };
        self.close(&mut *output, &mut events).await;
        exit
    }

    /// Shows an event. An error means that stdout is closed.
    fn show(&self, output: &mut dyn Output, event: SessionEvent) -> io::Result<()> {
        match event {
            SessionEvent::Agent { name, data } => return output.event(name, &data),
            SessionEvent::Discarded(nodes) => return output.discarded(&nodes),
            SessionEvent::Lagged { skipped } => return output.lagged(skipped),
            // Some notes are for every user.
            SessionEvent::Notice(Notice { code: "note", text, .. }) => print_note(&text),
            SessionEvent::Notice(notice) => output.note(&notice.text),
            _ => {}
        }
        Ok(())
    }

    /// Waits for a dream after the turn, reports it, and shuts down the servers.
    async fn close(&self, output: &mut dyn Output, events: &mut Events) {
        self.session.ended().await;
        self.session.close().await;
        while let Some((_, event)) = events.next().await {
            if let SessionEvent::Notice(notice) = event {
                output.note(&notice.text);
            }
        }
    }

    /// Prints the next command and returns the exit code.
    fn conclude(
        &self,
        output: &mut dyn Output,
        ended: &Ended,
        took: Duration,
        written: io::Result<()>,
    ) -> Result<Exit, SessionError> {
        let (location, thread) = (self.session.location(), self.session.thread().as_str());
        let end = &End { thread, state: &ended.state, outcome: ended.outcome, took };
        let written = written.and_then(|()| output.end(end));
        let resume = format!("resume with: {}", self.session.command("resume", &[thread]));
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
                print_note(&waits(location, thread, &ended.waiting, &self.session.repeated_flags()));
            }
            (outcome, Ok(())) => {
                let more = self.session.command("run", &["--thread", thread]);
                if ended.has_schema && end.state.output.is_none() {
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
                    AgentOutcome::Guarded => {
                        let reason = printable_line(end.state.stop_reason.as_str());
                        output.note(&format!("a guardrail blocked the turn ({reason})"));
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
    let state = location.command("state", &[thread]);
    let text = asked(waiting, &format!("; see all of it with: {state}"));
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

/// Formats the waiting calls; `more` follows what is left out of one.
pub(crate) fn asked(waiting: &[Waiting], more: &str) -> String {
    let mut text = String::new();
    for call in waiting {
        let (id, tool) = (printable_line(&call.id), printable_line(&call.request.tool));
        let question = call.question().replace('\n', "\n    ");
        let waits = if call.request.form.is_some() { "asks" } else { "waits" };
        text.push_str(&format!("call `{id}` of {tool} {waits}:\n    {question}\n"));
        if let Some(hidden) = call.hidden() {
            text.push_str(&format!("    [{hidden}{more}]\n"));
        }
    }
    text
}
