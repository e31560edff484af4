//! The chat by lines.
//!
//! Start at [`plain`].

use std::{
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    time::Duration,
};

use superstep::{
    Answers,
    agent::{AgentOutcome, AgentState, Approval},
};
use superstep_session::{
    error::{ErrorKind, SessionError},
    live::{
        CallStatus, CallView, Ended, Events, OnBusy, Prompt, Question, Session, SessionEvent, Since, TurnId,
    },
    text::{brief, changed_files, indented, printable, printable_line},
};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::{
    chat::{
        command::Command,
        conversation::{Conversation, Done},
    },
    output::{
        exit::{Exit, unwritten},
        note::{print_note, report},
    },
    session::{
        approve::{Approve, ask_approval, page},
        run_loop::{asked, waits},
        signals,
    },
};

/// Maximum number of characters of a result in its line.
const MAX_SHOWN: usize = 100;

/// Runs a chat whose prompts are the first message and the lines of stdin. Without a terminal the first turn that has no reply
/// ends it.
///
/// # Errors
/// A turn failed, and stdin is not a terminal.
pub(crate) async fn plain(mut chat: Conversation, first: Option<String>) -> Result<Exit, SessionError> {
    let exit = prompts(&mut chat, first).await;
    chat.close().await;
    exit
}

async fn prompts(chat: &mut Conversation, first: Option<String>) -> Result<Exit, SessionError> {
    let is_terminal = io::stdin().is_terminal();
    announce(chat).await?;
    let mut next = first;
    loop {
        let text = match next.take() {
            Some(text) => text,
            None => match read_line(is_terminal).await? {
                Some(text) => text,
                None => return Ok(Exit::Ok),
            },
        };
        if text.trim().is_empty() {
            continue;
        }
        let ended = match Command::parse(&text) {
            None => turn(&chat.session, Some(text)).await,
            Some(Err(problem)) => Err(SessionError::usage(problem)),
            Some(Ok(command)) => match chat.command(command).await {
                Ok(Done::Said(text)) => {
                    print_note(&text);
                    Ok(Exit::Ok)
                }
                Ok(Done::Lines(lines)) => {
                    lines.iter().for_each(|(_, line)| print_note(&printable_line(line)));
                    Ok(Exit::Ok)
                }
                Ok(Done::Copies) => Err(SessionError::usage("`/copy` needs the chat on a terminal")),
                Ok(Done::Moved) => announce(chat).await.map(|()| Exit::Ok),
                Ok(Done::Continues) => turn(&chat.session, None).await,
                Ok(Done::Quit) => return Ok(Exit::Ok),
                Err(error) => Err(error),
            },
        };
        match ended {
            Ok(Exit::Ok) => {}
            ended if !is_terminal => return ended,
            Ok(_) => {}
            Err(error) => drop(report(&error)),
        }
    }
}

async fn announce(chat: &Conversation) -> Result<(), SessionError> {
    print_note(&format!("thread {}", chat.session.thread()));
    if chat.is_unfinished().await? {
        print_note(UNFINISHED);
    }
    Ok(())
}

/// The note about a turn that was stopped.
pub(super) const UNFINISHED: &str =
    "the last turn is not finished: `/continue` continues it, and a message replaces it";

/// Reads a line of stdin; `None` at its end.
async fn read_line(is_terminal: bool) -> Result<Option<String>, SessionError> {
    let read = spawn_blocking(move || {
        if is_terminal {
            let mut output = anstream::stderr();
            write!(output, "> ")?;
            output.flush()?;
        }
        let mut line = String::new();
        let length = io::stdin().lock().read_line(&mut line)?;
        Ok::<_, io::Error>((length > 0).then_some(line))
    });
    let unread =
        |cause: io::Error| SessionError::usage(format!("cannot read the prompt from stdin: {cause}"));
    Ok(read.await.expect("a read does not panic").map_err(unread)?.map(|line| line.trim().to_owned()))
}

/// Runs a turn, and prints it.
async fn turn(session: &Session, text: Option<String>) -> Result<Exit, SessionError> {
    let events = session.subscribe(Since::Now);
    let turn = match text {
        Some(text) => session.prompt(Prompt::new(text), OnBusy::Refuse)?,
        None => session.proceed(None, Answers::new())?,
    };
    Turn { session, printed: None, unwritten: None }.follow(turn, events).await
}

/// A turn that is printed.
struct Turn<'a> {
    session: &'a Session,
    /// The message that is printed, and its text so far.
    printed: Option<(String, String)>,
    unwritten: Option<io::Error>,
}

impl Turn<'_> {
    async fn follow(mut self, turn: TurnId, mut events: Events) -> Result<Exit, SessionError> {
        let (cancel, _watch) = signals::watching();
        let mut is_cancelled = false;
        loop {
            let event = tokio::select! {
                () = cancel.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    self.session.cancel();
                    continue;
                }
                event = events.next() => event,
            };
            match event {
                None => return Err(SessionError::new(ErrorKind::Internal, "the session is closed")),
                Some((_, SessionEvent::TurnEnded(end))) if end.turn == turn => {
                    return self.end(end.result, end.took);
                }
                Some((_, SessionEvent::Asked(question))) => self.ask(*question, &cancel).await,
                Some((_, event)) => {
                    let printed = self.event(event);
                    if let Err(error) = printed {
                        self.session.cancel();
                        self.unwritten.get_or_insert(error);
                    }
                }
            }
        }
    }

    fn event(&mut self, event: SessionEvent) -> io::Result<()> {
        match event {
            // A message and not its pieces: these may become void.
            SessionEvent::Message(message) if !message.is_user => self.message(message.id, message.text)?,
            SessionEvent::Call(call) => self.call(&call),
            SessionEvent::Files(changes) => {
                print_note(&format!("    {}", changed_files(&changes).join("\n    ")));
            }
            SessionEvent::Notice(notice) => print_note(&indented(&notice.text)),
            SessionEvent::Discarded(nodes) => {
                let nodes: Vec<_> = nodes.iter().map(|node| printable_line(node.as_str())).collect();
                print_note(&format!("discarded pending nodes: {}", nodes.join(", ")));
            }
            SessionEvent::Lagged { skipped } => print_note(&format!("{skipped} events are not shown")),
            _ => {}
        }
        Ok(())
    }

    /// Prints a message, or the rest of one that is continued.
    fn message(&mut self, id: String, text: String) -> io::Result<()> {
        let known = self.printed.as_ref().filter(|(known, _)| *known == id);
        let rest = known.and_then(|(_, known)| text.strip_prefix(known.as_str())).unwrap_or(&text);
        if !rest.is_empty() {
            self.print(rest)?;
        }
        self.printed = Some((id, text));
        Ok(())
    }

    fn print(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let shown = if out.is_terminal() { printable(text) } else { text.to_owned() };
        out.write_all(shown.trim_end_matches('\n').as_bytes())?;
        out.write_all(b"\n")?;
        out.flush()
    }

    fn call(&self, call: &CallView) {
        match call.status {
            CallStatus::Pending => {}
            CallStatus::Running => print_note(&format!("  → {}", call.title)),
            CallStatus::Done | CallStatus::Failed => {
                let result = call.result.as_deref().unwrap_or_default();
                let lines = result.lines().count();
                let what = if lines > 1 { format!("{lines} lines") } else { brief(result, MAX_SHOWN) };
                let sign = if call.status == CallStatus::Failed { "failed: " } else { "" };
                print_note(&format!("  ← {}: {sign}{what}", call.title));
            }
        }
    }

    /// Asks the user at the terminal about a call. Without one the turn ends, and the call still waits.
    async fn ask(&self, question: Question, cancel: &CancellationToken) {
        if !self.session.questions().iter().any(|open| open.id == question.id) {
            return;
        }
        if Approve::new(false) == Approve::Later {
            return self.session.leave();
        }
        let call = question.waiting.clone();
        let asked = spawn_blocking(move || {
            ask_approval(&call, page, &mut io::stdin().lock(), &mut anstream::stderr())
        });
        let decided: Option<Approval> = tokio::select! {
            () = cancel.cancelled() => None,
            decided = asked => decided.ok().and_then(Result::ok).flatten(),
        };
        match decided {
            // A question that is closed meanwhile needs no answer.
            Some(approval) => drop(self.session.answer([(question.id, approval)])),
            None => self.session.leave(),
        }
    }

    fn end(mut self, result: Result<Ended, SessionError>, took: Duration) -> Result<Exit, SessionError> {
        let Ended { outcome, state, waiting, .. } = result?;
        let (location, thread) = (self.session.location(), self.session.thread().as_str());
        let printed = self.printed.as_ref().map(|(_, text)| text.as_str());
        let reply = state.final_reply.as_str();
        if !outcome.is_unanswered()
            && outcome != AgentOutcome::Cancelled
            && !reply.is_empty()
            && printed != Some(reply)
            && let Err(error) = self.print(reply)
        {
            self.unwritten.get_or_insert(error);
        }
        if let Some(failure) = self.unwritten.as_ref().and_then(unwritten) {
            return Err(failure);
        }
        if outcome == AgentOutcome::AwaitingApproval {
            print_note(&match self.session.settings().is_configurable {
                true => waits(location, thread, &waiting, &self.session.repeated_flags()),
                false => {
                    format!(
                        "{}decide with: {}",
                        asked(&waiting, ""),
                        self.session.command("resume", &[thread])
                    )
                }
            });
            return Ok(Exit::Waiting);
        }
        if let Some(problem) = problem(outcome, &state) {
            let kind = if outcome == AgentOutcome::LlmError { ErrorKind::Model } else { ErrorKind::Failed };
            let resume = self.session.command("resume", &[thread]);
            return Err(SessionError::new(kind, format!("{problem}\nresume with: {resume}")));
        }
        let (read, written) = (state.usage.input_tokens, state.usage.output_tokens);
        match outcome {
            AgentOutcome::Cancelled => {
                print_note(&format!(
                    "interrupted; resume with: {}",
                    self.session.command("resume", &[thread])
                ));
                Ok(Exit::Interrupted)
            }
            outcome => {
                let secs = took.as_secs_f64();
                print_note(&format!("{read} tokens in, {written} out, {secs:.1} s"));
                Ok(if outcome == AgentOutcome::ToolFailed { Exit::Failed } else { Exit::Ok })
            }
        }
    }
}

/// Returns why a turn failed, if it did.
pub(super) fn problem(outcome: AgentOutcome, state: &AgentState) -> Option<String> {
    match outcome {
        AgentOutcome::LlmError => {
            let error = state.error.as_ref();
            let error = error.map_or("no reason was stored", |error| error.message.as_str());
            Some(format!("the model call failed: {}", indented(error)))
        }
        AgentOutcome::HookFailed => {
            let error = state.hook_error.as_ref();
            Some(error.map_or_else(|| "a hook failed".to_owned(), |error| indented(&error.to_string())))
        }
        _ => None,
    }
}
