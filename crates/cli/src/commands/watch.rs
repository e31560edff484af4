//! `watch`: follows a thread that another process runs.
//!
//! Start at [`watch_of`].

use std::{
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use serde_json::json;
use superstep::{
    CheckpointId, Checkpointer, History, RunOptions, ThreadId,
    checkpoint::{CheckpointMeta, TaskRecord},
};
use tokio_util::sync::CancellationToken;

use crate::{
    commands::history_tree::{line, writes},
    graphs::{any_graph::AnyGraph, any_thread::AnySnapshot},
    output::{
        exit::{Exit, Failure},
        table::{lines, written},
        text::{print_note, printable},
    },
    session::signals,
};

/// The time between two looks at the head of the thread.
const INTERVAL: Duration = Duration::from_millis(500);

/// The number of checkpoints that are read at once.
const PAGE: usize = 100;

/// Shows the new checkpoints of the thread that the options name, until it is finished or waits, or its run fails. `waits`
/// formats its questions.
pub(crate) async fn watch_of(
    store: Arc<dyn Checkpointer>,
    graph: &dyn AnyGraph,
    options: RunOptions,
    json: bool,
    waits: impl Fn(&AnySnapshot) -> String,
    unknown: impl Fn() -> Failure,
) -> Result<Exit, Failure> {
    graph.open(store.clone(), options.clone()).check_owner().await?;
    let thread = options.get_thread().expect("the options name the thread").clone();
    let cancel = CancellationToken::new();
    let signals = tokio::spawn(signals::watch(cancel.clone()));
    let at = |id: CheckpointId| graph.open(store.clone(), options.clone().at(id));
    // The newest shown checkpoint, and whether the last run of the thread had failed then.
    let mut shown: Option<(CheckpointId, bool)> = None;
    let exit = loop {
        let new = newer(&*store, &thread, shown.map(|(id, _)| id)).await?;
        for meta in &new {
            let text = match json {
                true => lines([json!({ "event": "checkpoint", "data": meta })]),
                false => {
                    let writes = writes(&*store, &thread, meta, &at).await?;
                    let writes: String = writes.iter().map(|write| format!("      {write}\n")).collect();
                    printable(&format!("● {}\n{writes}", line(meta, false, false)))
                }
            };
            let result = io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush());
            if result.is_err() {
                // Without a reader there is nothing to follow for.
                signals.abort();
                return written(result).map(|_| Exit::Interrupted);
            }
        }
        let snapshot = graph.open(store.clone(), options.clone()).state().await?;
        let Some(head) = snapshot.checkpoint.as_ref().map(|meta| meta.id) else { return Err(unknown()) };
        if new.last().is_some_and(|newest| newest.id != head) {
            continue;
        }
        if snapshot.next.is_empty() {
            print_note(&format!("thread `{thread}` is finished"));
            break Exit::Ok;
        }
        let mut unfinished = snapshot.tasks.iter().filter(|task| !task.is_done);
        if unfinished.all(|task| !task.interrupts.is_empty()) {
            print_note(&waits(&snapshot));
            break Exit::Waiting;
        }
        let failed = has_failed(&*store, &thread).await?;
        if failed && shown.is_some_and(|(_, had_failed)| !had_failed) {
            for task in &snapshot.tasks {
                if let Some(error) = &task.error {
                    print_note(&format!("node `{}`: {error}", task.node));
                }
            }
            return Err(Failure::new(Exit::Failed, format!("the run of thread `{thread}` failed")));
        }
        shown = Some((head, failed));
        tokio::select! {
            () = cancel.cancelled() => break Exit::Interrupted,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    };
    signals.abort();
    Ok(exit)
}

/// Returns the checkpoints after a given one, or else only the newest one, the oldest first.
async fn newer(
    store: &dyn Checkpointer,
    thread: &ThreadId,
    after: Option<CheckpointId>,
) -> Result<Vec<CheckpointMeta>, Failure> {
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

/// Returns whether a task of the head failed without another attempt left.
async fn has_failed(store: &dyn Checkpointer, thread: &ThreadId) -> Result<bool, Failure> {
    let loaded = store.load(thread, None).await?;
    let mut tasks = loaded.iter().flat_map(|loaded| &loaded.tasks);
    Ok(tasks.any(|(_, task)| matches!(task, TaskRecord::Failed { attempts: 0, .. })))
}
