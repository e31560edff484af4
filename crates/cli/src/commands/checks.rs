//! Checks of stored threads by the graphs of the program: `threads --check`, and the states for `db check` and `import`.
//!
//! Start at [`unresumable`].

use std::sync::Arc;

use serde_json::{Map, Value, json};
use superstep::{
    Checkpointer, RunError, ThreadId,
    checkpoint::{CheckpointMeta, GraphId},
    erased::{JsonGraph, JsonThread},
    memory::Dreams,
    thread::StateMismatch,
};
use superstep_session::{
    config::{location::Location, settings::StoredSettings},
    error::{ErrorKind, SessionError},
    text::{count, printable_line},
    turn::stored_graph::{graph, graph_of},
};

use crate::{
    commands::heads::heads,
    graphs::graph_set::GraphSet,
    output::{
        exit::Exit,
        table::{lines, print},
    },
};

/// Opens a thread that stores this graph, to resume it; `None` for a graph of another program.
///
/// # Errors
/// The program cannot make the graph of the thread, or lacks it.
async fn open(
    graphs: &GraphSet,
    location: &Location,
    store: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
    stored: Option<&GraphId>,
) -> Result<Option<Box<dyn JsonThread>>, SessionError> {
    let options = graphs.options.clone().thread(thread.clone());
    let opened = |graph: Arc<dyn JsonGraph>| graph.with_checkpointer(store.clone()).thread(options);
    let agent = graph()?.name().to_owned();
    let dream = Dreams::inspection_graph();
    let is = |name: &str| stored.is_some_and(|stored| stored.name == name);
    if !graphs.is_agent {
        if [&*agent, dream.name()].into_iter().any(|name| is(name) && !graphs.has(name)) {
            return Ok(None);
        }
        return Ok(Some(opened(graphs.owner(thread, stored)?.clone())));
    }
    if is(dream.name()) {
        return Ok(Some(opened(dream.into())));
    }
    if stored.is_some() && !is(&agent) {
        return Ok(None);
    }
    // Its optional nodes depend on its configuration.
    let graph = graph_of(&StoredSettings::load(&**store, thread, None).await?, location)?;
    Ok(Some(opened(graph.into())))
}

/// Checks that the program can resume a thread.
///
/// # Errors
/// The reason if it cannot.
pub(crate) async fn check(
    graphs: &GraphSet,
    location: &Location,
    store: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
    head: &CheckpointMeta,
) -> Result<(), SessionError> {
    match open(graphs, location, store, thread, head.graph().as_ref()).await? {
        Some(thread) => Ok(thread.check().await?),
        None => Ok(()),
    }
}

/// Lists the threads that the program cannot resume, with the reasons.
pub(crate) async fn unresumable(
    graphs: &GraphSet,
    location: &Location,
    json: bool,
) -> Result<Exit, SessionError> {
    let (mut all, mut lost) = (0, Vec::new());
    if let Some(store) = location.find()? {
        for (thread, head) in heads(&*store).await? {
            all += 1;
            let checked = match &head {
                Ok(head) => check(graphs, location, &store, &thread, head).await,
                Err(error) => Err(SessionError::caused(ErrorKind::Database, error)),
            };
            if let Err(SessionError { message, .. }) = checked {
                let graph = head.ok().and_then(|head| head.graph());
                lost.push((thread, graph, message));
            }
        }
    }
    let text = if json {
        let line = |(thread, graph, error): &(ThreadId, Option<GraphId>, String)| json!({ "thread": thread, "graph": graph, "error": error });
        lines(lost.iter().map(line))
    } else {
        let line = |(thread, _, reason): &(ThreadId, Option<GraphId>, String)| {
            format!("{}: {}\n", printable_line(thread.as_str()), printable_line(reason))
        };
        let summary = match lost.len() {
            0 => format!("this program can resume {}\n", count(all, "thread")),
            some => format!("this program cannot resume {some} of {}\n", count(all, "thread")),
        };
        lost.iter().map(line).collect::<String>() + &summary
    };
    print(&text)?;
    Ok(if lost.is_empty() { Exit::Ok } else { Exit::Thread })
}

/// Returns the first checkpoint of a thread whose state is not the stored one. `None` even if the program does not have its graph, or
/// cannot read its values, which is no damage.
pub(crate) async fn mismatch(
    graphs: &GraphSet,
    location: &Location,
    store: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
    graph: Option<&GraphId>,
) -> Result<Option<StateMismatch>, SessionError> {
    let Ok(Some(thread)) = open(graphs, location, store, thread, graph).await else { return Ok(None) };
    match thread.check_states().await {
        Ok(mismatch) => Ok(mismatch),
        Err(RunError::Checkpoint(error)) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// Returns the JSON form of such a checkpoint.
pub(crate) fn mismatch_json(thread: &ThreadId, mismatch: &StateMismatch) -> Value {
    let mut line = Map::new();
    line.insert("thread".to_owned(), json!(thread));
    if let Value::Object(entries) = json!(mismatch) {
        line.extend(entries);
    }
    line.into()
}
