//! `threads`: lists the threads and their status.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use superstep::{
    Checkpointer, ThreadId,
    agent::AgentOutcome,
    checkpoint::{CheckpointMeta, TaskRecord},
    memory::Dreams,
};
use superstep_session::{
    config::{location::Location, settings::StoredSettings},
    error::{ErrorKind, SessionError},
    live::title,
    text::printable_line,
    turn::stored_graph::graph,
};

use crate::{
    args::shared::{DatabaseArgs, Locate, ThreadsArgs},
    commands::{
        checks::{check, unresumable},
        heads::heads,
    },
    graphs::graph_set::GraphSet,
    inspect::status::ThreadStatus,
    output::{
        exit::Exit,
        table::{formatted, lines, local_time, new_table, print},
    },
};

/// The status of a listed thread, as text and as entries of its JSON form.
pub(crate) struct Status {
    text: String,
    /// The first line of the first message.
    title: Option<String>,
    model: Option<String>,
    json: Map<String, Value>,
}

impl From<ThreadStatus> for Status {
    fn from(status: ThreadStatus) -> Self {
        let outcome = status.outcome.map(AgentOutcome::as_str);
        let json = [("outcome".to_owned(), json!(outcome)), ("waits".to_owned(), json!(status.waits))];
        Self { text: status.status(), title: None, model: None, json: Map::from_iter(json) }
    }
}

/// Lists the threads, the newest first, and damaged ones last.
pub(crate) async fn threads<L: Locate>(
    args: ThreadsArgs<L>,
    graphs: &GraphSet,
) -> Result<Exit, SessionError> {
    let ThreadsArgs { check, search, limit, database: DatabaseArgs { location, json } } = args;
    let location = location.locate(&graphs.program)?;
    if check {
        return unresumable(graphs, &location, json).await;
    }
    let mut listed = Vec::new();
    if let Some(store) = location.find()? {
        for (thread, head) in heads(&*store).await? {
            let (head, status) = match head {
                Ok(head) => {
                    let status = status(graphs, &location, &store, &thread, &head).await;
                    (Some(head), status)
                }
                Err(error) => (None, Err(error.into())),
            };
            listed.push((thread, head, status));
        }
    }
    let is_searched = search.is_some();
    if let Some(text) = search.map(|text| text.to_lowercase()) {
        listed.retain(|(thread, _, status)| {
            let status = status.as_ref().ok();
            let texts = status.into_iter().flat_map(|status| [&status.title, &status.model]).flatten();
            let mut texts = texts.map(String::as_str).chain([thread.as_str()]);
            texts.any(|found| found.to_lowercase().contains(&text))
        });
    }
    listed.truncate(limit.unwrap_or(usize::MAX));
    if json {
        return print(&lines(listed.into_iter().map(|(thread, head, status)| {
            let mut line = head_json(&thread, head.as_ref());
            line.extend(match status {
                Ok(status) => status.json,
                Err(error) => Map::from_iter([("error".to_owned(), error.message.into())]),
            });
            line
        })));
    }
    let is_agent = graphs.is_agent;
    if listed.is_empty() && is_searched {
        return print("no thread has this text in its name, title or model\n");
    }
    if listed.is_empty() {
        let begin = if is_agent { "superstep run \"...\"".to_owned() } else { location.command("run", &[]) };
        return print(&format!("no threads yet; begin one with: {begin}\n"));
    }
    let columns = match is_agent {
        true => &["THREAD", "UPDATED", "MODEL", "STATUS", "TITLE"][..],
        false => &["THREAD", "GRAPH", "CHECKPOINT", "UPDATED", "STATUS"],
    };
    let mut table = new_table(columns);
    for (thread, head, status) in &listed {
        let head = head.as_ref();
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let of = |field: fn(&Status) -> &Option<String>| {
            or_none(status.as_ref().ok().and_then(|status| field(status).as_deref().map(printable_line)))
        };
        let text = match status {
            Ok(status) => printable_line(&status.text),
            Err(failure) => lost(failure, head),
        };
        let name = printable_line(thread.as_str());
        let updated = or_none(head.map(|head| local_time(head.created_ms)));
        table.add_row(match is_agent {
            true => [name, updated, of(|status| &status.model), text, of(|status| &status.title)],
            false => {
                let graph = head.and_then(CheckpointMeta::graph).map(|graph| printable_line(&graph.name));
                [name, or_none(graph), or_none(head.map(|head| head.id.to_string())), updated, text]
            }
        });
    }
    print(&formatted(table))
}

/// Returns the status of a thread that cannot be read, that the program cannot resume, or that has no checkpoints.
fn lost(failure: &SessionError, head: Option<&CheckpointMeta>) -> String {
    match (failure.kind, head) {
        (ErrorKind::Database, _) => "cannot be read",
        (_, Some(_)) => "cannot be resumed, see `threads --check`",
        (_, None) => "has no checkpoints",
    }
    .to_owned()
}

/// Returns the JSON form of a listed thread, without its status.
fn head_json(thread: &ThreadId, head: Option<&CheckpointMeta>) -> Map<String, Value> {
    let entries = [
        ("thread", json!(thread)),
        ("checkpoint", json!(head.map(|head| head.id))),
        ("step", json!(head.map(|head| head.control.step))),
        ("next", json!(head.map(|head| &head.control.next))),
        ("updated_ms", json!(head.map(|head| head.created_ms))),
        ("graph", json!(head.and_then(CheckpointMeta::graph))),
    ];
    entries.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}

/// Returns the status of a thread at its head.
async fn status(
    graphs: &GraphSet,
    location: &Location,
    store: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
    head: &CheckpointMeta,
) -> Result<Status, SessionError> {
    if graphs.is_agent {
        status_of_turn(graphs, location, store, thread, head).await
    } else {
        status_of_run(graphs, location, store, thread, head).await
    }
}

async fn status_of_turn(
    graphs: &GraphSet,
    location: &Location,
    store: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
    head: &CheckpointMeta,
) -> Result<Status, SessionError> {
    let next = head.control.next.clone();
    // A dream is not a turn of a user.
    if Dreams::is_thread(thread) {
        return Ok(ThreadStatus { next, ..ThreadStatus::default() }.into());
    }
    let graph = graph()?.with_checkpointer(store.clone());
    if let Some(other) = head.graph().filter(|owner| owner.name != graph.name()) {
        return Ok(ThreadStatus { next, other: Some(other), ..ThreadStatus::default() }.into());
    }
    let snapshot = graph.thread(thread).state().await;
    let snapshot = snapshot.map_err(|error| SessionError::caused(ErrorKind::Database, &error))?;
    if !snapshot.next.is_empty() {
        check(graphs, location, store, thread, head).await?;
    }
    let mut status = Status::from(ThreadStatus::of(&snapshot));
    status.title = title(&snapshot.values);
    // Settings that cannot be read hide no thread.
    status.model = StoredSettings::load(&**store, thread, None).await.ok().and_then(|stored| stored.model);
    status.json.extend([
        ("title".to_owned(), json!(status.title)),
        ("model".to_owned(), json!(status.model)),
        ("usage".to_owned(), json!(snapshot.values.usage)),
    ]);
    Ok(status)
}

async fn status_of_run(
    graphs: &GraphSet,
    location: &Location,
    store: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
    head: &CheckpointMeta,
) -> Result<Status, SessionError> {
    let status = |text: String| {
        let json = Map::from_iter([("status".to_owned(), text.as_str().into())]);
        Ok(Status { text, title: None, model: None, json })
    };
    if let Some(owner) = head.graph().filter(|owner| !graphs.has(&owner.name)) {
        return status(format!("belongs to graph {owner}"));
    }
    check(graphs, location, store, thread, head).await?;
    if head.control.next.is_empty() {
        return status("finished".to_owned());
    }
    let loaded = store.load(thread, None).await?;
    if loaded.iter().flat_map(|loaded| &loaded.tasks).any(|(_, task)| is_waiting(task)) {
        return status("waits for an answer".to_owned());
    }
    let next: Vec<_> = head.control.next.iter().map(|node| printable_line(node.as_str())).collect();
    status(format!("stopped before {}", next.join(", ")))
}

fn is_waiting(task: &TaskRecord) -> bool {
    match task {
        TaskRecord::Interrupted { questions, .. } => !questions.is_empty(),
        TaskRecord::Handled { handler, .. } => is_waiting(handler),
        _ => false,
    }
}
