//! Checks of stored threads by the graphs of the program: `threads --check`, and the states for `db check` and `import`.
//!
//! Start at [`unresumable`].

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};
use superstep::{
    Checkpointer, RunError, RunOptions, ThreadId,
    checkpoint::{CheckpointMeta, GraphId},
    memory::Dreams,
    thread::StateMismatch,
};

use crate::{
    config::{location::Location, settings::StoredSettings},
    graphs::{any_graph::AnyGraph, any_thread::AnyThread, graph_set::GraphSet},
    output::{
        exit::{Exit, Failure},
        table::{lines, print},
        text::{count, printable_line},
    },
    session::stored_graph::{graph, graph_of},
};

/// The graphs of a program, which open the threads that they own.
pub(crate) trait Owners {
    /// Opens a thread that stores this graph, to resume it; `None` for a graph of another program.
    ///
    /// # Errors
    /// The program cannot make the graph of the thread, or lacks it.
    fn open<'a>(
        &'a self,
        store: &'a Arc<dyn Checkpointer>,
        thread: &'a ThreadId,
        graph: Option<&'a GraphId>,
    ) -> BoxFuture<'a, Result<Option<Box<dyn AnyThread>>, Failure>>;
}

/// The graphs of the agent, and of its dreams.
pub(crate) struct Agents<'l>(pub(crate) &'l Location);

impl Owners for Agents<'_> {
    fn open<'a>(
        &'a self,
        store: &'a Arc<dyn Checkpointer>,
        thread: &'a ThreadId,
        owner: Option<&'a GraphId>,
    ) -> BoxFuture<'a, Result<Option<Box<dyn AnyThread>>, Failure>> {
        Box::pin(async move {
            let is = |name: &str| owner.is_none_or(|owner| owner.name == name);
            let options = RunOptions::new().thread(thread.clone());
            let dream = Dreams::inspection_graph();
            if owner.is_some() && is(dream.name()) {
                return Ok(Some(AnyGraph::open(&dream, store.clone(), options)));
            }
            if !is(graph()?.name()) {
                return Ok(None);
            }
            // Its optional nodes depend on its configuration.
            let graph = graph_of(&StoredSettings::load(&**store, thread, None).await?, self.0)?;
            Ok(Some(AnyGraph::open(&graph, store.clone(), options)))
        })
    }
}

impl Owners for GraphSet {
    fn open<'a>(
        &'a self,
        store: &'a Arc<dyn Checkpointer>,
        thread: &'a ThreadId,
        owner: Option<&'a GraphId>,
    ) -> BoxFuture<'a, Result<Option<Box<dyn AnyThread>>, Failure>> {
        Box::pin(async move {
            let agent = graph()?;
            let of_agent = [agent.name(), Dreams::inspection_graph().name()].map(ToOwned::to_owned);
            if owner.is_some_and(|owner| of_agent.contains(&owner.name) && !self.has(&owner.name)) {
                return Ok(None);
            }
            let graph = self.owner(thread.as_str(), owner)?;
            Ok(Some(graph.open(store.clone(), self.options.clone().thread(thread.clone()))))
        })
    }
}

/// Checks that the program can resume a thread.
///
/// # Errors
/// The reason if it cannot.
pub(crate) async fn check(
    owners: &dyn Owners,
    store: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
    head: &CheckpointMeta,
) -> Result<(), Failure> {
    match owners.open(store, thread, head.graph().as_ref()).await? {
        Some(thread) => Ok(thread.check().await?),
        None => Ok(()),
    }
}

/// Lists the threads that the program cannot resume, with the reasons.
pub(crate) async fn unresumable(
    owners: &dyn Owners,
    location: &Location,
    json: bool,
) -> Result<Exit, Failure> {
    let (mut threads, mut lost) = (0, Vec::new());
    if let Some(store) = location.find()? {
        for (thread, head) in super::threads::heads(&*store).await? {
            threads += 1;
            let checked = match &head {
                Ok(head) => check(owners, &store, &thread, head).await,
                Err(error) => Err(Failure::caused(Exit::Database, error)),
            };
            if let Err(Failure { message, .. }) = checked {
                let graph = head.ok().and_then(|head| head.graph());
                lost.push((thread, graph, message));
            }
        }
    }
    let text = match json {
        true => lines(
            lost.iter()
                .map(|(thread, graph, error)| json!({ "thread": thread, "graph": graph, "error": error })),
        ),
        false => {
            let line = |(thread, _, reason): &(ThreadId, Option<GraphId>, String)| {
                format!("{}: {}\n", printable_line(thread.as_str()), printable_line(reason))
            };
            let summary = match lost.len() {
                0 => format!("this program can resume {}\n", count(threads, "thread")),
                some => format!("this program cannot resume {some} of {}\n", count(threads, "thread")),
            };
            lost.iter().map(line).collect::<String>() + &summary
        }
    };
    print(&text)?;
    Ok(if lost.is_empty() { Exit::Ok } else { Exit::Thread })
}

/// Returns the first checkpoint of a thread whose state is not the stored one. `None` also if the program does not have its graph, or
/// cannot read its values, which is no damage.
pub(crate) async fn mismatch(
    owners: &dyn Owners,
    store: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
    graph: Option<&GraphId>,
) -> Result<Option<StateMismatch>, Failure> {
    let Ok(Some(thread)) = owners.open(store, thread, graph).await else { return Ok(None) };
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
