//! `watch`: follows a thread that another process runs.
//!
//! Start at [`watch`].

use std::{
    future::pending,
    io::{self, Write},
    time::Duration,
};

use futures::{StreamExt as _, stream::BoxStream};
use serde_json::json;
use superstep::{
    CheckpointId, Checkpointer, History, ThreadId,
    checkpoint::CheckpointMeta,
    erased::{JsonSnapshot, JsonTask},
    node::NodeName,
};
use superstep_session::{
    config::location::Location,
    error::{ErrorKind, SessionError},
    text::{indented, printable, printable_line},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    args::shared::{DatabaseArgs, Locate, ThreadArgs},
    commands::{
        history_tree::line,
        writes::{InitialState, KnownValues, changed, writes},
    },
    graphs::graph_set::{GraphSet, Owned},
    output::{
        exit::Exit,
        note::print_note,
        table::{lines, written},
    },
    session::{own_run::questions, signals},
};

/// The time between two readings of the head of the thread, if the database does not report changes.
const INTERVAL: Duration = Duration::from_millis(500);

/// The same if it does: the end of a process that was killed is not reported.
const LONG_INTERVAL: Duration = Duration::from_secs(5);

/// The number of checkpoints that are read at once.
const PAGE: usize = 100;

/// Shows the new checkpoints of a thread until it is finished or waits, or no process runs it.
///
/// # Errors
/// No process runs the thread, and its last run failed or was stopped.
pub(crate) async fn watch<L: Locate>(args: ThreadArgs<L>, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let ThreadArgs { name, database: DatabaseArgs { location, json } } = args;
    let location = location.locate(&graphs.program)?;
    let found = graphs.find_to_show(&location, &name, None).await?;
    found.open().check_owner().await?;
    let Owned { graph, store, name: thread, .. } = &found;
    let cancel = CancellationToken::new();
    let _signals = AbortOnDropHandle::new(tokio::spawn(signals::watch(cancel.clone())));
    let at = |id: CheckpointId| found.open_at(Some(id));
    let mut shown: Option<CheckpointId> = None;
    // The last printed checkpoint, and the values after it.
    let mut last = None;
    let (initial, mut known) = (InitialState::of(&***graph)?, KnownValues::default());
    // No process ran the thread after the head was read.
    let mut is_idle = false;
    let mut changes = store.changes(thread);
    let interval = if changes.is_some() { LONG_INTERVAL } else { INTERVAL };
    loop {
        let new = newer(&**store, thread, shown).await?;
        for meta in &new {
            let text = if json {
                lines([json!({ "event": "checkpoint", "data": meta })])
            } else {
                if meta.parent != last {
                    known = KnownValues::before(meta, &initial);
                }
                last = Some(meta.id);
                let writes = writes(&**store, thread, meta, &at).await?;
                let changes = changed(writes, &initial, &mut known);
                let changes: String = changes.iter().map(|change| format!("      {change}\n")).collect();
                printable(&format!("● {}\n{changes}", line(meta, false, false)))
            };
            let result = io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush());
            if result.is_err() {
                // Without a reader there is nothing to follow for.
                return written(result).map(|_| Exit::Interrupted);
            }
        }
        shown = new.last().map(|meta| meta.id).or(shown);
        let snapshot = found.open().state().await?;
        let Some(head) = snapshot.checkpoint.as_ref().map(|meta| meta.id) else {
            return Err(location.unknown(thread.as_str()));
        };
        if shown != Some(head) {
            continue;
        }
        if snapshot.next.is_empty() {
            print_note(&format!("thread `{thread}` is finished"));
            return Ok(Exit::Ok);
        }
        if snapshot.only_waits() {
            print_note(&waits(graphs, &location, thread, &snapshot));
            return Ok(Exit::Waiting);
        }
        if is_idle {
            return Err(stopped(&location, thread, &snapshot));
        }
        is_idle = !store.has_writer(thread).await?;
        if is_idle {
            // It may have ended since the head was read.
            continue;
        }
        tokio::select! {
            () = cancel.cancelled() => return Ok(Exit::Interrupted),
            () = next(&mut changes) => {}
            () = tokio::time::sleep(interval) => {}
        }
    }
}

fn waits(graphs: &GraphSet, location: &Location, thread: &ThreadId, snapshot: &JsonSnapshot) -> String {
    if graphs.is_agent {
        return format!(
            "waits for a decision; decide with: {}",
            location.command("resume", &[thread.as_str()])
        );
    }
    questions(location, thread, &snapshot.interrupts().cloned().collect::<Vec<_>>())
}

/// Waits for the next change; forever if none is reported.
async fn next(changes: &mut Option<BoxStream<'static, ()>>) {
    if let Some(reported) = changes
        && reported.next().await.is_some()
    {
        return;
    }
    *changes = None;
    pending().await
}

/// The error for an unfinished thread that no process runs.
fn stopped(location: &Location, thread: &ThreadId, snapshot: &JsonSnapshot) -> SessionError {
    let resume = location.command("resume", &[thread.as_str()]);
    let shown = |node: &NodeName| format!("`{}`", printable_line(node.as_str()));
    let failed = |task: &JsonTask| {
        Some(format!("node {} failed: {}", shown(&task.node), indented(task.error.as_ref()?)))
    };
    let failed: Vec<String> = snapshot.tasks.iter().filter_map(failed).collect();
    if !failed.is_empty() {
        return SessionError::new(ErrorKind::Failed, format!("{}\nresume with: {resume}", failed.join("\n")));
    }
    let next: Vec<_> = snapshot.next.iter().map(shown).collect();
    let message = format!(
        "no process runs thread `{thread}`, which stopped before {}; resume it with: {resume}",
        next.join(", ")
    );
    SessionError::new(ErrorKind::Thread, message)
}

/// Returns the checkpoints after a given one, or else only the newest one, the oldest first.
async fn newer(
    store: &dyn Checkpointer,
    thread: &ThreadId,
    after: Option<CheckpointId>,
) -> Result<Vec<CheckpointMeta>, SessionError> {
    let limit = if after.is_some() { PAGE } else { 1 };
    let mut page = History { limit: Some(limit), ..History::default() };
    let mut new = Vec::new();
    loop {
        let metas = store.history(thread, page.clone()).await?;
        let (read, before) = (metas.len(), new.len());
        new.extend(metas.into_iter().take_while(|meta| after.is_none_or(|after| meta.id > after)));
        // A shorter page is the last one.
        if after.is_none() || new.len() - before < read || read < PAGE {
            break;
        }
        page.before = new.last().map(|meta| meta.id);
    }
    new.reverse();
    Ok(new)
}
