//! `threads`: lists the threads and their status.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use superstep::{
    Checkpointer, ThreadId,
    agent::AgentOutcome,
    checkpoint::{CheckpointMeta, TaskRecord},
    clock::{Clock as _, SystemClock},
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
    args::shared::{DatabaseArgs, Locate, StatusFilter, ThreadsArgs},
    commands::{
        checks::{check, unresumable},
        heads::heads,
    },
    graphs::graph_set::GraphSet,
    inspect::status::ThreadStatus,
    output::{
        exit::Exit,
        table::{formatted, lines, local_time, new_table, print, terminal_width},
    },
};

/// The characters of titles that other columns leave.
const MIN_TITLE: usize = 16;

/// The status of a listed thread, as text and as entries of its JSON form.
pub(crate) struct Status {
    text: String,
    /// The first line of the first message.
    title: Option<String>,
    model: Option<String>,
    /// The estimated cost of the last turn.
    cost: Option<String>,
    /// The folder of the tools.
    folder: Option<String>,
    kind: StatusFilter,
    json: Map<String, Value>,
}

impl From<ThreadStatus> for Status {
    fn from(status: ThreadStatus) -> Self {
        let outcome = status.outcome.map(AgentOutcome::as_str);
        let json = [("outcome".to_owned(), json!(outcome)), ("waits".to_owned(), json!(status.waits))];
        let (title, model, cost, folder) = Default::default();
        let (text, kind, json) = (status.status(), kind(&status), Map::from_iter(json));
        Self { text, title, model, cost, folder, kind, json }
    }
}

fn kind(status: &ThreadStatus) -> StatusFilter {
    match status {
        ThreadStatus { other: Some(_), .. } => StatusFilter::Failed,
        ThreadStatus { waits, .. } if !waits.is_empty() => StatusFilter::Waiting,
        ThreadStatus { next, outcome, .. }
            if !next.is_empty() || outcome.is_some_and(AgentOutcome::is_unanswered) =>
        {
            StatusFilter::Stopped
        }
        _ => StatusFilter::Finished,
    }
}

/// Lists the threads, the newest first, and damaged ones last.
pub(crate) async fn threads<L: Locate>(
    args: ThreadsArgs<L>,
    graphs: &GraphSet,
) -> Result<Exit, SessionError> {
    let ThreadsArgs {
        check,
        search,
        status: wanted,
        since,
        limit,
        database: DatabaseArgs { location, json },
    } = args;
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
    let is_searched = search.is_some() || wanted.is_some() || since.is_some();
    if let Some(wanted) = wanted {
        let kind = |status: &Result<Status, _>| status.as_ref().map_or(StatusFilter::Failed, |it| it.kind);
        listed.retain(|(.., status)| kind(status) == wanted);
    }
    if let Some(age) = since {
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let since = SystemClock.now_ms().saturating_sub(age);
        listed.retain(|(_, head, _)| head.as_ref().is_some_and(|head| head.created_ms >= since));
    }
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
        return print("no thread is like this\n");
    }
    if listed.is_empty() {
        let begin = if is_agent { "superstep run \"...\"".to_owned() } else { location.command("run", &[]) };
        return print(&format!("no threads yet; begin one with: {begin}\n"));
    }
    let columns = match is_agent {
        true => &["THREAD", "UPDATED", "MODEL", "STATUS", "COST", "FOLDER", "TITLE"][..],
        false => &["THREAD", "GRAPH", "CHECKPOINT", "UPDATED", "STATUS"],
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
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
        rows.push(match is_agent {
            true => {
                let (model, cost) = (of(|status| &status.model), of(|status| &status.cost));
                let folder = of(|status| &status.folder);
                vec![name, updated, model, text, cost, folder, of(|status| &status.title)]
            }
            false => {
                let graph = head.and_then(CheckpointMeta::graph).map(|graph| printable_line(&graph.name));
                vec![name, or_none(graph), or_none(head.map(|head| head.id.to_string())), updated, text]
            }
        });
    }
    let fits = if is_agent { fitting(columns, &rows, terminal_width()) } else { vec![true; columns.len()] };
    let chosen =
        |row: Vec<String>| row.into_iter().zip(&fits).filter(|(_, fits)| **fits).map(|(cell, _)| cell);
    let header: Vec<String> = chosen(columns.iter().map(ToString::to_string).collect()).collect();
    let mut table = new_table(&header.iter().map(String::as_str).collect::<Vec<_>>());
    rows.into_iter().for_each(|row| _ = table.add_row(chosen(row)));
    print(&formatted(table))
}

/// Returns which columns are shown: costs and folders only if some thread has one, and if the titles keep their place in the width of
/// the terminal.
fn fitting(columns: &[&str], rows: &[Vec<String>], width: Option<u16>) -> Vec<bool> {
    let cells = |column: usize| rows.iter().map(move |row| row[column].as_str());
    let chars = |column: usize| {
        let most = if columns[column] == "TITLE" { MIN_TITLE } else { usize::MAX };
        let longest = cells(column).chain([columns[column]]).map(|cell| cell.chars().count()).max();
        longest.unwrap_or_default().min(most) + 2
    };
    let is_optional = |column: &usize| matches!(columns[*column], "COST" | "FOLDER");
    let mut fits: Vec<bool> = (0..columns.len()).map(|column| !is_optional(&column)).collect();
    for column in (0..columns.len()).filter(is_optional) {
        fits[column] = true;
        let all: usize = (0..columns.len()).filter(|at| fits[*at]).map(chars).sum();
        let has_some = cells(column).any(|cell| cell != "-");
        fits[column] = has_some && width.is_none_or(|width| all <= usize::from(width));
    }
    fits
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
    let stored = StoredSettings::load(&**store, thread, None).await.unwrap_or_default();
    (status.model, status.folder) = (stored.model, stored.cwd.filter(|_| location.has_own_db()));
    let cost = snapshot.values.cost().map(|cost| cost.nano_dollars).filter(|cost| cost.0 > 0);
    status.cost = cost.map(|cost| cost.to_string());
    status.json.extend([
        ("estimated_cost".to_owned(), json!(cost)),
        ("folder".to_owned(), json!(status.folder)),
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
    let status = |text: String, kind: StatusFilter| {
        let json = Map::from_iter([("status".to_owned(), text.as_str().into())]);
        let (title, model, cost, folder) = Default::default();
        Ok(Status { text, title, model, cost, folder, kind, json })
    };
    if let Some(owner) = head.graph().filter(|owner| !graphs.has(&owner.name)) {
        return status(format!("belongs to graph {owner}"), StatusFilter::Failed);
    }
    check(graphs, location, store, thread, head).await?;
    if head.control.next.is_empty() {
        return status("finished".to_owned(), StatusFilter::Finished);
    }
    let loaded = store.load(thread, None).await?;
    if loaded.iter().flat_map(|loaded| &loaded.tasks).any(|(_, task)| is_waiting(task)) {
        return status("waits for an answer".to_owned(), StatusFilter::Waiting);
    }
    let next: Vec<_> = head.control.next.iter().map(|node| printable_line(node.as_str())).collect();
    status(format!("stopped before {}", next.join(", ")), StatusFilter::Stopped)
}

fn is_waiting(task: &TaskRecord) -> bool {
    match task {
        TaskRecord::Interrupted { questions, .. } => !questions.is_empty(),
        TaskRecord::Handled { handler, .. } => is_waiting(handler),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_and_folders_are_shown_where_they_fit() {
        let columns = ["THREAD", "STATUS", "COST", "FOLDER", "TITLE"];
        let row = |cost: &str, folder: &str| {
            ["t-20261127-125354-a3be", "finished", cost, folder, "a title of more than sixteen characters"]
                .map(str::to_owned)
                .to_vec()
        };
        let shown = |rows: &[Vec<String>], width| {
            let fits = fitting(&columns, rows, width);
            (fits[2], fits[3], [fits[0], fits[1], fits[4]])
        };
        let rows = [row("$0.0120", "/home/ada/a-folder-of-some-length"), row("-", "-")];
        assert_eq!(shown(&rows, None), (true, true, [true; 3]));
        assert_eq!(shown(&rows, Some(100)), (true, true, [true; 3]));
        assert_eq!(shown(&rows, Some(80)), (true, false, [true; 3]));
        assert_eq!(shown(&rows, Some(40)), (false, false, [true; 3]));
        assert_eq!(shown(&[row("-", "-")], None), (false, false, [true; 3]), "no thread has any");
    }
}
