//! `threads`: lists the threads of a program with graphs of its own.

use std::sync::Arc;

use superstep::{
    Checkpointer, ThreadId,
    checkpoint::{CheckpointMeta, TaskRecord},
};

use crate::{
    args::shared::{OwnDatabaseArgs, ThreadsArgs},
    commands::{
        checks::{self, unresumable},
        threads::{head_json, heads, lost},
    },
    config::location::Location,
    graphs::graph_set::GraphSet,
    output::{
        exit::{Exit, Failure},
        table::{formatted, lines, new_table, print, time},
        text::printable_line,
    },
};

/// Lists the threads, the newest first, and damaged ones last.
pub(crate) async fn threads(
    args: ThreadsArgs<OwnDatabaseArgs>,
    program: &str,
    graphs: &GraphSet,
) -> Result<Exit, Failure> {
    let ThreadsArgs { check, database: OwnDatabaseArgs { db, json } } = args;
    let location = Location::new(program, db, None)?;
    if check {
        return unresumable(graphs, &location, json).await;
    }
    let mut listed = Vec::new();
    if let Some(store) = location.find()? {
        for (thread, head) in heads(&*store).await? {
            let (head, status) = match head {
                Ok(head) => {
                    let status = status(&store, graphs, &thread, &head).await;
                    (Some(head), status)
                }
                Err(error) => (None, Err(error.into())),
            };
            listed.push((thread, head, status));
        }
    }
    if json {
        return print(&lines(listed.iter().map(|(thread, head, status)| {
            let mut line = head_json(thread, head.as_ref());
            match status {
                Ok(status) => line["status"] = status.as_str().into(),
                Err(error) => line["error"] = error.message.as_str().into(),
            }
            line
        })));
    }
    if listed.is_empty() {
        return print(&format!("no threads yet; begin one with: {}\n", location.command("run", &[])));
    }
    let mut table = new_table(&["THREAD", "GRAPH", "CHECKPOINT", "UPDATED", "STATUS"]);
    for (thread, head, status) in &listed {
        let head = head.as_ref();
        let graph = head.and_then(CheckpointMeta::graph);
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        table.add_row([
            printable_line(thread.as_str()),
            or_none(graph.map(|graph| printable_line(&graph.name))),
            or_none(head.map(|head| head.id.to_string())),
            or_none(head.map(|head| time(head.created_ms))),
            status.as_deref().map_or_else(|failure| lost(failure, head), printable_line),
        ]);
    }
    print(&formatted(table))
}

/// Returns the status of a thread at its head.
async fn status(
    store: &Arc<dyn Checkpointer>,
    graphs: &GraphSet,
    thread: &ThreadId,
    head: &CheckpointMeta,
) -> Result<String, Failure> {
    if let Some(owner) = head.graph().filter(|owner| graphs.named(Some(&owner.name)).is_err()) {
        return Ok(format!("belongs to graph {owner}"));
    }
    checks::check(graphs, store, thread, head).await?;
    if head.control.next.is_empty() {
        return Ok("finished".to_owned());
    }
    let loaded = store.load(thread, None).await?;
    let waits = loaded.iter().flat_map(|loaded| &loaded.tasks).any(|(_, task)| is_waiting(task));
    if waits {
        return Ok("waits for an answer".to_owned());
    }
    let next: Vec<_> = head.control.next.iter().map(|node| printable_line(node.as_str())).collect();
    Ok(format!("stopped before {}", next.join(", ")))
}

fn is_waiting(task: &TaskRecord) -> bool {
    match task {
        TaskRecord::Interrupted { questions, .. } => !questions.is_empty(),
        TaskRecord::Handled { handler, .. } => is_waiting(handler),
        _ => false,
    }
}
