//! `run`, `resume` and `answer`: runs of a graph.

use superstep::{
    CheckpointId, Interrupt, OnExisting, OnUnfinished, ThreadId,
    erased::{JsonRun, JsonThread},
};
use superstep_session::{
    config::location::Location,
    error::{ErrorKind, SessionError},
    suggest::closest,
    turn::randomness::fresh_thread,
};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{
        own::{AnswerArgs, OwnResumeArgs, OwnRunArgs, OwnTurnArgs},
        shared::Locate,
    },
    graphs::{graph_set::GraphSet, input::check},
    output::{exit::Exit, note::print_note},
    session::{
        own_run::{OwnRun, questions},
        stdin::{is_piped, read_json},
    },
};

pub(crate) async fn run(args: OwnRunArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let OwnRunArgs { graph, input, thread, from, new, discard, service: _, turn } = args;
    let graph = graphs.named(graph.as_deref())?;
    let is_unread = input.is_none() && is_piped();
    let input = read_json("input", input.as_deref().unwrap_or("{}"))?;
    // Nothing is created for an input that does not fit.
    check(&**graph, "input", &input)?;
    if is_unread {
        print_note("the piped input is not read; add `--input -` to read it");
    }
    let location = turn.database.location.clone().locate(&graphs.program)?;
    let is_fresh = thread.is_none();
    let named = thread.map(ThreadId::from);
    let (store, trusted) = location.open_to_run(named.as_ref(), turn.trust).await?;
    let thread = match named {
        Some(thread) => thread,
        None => fresh_thread(&*store).await?,
    };
    let cancel = CancellationToken::new();
    let on_unfinished = if discard { OnUnfinished::Discard } else { OnUnfinished::Refuse };
    let options = graphs.options.clone().thread(thread.clone()).cancel(cancel.clone());
    let on_existing = if new { OnExisting::Refuse } else { OnExisting::Accept };
    let options = options.on_unfinished(on_unfinished).on_existing(on_existing).at(from.map(CheckpointId));
    let opened = graph.with_checkpointer(store.clone()).thread(options);
    let ended = own_run(&location, &turn, graph.name(), &thread, &cancel, &*opened)
        .follow(JsonRun::Input(input), is_fresh, &trusted)
        .await;
    location.anchor(&*store, &thread, &ended).await;
    ended
}

/// Resumes the pending tasks of a thread.
pub(crate) async fn resume(args: OwnResumeArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let OwnResumeArgs { thread: name, from, service: _, turn } = args;
    let location = turn.database.location.clone().locate(&graphs.program)?;
    let at = from.map(CheckpointId);
    let owned = graphs.find(&location, &name, at).await?;
    let snapshot = owned.open_at(at).state().await?;
    if snapshot.next.is_empty() {
        let what = match at {
            Some(at) => format!("nothing is pending at checkpoint {at} of thread `{name}`"),
            None => format!("thread `{name}` is finished"),
        };
        let run = location.command("run", &[owned.graph.name(), "--thread", &name]);
        return Err(SessionError::new(
            ErrorKind::Thread,
            format!("{what}; run it again with: {run} --input JSON"),
        ));
    }
    let (store, trusted) = location.open_to_run(Some(&owned.name), turn.trust).await?;
    let cancel = CancellationToken::new();
    let options = owned.options.clone().at(at).cancel(cancel.clone());
    let opened = owned.graph.with_checkpointer(store.clone()).thread(options);
    let shown = own_run(&location, &turn, owned.graph.name(), &owned.name, &cancel, &*opened);
    if at.is_none() && snapshot.only_waits() {
        let interrupts: Vec<Interrupt> = snapshot.interrupts().cloned().collect();
        print_note(&questions(&location, &owned.name, &interrupts));
        return Ok(Exit::Waiting);
    }
    let ended = shown.follow(JsonRun::Resume, false, &trusted).await;
    location.anchor(&*store, &owned.name, &ended).await;
    ended
}

/// Answers a question and resumes the thread.
pub(crate) async fn answer(args: AnswerArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let AnswerArgs { thread: name, key, value, service: _, turn } = args;
    let value = read_json("answer", &value)?;
    let location = turn.database.location.clone().locate(&graphs.program)?;
    let owned = graphs.find(&location, &name, None).await?;
    let snapshot = owned.open().state().await?;
    check_key(&name, &key, &snapshot.interrupts().collect::<Vec<_>>())?;
    let (store, trusted) = location.open_to_run(Some(&owned.name), turn.trust).await?;
    let cancel = CancellationToken::new();
    let options = owned.options.clone().answer(key, value).cancel(cancel.clone());
    let opened = owned.graph.with_checkpointer(store.clone()).thread(options);
    let shown = own_run(&location, &turn, owned.graph.name(), &owned.name, &cancel, &*opened);
    let ended = shown.follow(JsonRun::Resume, false, &trusted).await;
    location.anchor(&*store, &owned.name, &ended).await;
    ended
}

/// Rejects an answer to a question that does not wait, or to several.
pub(super) fn check_key(thread: &str, key: &str, interrupts: &[&Interrupt]) -> Result<(), SessionError> {
    if interrupts.is_empty() {
        return Err(SessionError::new(
            ErrorKind::Thread,
            format!("no question of thread `{thread}` waits for an answer"),
        ));
    }
    let named: Vec<_> = interrupts.iter().filter(|asked| asked.id == key || asked.key == key).collect();
    match named[..] {
        [_] => Ok(()),
        [] => {
            let known: Vec<&str> = interrupts.iter().map(|asked| asked.key.as_str()).collect();
            Err(SessionError::usage(match closest(key, &known) {
                Some(near) => format!("no question `{key}` waits; did you mean `{near}`?"),
                None => format!("no question `{key}` waits; waiting are `{}`", known.join("`, `")),
            }))
        }
        _ => {
            let ids: Vec<&str> = named.iter().map(|asked| asked.id.as_str()).collect();
            let message = format!(
                "several questions have the key `{key}`; answer one by its id: `{}`",
                ids.join("`, `")
            );
            Err(SessionError::usage(message))
        }
    }
}

fn own_run<'a>(
    location: &'a Location,
    turn: &'a OwnTurnArgs,
    graph: &'a str,
    thread: &'a ThreadId,
    cancel: &'a CancellationToken,
    opened: &'a dyn JsonThread,
) -> OwnRun<'a> {
    OwnRun { location, json: turn.database.json, quiet: turn.quiet, graph, thread, cancel, opened }
}
