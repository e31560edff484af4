//! `superstep threads`: lists the threads and their status.

use std::{cmp::Reverse, sync::Arc};

use serde_json::{Value, json};
use superstep::{
    Checkpointer, CompiledGraph, History, ThreadId,
    agent::{AgentOutcome, AgentState},
    checkpoint::{CheckpointError, CheckpointMeta, GraphId},
    memory::Dreams,
    node::NodeName,
    thread::StateSnapshot,
};

use crate::{
    args::shared::{DatabaseArgs, ThreadsArgs},
    commands::checks::{Agents, check, unresumable},
    config::location::{Location, is_unreadable},
    output::{
        exit::{Exit, Failure},
        table::{formatted, lines, new_table, print, time},
        text::{print_note, printable_line},
    },
    session::stored_graph::graph,
};

/// The status of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadStatus {
    next: Vec<NodeName>,
    /// The outcome of its last turn, if it ended.
    outcome: Option<AgentOutcome>,
    /// The calls that wait for a decision.
    waits: Vec<String>,
    /// The graph of the thread, if it is not one of the program's.
    other: Option<GraphId>,
}

impl ThreadStatus {
    pub(crate) fn of(snapshot: &StateSnapshot<AgentState>) -> Self {
        let asked = snapshot.tasks.iter().flat_map(|task| &task.interrupts);
        Self {
            next: snapshot.next.clone(),
            outcome: snapshot.values.outcome.filter(|_| snapshot.next.is_empty()),
            waits: asked.map(|asked| asked.key.clone()).collect(),
            other: None,
        }
    }

    /// Formats the status.
    pub(crate) fn status(&self) -> String {
        if let Some(other) = &self.other {
            return format!("belongs to graph {}", printable_line(&other.to_string()));
        }
        match self.outcome {
            _ if !self.waits.is_empty() => "waits for a decision".to_owned(),
            _ if !self.next.is_empty() => {
                let next: Vec<_> = self.next.iter().map(|node| printable_line(node.as_str())).collect();
                format!("stopped before {}", next.join(", "))
            }
            Some(AgentOutcome::Cancelled) => "cancelled".to_owned(),
            Some(AgentOutcome::LlmError) => "no model".to_owned(),
            Some(outcome) if outcome.is_unanswered() => outcome.as_str().to_owned(),
            _ => "finished".to_owned(),
        }
    }
}

/// A listed thread.
struct Listed {
    thread: ThreadId,
    /// The newest checkpoint; `None` if it cannot be read.
    head: Option<CheckpointMeta>,
    standing: Result<ThreadStatus, Failure>,
}

/// Lists the threads.
pub(crate) async fn threads(args: ThreadsArgs<DatabaseArgs>) -> Result<Exit, Failure> {
    let ThreadsArgs { check, database: DatabaseArgs { location, json } } = args;
    let location = location.locate()?;
    if check {
        return unresumable(&Agents(&location), &location, json).await;
    }
    let threads = match location.find()? {
        Some(store) => listed(&location, store.clone(), &graph()?.with_checkpointer(store)).await?,
        None => Vec::new(),
    };
    if json {
        return print(&lines(threads.iter().map(|listed| {
            let mut line = head_json(&listed.thread, listed.head.as_ref());
            match &listed.standing {
                Ok(ThreadStatus { outcome, waits, .. }) => {
                    line["outcome"] = outcome.map(AgentOutcome::as_str).into();
                    line["waits"] = json!(waits);
                }
                Err(error) => line["error"] = error.message.as_str().into(),
            }
            line
        })));
    }
    if threads.is_empty() {
        return print("no threads yet; begin one with: superstep run \"...\"\n");
    }
    let mut table = new_table(&["THREAD", "CHECKPOINT", "UPDATED", "STATUS"]);
    for Listed { thread, head, standing } in &threads {
        table.add_row([
            printable_line(thread.as_str()),
            head.as_ref().map_or_else(|| "-".to_owned(), |head| head.id.to_string()),
            head.as_ref().map_or_else(|| "-".to_owned(), |head| time(head.created_ms)),
            standing.as_ref().map_or_else(|failure| lost(failure, head.as_ref()), ThreadStatus::status),
        ]);
    }
    print(&formatted(table))
}

/// Returns the status of a thread that cannot be read, that the program cannot resume, or that has no checkpoints.
pub(crate) fn lost(failure: &Failure, head: Option<&CheckpointMeta>) -> String {
    match (failure.exit, head) {
        (Exit::Database, _) => "cannot be read",
        (_, Some(_)) => "cannot be resumed, see `threads --check`",
        (_, None) => "has no checkpoints",
    }
    .to_owned()
}

/// Returns the JSON form of a listed thread, without its status.
pub(crate) fn head_json(thread: &ThreadId, head: Option<&CheckpointMeta>) -> Value {
    json!({
        "thread": thread,
        "checkpoint": head.map(|head| head.id),
        "step": head.map(|head| head.control.step),
        "next": head.map(|head| &head.control.next),
        "updated_ms": head.map(|head| head.created_ms),
        "graph": head.and_then(CheckpointMeta::graph),
    })
}

/// Returns the errors of the threads without checkpoints of which something else is stored.
pub(crate) async fn orphans(
    store: &dyn Checkpointer,
) -> Result<Vec<(ThreadId, CheckpointError)>, CheckpointError> {
    let mut orphans = Vec::new();
    for thread in store.orphans().await? {
        let children = store.children(&thread).await?;
        orphans.push((thread.clone(), CheckpointError::Leftovers { thread, children }));
    }
    Ok(orphans)
}

/// Returns the threads with their heads, the newest first, and those that cannot be read last. A note reports the first missing
/// key.
pub(crate) async fn heads(
    store: &dyn Checkpointer,
) -> Result<Vec<(ThreadId, Result<CheckpointMeta, CheckpointError>)>, Failure> {
    let mut heads = readable_heads(store).await?;
    heads.extend(orphans(store).await?.into_iter().map(|(thread, error)| (thread, Err(error))));
    Ok(heads)
}

async fn readable_heads(
    store: &dyn Checkpointer,
) -> Result<Vec<(ThreadId, Result<CheckpointMeta, CheckpointError>)>, Failure> {
    match store.threads().await {
        Ok(heads) => Ok(heads.into_iter().map(|(thread, head)| (thread, Ok(head))).collect()),
        // One of them cannot be read. The others are read one by one.
        Err(error) if is_unreadable(&error) => {
            let (mut heads, mut is_noted) = (Vec::new(), false);
            for thread in store.names().await? {
                match store.history(&thread, History { limit: Some(1), ..History::default() }).await {
                    Ok(head) => heads.extend(head.into_iter().map(|head| (thread.clone(), Ok(head)))),
                    Err(error) if is_unreadable(&error) => {
                        if let (CheckpointError::Key { .. }, false) = (&error, is_noted) {
                            print_note(&error.to_string());
                            is_noted = true;
                        }
                        heads.push((thread, Err(error)));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            heads.sort_by_key(|(_, head)| Reverse(head.as_ref().map_or(i64::MIN, |head| head.created_ms)));
            Ok(heads)
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the threads with their status.
async fn listed(
    location: &Location,
    store: Arc<dyn Checkpointer>,
    graph: &CompiledGraph<AgentState>,
) -> Result<Vec<Listed>, Failure> {
    let heads = heads(&*store).await?;
    let mut listed = Vec::with_capacity(heads.len());
    for (thread, head) in heads {
        let (head, standing) = match head {
            Err(error) => (None, Err(error.into())),
            // A dream is not a turn of a user.
            Ok(head) if Dreams::is_thread(&thread) => {
                let standing = ThreadStatus { next: head.control.next.clone(), ..ThreadStatus::default() };
                (Some(head), Ok(standing))
            }
            Ok(head) if head.graph().is_some_and(|owner| owner.name != graph.name()) => {
                let (next, other) = (head.control.next.clone(), head.graph());
                let standing = ThreadStatus { next, other, ..ThreadStatus::default() };
                (Some(head), Ok(standing))
            }
            Ok(head) => {
                let snapshot = graph.thread(&thread).state().await;
                let standing = match &snapshot {
                    Ok(snapshot) if snapshot.next.is_empty() => Ok(ThreadStatus::of(snapshot)),
                    Ok(snapshot) => {
                        let checked = check(&Agents(location), &store, &thread, &head).await;
                        checked.map(|()| ThreadStatus::of(snapshot))
                    }
                    Err(error) => Err(Failure::caused(Exit::Database, error)),
                };
                (Some(head), standing)
            }
        };
        listed.push(Listed { thread, head, standing });
    }
    Ok(listed)
}
