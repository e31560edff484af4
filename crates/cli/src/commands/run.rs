//! `superstep run` and `superstep resume`.

use std::{
    io::{self, IsTerminal, Read},
    sync::Arc,
};

use superstep::{
    CheckpointId, Checkpointer, OnExisting, OnUnfinished, ThreadId, agent::AgentOutcome,
    checkpoint::CheckpointError,
};
use superstep_session::{
    config::{location::Location, settings::Given},
    error::{ErrorKind, SessionError},
    live::Sessions,
    turn::{
        randomness::fresh_thread,
        setup::{Purpose, Setup, streaming},
        waiting::Waiting,
    },
};

use crate::{
    args::{
        command_line::{ResumeArgs, RunArgs},
        decisions::DecisionArgs,
        shared::{AGENT, Locate, TurnArgs},
        values::Stdin,
    },
    output::{
        exit::Exit,
        note::{print_new, print_note},
    },
    session::{
        run_loop::AgentRun,
        signals,
        stdin::{is_piped, without_mark},
    },
};

const MAX_PROMPT_BYTES: u64 = 1 << 20;

/// Replies to a prompt.
pub(crate) async fn run(args: RunArgs) -> Result<Exit, SessionError> {
    let RunArgs { prompt, stdin, thread, last, user, from, new, discard, service: _, location, turn } = args;
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
    if !is_fresh {
        print_new(location.check_anchor(&*store, &thread, turn.trust).await?, false);
    }
    let from = from.map(CheckpointId);
    let run = set_up(&location, store, thread, from, user, turn).await?;
    let run = AgentRun { is_fresh, ..run };
    let setup = &run.setup;
    let on_unfinished = if discard { OnUnfinished::Discard } else { OnUnfinished::Refuse };
    let on_existing = if new { OnExisting::Refuse } else { OnExisting::Accept };
    let options = setup.options()?.on_unfinished(on_unfinished).on_existing(on_existing).at(from);
    let mut input = setup.agent.input(&prompt);
    if let Some(user) = &setup.settings.user {
        input = input.user_id(user.as_str());
    }
    if is_unread && is_piped() {
        // Even with `--quiet`: the reply may answer only a part of the prompt.
        let what = "the piped input is not read; to append it to the prompt, write `-` after the prompt";
        print_note(what);
    }
    let granted = if discard { setup.decided.discard() } else { Vec::new() };
    let exit = run.follow(setup.agent.configured(options).stream(input, streaming())).await;
    let kept = setup.forget_discarded(&granted).await;
    let exit = run.close(exit).await?;
    kept.map(|()| exit)
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
    print_new(location.check_anchor(&*store, &thread, turn.trust).await?, false);
    match store.load(&thread, None).await {
        Ok(None) => return Err(unknown),
        // An older checkpoint is the remedy for a damaged one.
        Err(CheckpointError::Corrupt { .. }) if from.is_some() => {}
        loaded => drop(loaded?),
    }
    drop(store);
    let from = from.map(CheckpointId);
    let run = set_up(&location, location.open()?, thread, from, None, turn).await?;
    let exit = match from {
        Some(from) => continue_from(&run, from).await,
        None => continue_turn(&run, &decisions).await,
    };
    run.close(exit).await
}

/// Sets up the run of a turn, and prints the notes about it.
async fn set_up(
    location: &Arc<Location>,
    store: Arc<dyn Checkpointer>,
    thread: ThreadId,
    from: Option<CheckpointId>,
    user: Option<String>,
    turn: TurnArgs,
) -> Result<AgentRun, SessionError> {
    let TurnArgs { json, quiet, .. } = turn;
    let mut given = Given::from(turn);
    given.settings.user = user;
    let mut notes = Vec::new();
    let (cancel, _watch) = signals::watching();
    let setup = Setup::new(
        location.clone(),
        store,
        thread,
        Purpose::Turn { from, servers: Arc::default() },
        &given,
        &mut notes,
        cancel,
    )
    .await;
    print_new(notes, quiet);
    Ok(AgentRun { setup: setup?, json, quiet, is_fresh: false })
}

async fn continue_turn(run: &AgentRun, decisions: &DecisionArgs) -> Result<Exit, SessionError> {
    let setup = &run.setup;
    let head = setup.agent.graph().thread(&setup.thread).state().await?;
    if !head.next.is_empty() {
        setup.check_folder()?;
    }
    if head.next.is_empty() && !is_unanswered(head.values.outcome) && decisions.is_empty() {
        run.output().note(&format!("thread `{}` is finished, this is its last reply:", setup.thread));
    }
    let asked = head.tasks.iter().flat_map(|task| &task.interrupts);
    let waiting = Waiting::of(asked)?;
    let answers = decisions.answers(setup.thread.as_str(), &waiting)?;
    let stream = setup
        .agent
        .configured(setup.answering(&waiting, answers)?)
        .resume_point()
        .await?
        .resume_stream(streaming());
    run.follow(stream).await
}

/// Resumes from an older checkpoint of a turn.
async fn continue_from(run: &AgentRun, from: CheckpointId) -> Result<Exit, SessionError> {
    let (setup, thread) = (&run.setup, &run.setup.thread);
    if setup.agent.graph().thread(thread).at(from).state().await?.next.is_empty() {
        let (name, from) = (thread.as_str(), from.to_string());
        let ask = setup.location.command("run", &["--thread", name, "--from", &from]);
        let message = format!(
            "no turn is in progress at checkpoint {from} of thread `{name}`; start a new one from it with: {ask} \"...\""
        );
        return Err(SessionError::new(ErrorKind::Thread, message));
    }
    let options = setup.options()?.at(from);
    let stream = setup.agent.configured(options).resume_point().await?.resume_stream(streaming());
    run.follow(stream).await
}

fn is_unanswered(outcome: Option<AgentOutcome>) -> bool {
    outcome.is_some_and(AgentOutcome::is_unanswered)
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
    use super::*;

    #[test]
    fn a_prompt_is_trimmed_and_must_not_be_empty() {
        assert_eq!(read_prompt(Some(" hi \n".into()), None).unwrap(), "hi");
        assert_eq!(read_prompt(Some(" \n".into()), None).unwrap_err().kind, ErrorKind::Invalid);
        assert_eq!(read_prompt(Some("x".repeat((1 << 20) + 1)), None).unwrap_err().kind, ErrorKind::Invalid);
    }
}
