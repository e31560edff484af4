//! The graphs of a program, as the commands that both kinds of programs have use them.
//!
//! Start at [`Graphs`].

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};
use superstep::{
    CheckpointId, Checkpointer, RunError, RunOptions, ThreadId,
    checkpoint::{CheckpointError, CheckpointMeta, GraphId, Retention},
    memory::Dreams,
    thread::StateMismatch,
};

use crate::{
    args::shared::AGENT,
    commands::{
        thread_admin,
        threads::{self, Status},
    },
    config::{location::Location, settings::StoredSettings},
    graphs::{
        any_graph::AnyGraph,
        any_thread::{AnySnapshot, AnyThread},
        graph_set::GraphSet,
    },
    output::{
        exit::{Exit, Failure},
        table::{lines, print},
        text::{count, printable_line},
    },
    session::{
        own_run::questions,
        stored_graph::{graph, graph_of},
    },
};

/// The graphs of a program.
pub(crate) trait Graphs: Sync {
    /// Returns the name of the program.
    fn program(&self) -> &str;

    /// Returns whether the program is that of the agent.
    fn is_agent(&self) -> bool;

    /// Returns the options of all runs.
    fn options(&self) -> RunOptions;

    /// Returns the graph of a thread that stores this graph, to inspect the thread.
    ///
    /// # Errors
    /// The program lacks it.
    fn graph_of(&self, thread: &ThreadId, stored: Option<&GraphId>) -> Result<Arc<dyn AnyGraph>, Failure>;

    /// Opens a thread that stores this graph, to resume it; `None` for a graph of another program.
    ///
    /// # Errors
    /// The program cannot make the graph of the thread, or lacks it.
    fn open<'a>(
        &'a self,
        location: &'a Location,
        store: &'a Arc<dyn Checkpointer>,
        thread: &'a ThreadId,
        stored: Option<&'a GraphId>,
    ) -> BoxFuture<'a, Result<Option<Box<dyn AnyThread>>, Failure>>;

    /// Returns the status of a thread at its head.
    fn status<'a>(
        &'a self,
        location: &'a Location,
        store: &'a Arc<dyn Checkpointer>,
        thread: &'a ThreadId,
        head: &'a CheckpointMeta,
    ) -> BoxFuture<'a, Result<Status, Failure>>;

    /// Formats the questions of a thread that waits.
    fn waits(&self, location: &Location, thread: &ThreadId, snapshot: &AnySnapshot) -> String;

    /// Deletes older checkpoints of a thread, and returns their number.
    fn prune<'a>(
        &'a self,
        location: &'a Location,
        store: Arc<dyn Checkpointer>,
        thread: &'a ThreadId,
        keep: Retention,
    ) -> BoxFuture<'a, Result<usize, Failure>>;
}

/// A thread of a database with its graph.
pub(crate) struct Found {
    pub(crate) graph: Arc<dyn AnyGraph>,
    pub(crate) store: Arc<dyn Checkpointer>,
    pub(crate) name: ThreadId,
    /// The options of the program for this thread.
    pub(crate) options: RunOptions,
}

impl Found {
    /// Opens the thread at its head.
    pub(crate) fn open(&self) -> Box<dyn AnyThread> {
        self.open_at(None)
    }

    /// Opens the thread at a checkpoint, or at its head.
    pub(crate) fn open_at(&self, at: Option<CheckpointId>) -> Box<dyn AnyThread> {
        self.graph.open(self.store.clone(), self.options.clone().at(at))
    }
}

/// Finds a thread in the database of a command, to inspect it.
///
/// # Errors
/// The thread does not exist, or belongs to another graph.
pub(crate) async fn find(
    graphs: &dyn Graphs,
    location: &Location,
    name: &str,
    at: Option<CheckpointId>,
) -> Result<Found, Failure> {
    find_in(graphs, location.existing(name)?, &ThreadId::from(name), at)
        .await?
        .ok_or_else(|| location.unknown(name))
}

/// Finds a thread in a database, to inspect it; `None` if it does not exist.
///
/// # Errors
/// The thread belongs to another graph.
pub(crate) async fn find_in(
    graphs: &dyn Graphs,
    store: Arc<dyn Checkpointer>,
    thread: &ThreadId,
    at: Option<CheckpointId>,
) -> Result<Option<Found>, Failure> {
    let loaded = match store.load(thread, None).await {
        // An older checkpoint of a damaged thread may be readable.
        Err(CheckpointError::Corrupt { .. }) if at.is_some() => store.load(thread, at).await?,
        loaded => loaded?,
    };
    let Some(loaded) = loaded else { return Ok(None) };
    let graph = graphs.graph_of(thread, loaded.meta.graph().as_ref())?;
    let options = graphs.options().thread(thread.clone());
    Ok(Some(Found { graph, store, name: thread.clone(), options }))
}

/// The graphs of the agent, and of its dreams.
pub(crate) struct Agents;

impl Graphs for Agents {
    fn program(&self) -> &str {
        AGENT
    }

    fn is_agent(&self) -> bool {
        true
    }

    fn options(&self) -> RunOptions {
        RunOptions::new()
    }

    fn graph_of(&self, thread: &ThreadId, _: Option<&GraphId>) -> Result<Arc<dyn AnyGraph>, Failure> {
        Ok(if Dreams::is_thread(thread) { Arc::new(Dreams::inspection_graph()) } else { Arc::new(graph()?) })
    }

    fn open<'a>(
        &'a self,
        location: &'a Location,
        store: &'a Arc<dyn Checkpointer>,
        thread: &'a ThreadId,
        stored: Option<&'a GraphId>,
    ) -> BoxFuture<'a, Result<Option<Box<dyn AnyThread>>, Failure>> {
        Box::pin(async move {
            let is = |name: &str| stored.is_none_or(|stored| stored.name == name);
            let options = RunOptions::new().thread(thread.clone());
            let dream = Dreams::inspection_graph();
            if stored.is_some() && is(dream.name()) {
                return Ok(Some(AnyGraph::open(&dream, store.clone(), options)));
            }
            if !is(graph()?.name()) {
                return Ok(None);
            }
            // Its optional nodes depend on its configuration.
            let graph = graph_of(&StoredSettings::load(&**store, thread, None).await?, location)?;
            Ok(Some(AnyGraph::open(&graph, store.clone(), options)))
        })
    }

    fn status<'a>(
        &'a self,
        location: &'a Location,
        store: &'a Arc<dyn Checkpointer>,
        thread: &'a ThreadId,
        head: &'a CheckpointMeta,
    ) -> BoxFuture<'a, Result<Status, Failure>> {
        Box::pin(threads::status_of_turn(self, location, store, thread, head))
    }

    fn waits(&self, location: &Location, thread: &ThreadId, _: &AnySnapshot) -> String {
        format!("waits for a decision; decide with: {}", location.command("resume", &[thread.as_str()]))
    }

    fn prune<'a>(
        &'a self,
        location: &'a Location,
        store: Arc<dyn Checkpointer>,
        thread: &'a ThreadId,
        keep: Retention,
    ) -> BoxFuture<'a, Result<usize, Failure>> {
        Box::pin(async move { Ok(thread_admin::pruned(location, store, thread, keep).await?.0) })
    }
}

impl Graphs for GraphSet {
    fn program(&self) -> &str {
        &self.program
    }

    fn is_agent(&self) -> bool {
        false
    }

    fn options(&self) -> RunOptions {
        self.options.clone()
    }

    fn graph_of(&self, thread: &ThreadId, stored: Option<&GraphId>) -> Result<Arc<dyn AnyGraph>, Failure> {
        self.owner(thread.as_str(), stored).cloned()
    }

    fn open<'a>(
        &'a self,
        _: &'a Location,
        store: &'a Arc<dyn Checkpointer>,
        thread: &'a ThreadId,
        stored: Option<&'a GraphId>,
    ) -> BoxFuture<'a, Result<Option<Box<dyn AnyThread>>, Failure>> {
        Box::pin(async move {
            let agent = graph()?;
            let of_agent = [agent.name(), Dreams::inspection_graph().name()].map(ToOwned::to_owned);
            if stored.is_some_and(|stored| of_agent.contains(&stored.name) && !self.has(&stored.name)) {
                return Ok(None);
            }
            let graph = self.owner(thread.as_str(), stored)?;
            Ok(Some(graph.open(store.clone(), self.options.clone().thread(thread.clone()))))
        })
    }

    fn status<'a>(
        &'a self,
        location: &'a Location,
        store: &'a Arc<dyn Checkpointer>,
        thread: &'a ThreadId,
        head: &'a CheckpointMeta,
    ) -> BoxFuture<'a, Result<Status, Failure>> {
        Box::pin(threads::status_of_run(self, location, store, thread, head))
    }

    fn waits(&self, location: &Location, thread: &ThreadId, snapshot: &AnySnapshot) -> String {
        questions(location, thread, &snapshot.interrupts().cloned().collect::<Vec<_>>())
    }

    fn prune<'a>(
        &'a self,
        location: &'a Location,
        store: Arc<dyn Checkpointer>,
        thread: &'a ThreadId,
        keep: Retention,
    ) -> BoxFuture<'a, Result<usize, Failure>> {
        Box::pin(async move {
            let found = find_in(self, store, thread, None).await?;
            let found = found.ok_or_else(|| location.unknown(thread.as_str()))?;
            Ok(found.open().prune(keep).await?)
        })
    }
}

/// Checks that the program can resume a thread.
///
/// # Errors
/// The reason if it cannot.
pub(crate) async fn check(
    graphs: &dyn Graphs,
    location: &Location,
    store: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
    head: &CheckpointMeta,
) -> Result<(), Failure> {
    match graphs.open(location, store, thread, head.graph().as_ref()).await? {
        Some(thread) => Ok(thread.check().await?),
        None => Ok(()),
    }
}

/// Lists the threads that the program cannot resume, with the reasons.
pub(crate) async fn unresumable(
    graphs: &dyn Graphs,
    location: &Location,
    json: bool,
) -> Result<Exit, Failure> {
    let (mut all, mut lost) = (0, Vec::new());
    if let Some(store) = location.find()? {
        for (thread, head) in threads::heads(&*store).await? {
            all += 1;
            let checked = match &head {
                Ok(head) => check(graphs, location, &store, &thread, head).await,
                Err(error) => Err(Failure::caused(Exit::Database, error)),
            };
            if let Err(Failure { message, .. }) = checked {
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
    graphs: &dyn Graphs,
    location: &Location,
    store: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
    graph: Option<&GraphId>,
) -> Result<Option<StateMismatch>, Failure> {
    let Ok(Some(thread)) = graphs.open(location, store, thread, graph).await else { return Ok(None) };
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
