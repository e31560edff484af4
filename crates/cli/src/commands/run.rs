//! `superstep run` and `superstep resume`.

use std::{
    fs::File,
    io::{self, IsTerminal, Read},
    path::Path,
    sync::Arc,
};

use superstep::{
    Answers, CheckpointId, Checkpointer, OnExisting, OnUnfinished, ThreadId, checkpoint::CheckpointError,
    llm::media::Media,
};
use superstep_session::{
    config::{location::Location, settings::Given},
    error::SessionError,
    live::{Head, NewSession, OnBusy, Prompt, Session, Sessions},
    turn::{dream_thread, randomness::fresh_thread},
};

use crate::{
    args::{
        command_line::{ResumeArgs, RunArgs},
        decisions::DecisionArgs,
        shared::{AGENT, Locate, TurnArgs},
        values::Stdin,
    },
    output::{exit::Exit, note::print_note},
    session::{
        run_loop::AgentRun,
        stdin::{is_piped, without_mark},
    },
};

const MAX_PROMPT_BYTES: u64 = 1 << 20;

/// The maximum size of an attached file: that of most providers.
const MAX_ATTACHED: u64 = 20 << 20;

/// Replies to a prompt.
pub(crate) async fn run(args: RunArgs) -> Result<Exit, SessionError> {
    let RunArgs { prompt, stdin, thread, last, attach, user, from, new, discard, service: _, location, turn } =
        args;
    let is_unread = prompt.as_ref().is_some_and(|prompt| prompt != "-") && stdin.is_none();
    let prompt = read_prompt(prompt, stdin)?;
    let sessions = Sessions::new(AGENT, location.db.clone(), Given::default());
    let location = Arc::new(location.locate(AGENT)?);
    let thread = match thread {
        None if last => Some(sessions.newest(location.cwd()).await?.as_str().to_owned()),
        thread => thread,
    };
    let store = location.open()?;
    let is_fresh = thread.is_none();
    let thread: ThreadId = match thread {
        Some(name) => name.into(),
        None => fresh_thread(&*store).await?,
    };
    if is_unread && is_piped() {
        // Even with `--quiet`: the reply may answer only a part of the prompt.
        let what = "the piped input is not read; to append it to the prompt, write `-` after the prompt";
        print_note(what);
    }
    let prompt = Prompt {
        text: prompt,
        media: attach.iter().map(|file| attached(file)).collect::<Result<_, _>>()?,
        from: from.map(CheckpointId),
        on_unfinished: if discard { OnUnfinished::Discard } else { OnUnfinished::Refuse },
        on_existing: if new { OnExisting::Refuse } else { OnExisting::Accept },
    };
    let run = AgentRun { is_fresh, ..open(&location, store, thread, user, turn)? };
    run.follow(|session| session.prompt(prompt, OnBusy::Refuse)).await
}

/// Resumes a stopped turn.
pub(crate) async fn resume(args: ResumeArgs) -> Result<Exit, SessionError> {
    let ResumeArgs { thread, from, decisions, service: _, location, turn } = args;
    if from.is_some() && !decisions.is_empty() {
        return Err(SessionError::usage(
            "with `--from` nothing waits yet; decide when it asks, or with a `resume` without it",
        ));
    }
    let location = Arc::new(location.locate(AGENT)?);
    let unknown = location.unknown(&thread);
    let thread: ThreadId = thread.into();
    // Checked first: a missing thread must not create a database.
    let Some(store) = location.find()? else { return Err(unknown) };
    match store.load(&thread, None).await {
        Ok(None) => return Err(unknown),
        // An older checkpoint is the remedy for a damaged one.
        Err(CheckpointError::Corrupt { .. }) if from.is_some() => {}
        loaded => drop(loaded?),
    }
    drop(store);
    let run = open(&location, location.open()?, thread, None, turn)?;
    let from = from.map(CheckpointId);
    let answers = match from {
        Some(_) => Answers::new(),
        None => answers(&run, &decisions).await?,
    };
    run.follow(|session| session.proceed(from, answers)).await
}

/// Opens the session of a turn.
fn open(
    location: &Arc<Location>,
    store: Arc<dyn Checkpointer>,
    thread: ThreadId,
    user: Option<String>,
    turn: TurnArgs,
) -> Result<AgentRun, SessionError> {
    dream_thread::refuse(location, &thread)?;
    let TurnArgs { json, quiet, trust, .. } = turn;
    let mut given = turn.given(&location.cwd)?;
    given.settings.user = user;
    let new = NewSession { trust, is_quiet: quiet, raw_events: true, ..NewSession::default() };
    let session = Session::new(location.clone(), store, thread, given, new);
    Ok(AgentRun { session, json, quiet, is_fresh: false })
}

/// Returns the decisions of the flags about the calls that wait, and says so if the thread is finished.
async fn answers(run: &AgentRun, decisions: &DecisionArgs) -> Result<Answers, SessionError> {
    let Some(Head { is_finished, waiting, .. }) = run.session.head().await? else {
        return Ok(Answers::new());
    };
    let thread = run.session.thread();
    if is_finished && decisions.is_empty() {
        run.output().note(&format!("thread `{thread}` is finished, this is its last reply:"));
    }
    decisions.answers(thread.as_str(), &waiting)
}

/// Reads a file that goes with a prompt.
fn attached(file: &Path) -> Result<Media, SessionError> {
    let read = File::open(file).and_then(|opened| {
        let mut bytes = Vec::new();
        opened.take(MAX_ATTACHED + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    let shown = file.display();
    let bytes = read.map_err(|cause| SessionError::usage(format!("cannot read `{shown}`: {cause}")))?;
    if bytes.len() as u64 > MAX_ATTACHED {
        return Err(SessionError::usage(format!("`{shown}` has more than {} MiB", MAX_ATTACHED >> 20)));
    }
    Media::from_bytes(&bytes).map_err(|_| {
        let known = "PNG, JPEG, GIF, WebP, WAV, MP3 or PDF";
        SessionError::usage(format!(
            "`{shown}` is none of {known}; name a text in the prompt, the agent reads it"
        ))
    })
}

/// Reads the prompt of the command line, of stdin, or both joined.
pub(super) fn read_prompt(given: Option<String>, stdin: Option<Stdin>) -> Result<String, SessionError> {
    let prompt = match (given.filter(|prompt| prompt != "-"), stdin) {
        (Some(prompt), None) => prompt,
        (Some(prompt), Some(Stdin)) => format!("{prompt}\n\n{}", read_stdin()?),
        (None, None) if io::stdin().is_terminal() => {
            return Err(SessionError::usage("the prompt is missing; write it after `run`, or pipe it in"));
        }
        (None, _) => read_stdin()?,
    };
    if prompt.len() as u64 > MAX_PROMPT_BYTES {
        return Err(too_long());
    }
    match prompt.trim() {
        "" => Err(SessionError::usage("the prompt is empty; write what you want to know")),
        prompt => Ok(prompt.to_owned()),
    }
}

fn read_stdin() -> Result<String, SessionError> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().take(MAX_PROMPT_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|cause| SessionError::usage(format!("cannot read the prompt from stdin: {cause}")))?;
    if bytes.len() as u64 > MAX_PROMPT_BYTES {
        return Err(too_long());
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| SessionError::usage("the prompt on stdin is not valid UTF-8"))?;
    Ok(without_mark(text))
}

fn too_long() -> SessionError {
    SessionError::usage(format!(
        "the prompt is longer than {} MiB; put it into a file under `--cwd` and ask about that",
        MAX_PROMPT_BYTES >> 20
    ))
}

#[cfg(test)]
mod tests {
    use superstep_session::error::ErrorKind;

    use super::*;

    #[test]
    fn a_prompt_is_trimmed_and_must_not_be_empty() {
        assert_eq!(read_prompt(Some(" hi \n".into()), None).unwrap(), "hi");
        assert_eq!(read_prompt(Some(" \n".into()), None).unwrap_err().kind, ErrorKind::Invalid);
        assert_eq!(read_prompt(Some("x".repeat((1 << 20) + 1)), None).unwrap_err().kind, ErrorKind::Invalid);
    }
}
