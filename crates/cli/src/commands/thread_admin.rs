//! `superstep delete`, `copy`, `adopt` and `prune`: administration of threads.

use std::sync::Arc;

use serde_json::json;
use superstep::{
    Checkpointer, ThreadId,
    checkpoint::Retention,
    clock::{Clock, SystemClock},
    memory::Dreams,
};
use superstep_session::{
    config::location::Location,
    error::{ErrorKind, SessionError},
    text::{count, printable_line},
    turn::{dream_thread, snapshots, stored_graph::graph, threads},
};

use crate::{
    args::{
        command_line::{CopyArgs, DeleteArgs, PruneArgs},
        shared::{AGENT, KeepArgs, Locate, LocationArgs, ThreadArgs},
    },
    output::{
        exit::Exit,
        note::print_new,
        table::{lines, print},
    },
    session::approve::confirm,
};

pub(crate) async fn delete(args: DeleteArgs) -> Result<Exit, SessionError> {
    let location = args.database.location.locate(AGENT)?;
    let mut threads = args.threads;
    let mut seen = std::collections::BTreeSet::new();
    threads.retain(|thread| seen.insert(thread.clone()));
    let names: Vec<&str> = threads.iter().map(String::as_str).collect();
    let store = location.change(&names).await?;
    if !allowed(&format!("delete {}, with every checkpoint", listed(&names)), args.yes)? {
        return Ok(Exit::Interrupted);
    }
    let ids: Vec<_> = threads.iter().map(|thread| ThreadId::from(thread.as_str())).collect();
    threads::delete(&location, &store, &ids).await?;
    if args.database.json {
        return print(&lines(threads.iter().map(|thread| json!({ "deleted": thread }))));
    }
    print(&format!("deleted {}\n", listed(&names)))
}

pub(crate) async fn copy(args: CopyArgs) -> Result<Exit, SessionError> {
    let location = args.thread.database.location.locate(AGENT)?;
    let store = location.change(&[&args.thread.name]).await?;
    let (from, to) = (ThreadId::from(args.thread.name.as_str()), ThreadId::from(args.new.as_str()));
    print_new(threads::copy(&location, store, &from, &to).await?, false);
    if args.thread.database.json {
        return print(&lines([json!({ "thread": from, "copy": to })]));
    }
    print(&format!("copied {} to {}\n", listed(&[&args.thread.name]), listed(&[&args.new])))
}

/// Adopts a thread for the agent's graph.
pub(crate) async fn adopt(args: ThreadArgs<LocationArgs>) -> Result<Exit, SessionError> {
    let location = args.database.location.locate(AGENT)?;
    let thread = ThreadId::from(args.name.as_str());
    dream_thread::refuse(&location, &thread)?;
    let graph = graph()?.with_checkpointer(location.change(&[&args.name]).await?);
    graph.thread(&thread).adopt().await?;
    if args.database.json {
        return print(&lines([json!({ "thread": thread, "graph": graph.name() })]));
    }
    print(&format!("{} belongs to the agent now\n", listed(&[&args.name])))
}

pub(crate) async fn prune(args: PruneArgs) -> Result<Exit, SessionError> {
    let location = args.thread.database.location.locate(AGENT)?;
    let store = location.change(&[&args.thread.name]).await?;
    if !allowed(&format!("delete older checkpoints of {}", listed(&[&args.thread.name])), args.yes)? {
        return Ok(Exit::Interrupted);
    }
    let thread = ThreadId::from(args.thread.name.as_str());
    let (pruned, files) = pruned(&location, store.clone(), &thread, keep(&args.keep)).await?;
    let left = left(&*store, &thread).await?;
    if args.thread.database.json {
        return print(&lines([json!({ "thread": thread, "pruned": pruned, "left": left, "files": files })]));
    }
    let kept = if files > 0 { format!(", and {files} of their stored files") } else { String::new() };
    print(&format!(
        "pruned {} of {}{kept}, {left} left\n",
        count(pruned, "checkpoint"),
        listed(&[&args.thread.name])
    ))
}

/// Prunes a thread with the files that its deleted checkpoints name, and returns the numbers of both.
pub(crate) async fn pruned(
    location: &Location,
    store: Arc<dyn Checkpointer>,
    thread: &ThreadId,
    keep: Retention,
) -> Result<(usize, usize), SessionError> {
    let graph = graph()?.with_checkpointer(store.clone());
    // Before the checkpoints that name them are gone.
    let folders = location.folders_of(&*store, thread).await?;
    if Dreams::is_thread(thread) {
        // It has no files that tools wrote.
        let graph = Dreams::inspection_graph().with_checkpointer(store);
        return Ok((graph.thread(thread).prune(keep).await?, 0));
    }
    let pruned = graph.thread(thread).prune(keep).await?;
    // A missing folder has no files to restore.
    Ok((pruned, snapshots::prune(folders, &*store, &graph, thread).await?))
}

/// Returns what to retain.
pub(crate) fn keep(args: &KeepArgs) -> Retention {
    let KeepArgs { keep_last, older_than, leaves: _ } = args;
    match (keep_last, older_than) {
        (Some(count), _) => Retention::Last(usize::try_from(*count).unwrap_or(usize::MAX)),
        (None, Some(age)) => {
            let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
            Retention::Since(SystemClock.now_ms().saturating_sub(age))
        }
        (None, None) => Retention::Leaves,
    }
}

async fn left(store: &dyn Checkpointer, thread: &ThreadId) -> Result<usize, SessionError> {
    Ok(store.history(thread, Default::default()).await?.len())
}

/// Asks the user for permission.
pub(crate) fn allowed(what: &str, yes: bool) -> Result<bool, SessionError> {
    let asked = confirm(&format!("This will {what}."), yes);
    asked.map_err(|cause| {
        SessionError::new(ErrorKind::Failed, format!("cannot ask at the terminal: {cause}; use `--yes`"))
    })
}

fn listed(threads: &[&str]) -> String {
    let names: Vec<_> = threads.iter().map(|thread| format!("`{}`", printable_line(thread))).collect();
    format!("thread{} {}", if names.len() == 1 { "" } else { "s" }, names.join(", "))
}
