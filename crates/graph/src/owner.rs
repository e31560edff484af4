//! Whose a thread is: the graph that runs on it, and what tells it from others that had its name.
//!
//! Every checkpoint says so in its metadata, so that the head alone tells it, whatever was pruned.
//!
//! Start at [`Mark`].

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    CheckpointMeta, Checkpointer, CompiledGraph, History, Prune, RunError, State, ThreadId,
    checkpoint::own::{GRAPH, NONCE, VERSION},
    compiled::Inner,
};

/// The graph that a thread belongs to. Displays itself as "`name`" or "`name`, version `2`".
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GraphId {
    /// Its name.
    pub name: String,
    /// The version that stored the checkpoint, if it said one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl fmt::Display for GraphId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.name)?;
        self.version.as_ref().map_or(Ok(()), |version| write!(f, ", version `{version}`"))
    }
}

impl CheckpointMeta {
    /// The graph that stored it, as a [`Checkpointer`](crate::Checkpointer) has it. `None` if an older program did, and in
    /// what graphs show of their threads: those are their own.
    pub fn graph(&self) -> Option<GraphId> {
        let text = |entry| self.metadata.get(entry).and_then(Value::as_str).map(str::to_owned);
        Some(GraphId { name: text(GRAPH)?, version: text(VERSION) })
    }

    /// See [`Checkpointer::nonce`](crate::Checkpointer::nonce).
    pub(crate) fn nonce(&self) -> Option<&str> {
        self.metadata.get(NONCE).and_then(Value::as_str)
    }
}

/// What is stored with every checkpoint of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    graph: Option<GraphId>,
    pub(crate) nonce: Option<String>,
}

impl Mark {
    /// That of a checkpoint as it is stored.
    pub(crate) fn of(meta: &CheckpointMeta) -> Self {
        Self { graph: meta.graph(), nonce: meta.nonce().map(str::to_owned) }
    }

    pub(crate) fn with_nonce(self, nonce: Option<String>) -> Self {
        Self { nonce, ..self }
    }

    pub(crate) fn put(&self, metadata: &mut Map<String, Value>) {
        let version = self.graph.as_ref().and_then(|graph| graph.version.as_ref());
        let name = self.graph.as_ref().map(|graph| &graph.name);
        for (entry, text) in [(GRAPH, name), (VERSION, version), (NONCE, self.nonce.as_ref())] {
            match text {
                Some(text) => metadata.insert(entry.to_owned(), text.as_str().into()),
                None => metadata.remove(entry),
            };
        }
    }
}

impl<S: State> Inner<S> {
    fn id(&self) -> GraphId {
        GraphId { name: self.name.clone(), version: self.version.clone() }
    }

    /// The mark of this graph on a thread that has this nonce.
    pub(crate) fn mark(&self, nonce: Option<String>) -> Mark {
        Mark { graph: Some(self.id()), nonce }
    }

    /// Refuses what another graph stored. Another version of this one may have, and so may an older program, which did
    /// not say who it was.
    ///
    /// # Errors
    /// [`RunError::OtherGraph`].
    pub(crate) fn owns(&self, thread: &ThreadId, meta: &CheckpointMeta) -> Result<(), RunError> {
        match meta.metadata.get(GRAPH).and_then(Value::as_str) {
            Some(name) if name != self.name => {
                let stored = Box::new(meta.graph().expect("its name is there"));
                Err(RunError::OtherGraph { thread: thread.clone(), stored, graph: Box::new(self.id()) })
            }
            _ => Ok(()),
        }
    }
}

impl<S: State> CompiledGraph<S> {
    /// Makes a thread this graph's that another one began, under another name: all of its checkpoints. Nothing else of it
    /// changes, so what is to run on it has to be among the nodes of this graph, and its state has to fit.
    ///
    /// The threads of the graphs that it called belong to those. Adopt one with the graph that is called now, by the id that
    /// [`Checkpointer::children`](crate::Checkpointer::children) has.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # use std::sync::Arc;
    /// # use superstep_graph::{END, CompiledGraph, MemoryCheckpointer, RunConfig, START, State, StateGraph};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Chat { turns: i64 }
    /// # let store = Arc::new(MemoryCheckpointer::new());
    /// # let graph = |name: &str| {
    /// #     let mut graph = StateGraph::<Chat>::new(name);
    /// #     let count = graph.add_node("count", async |chat: Chat, _| Chat::update().turns(chat.turns + 1));
    /// #     graph.add_edge(START, count);
    /// #     graph.add_edge(count, END);
    /// #     graph.compile().unwrap().with_checkpointer(store.clone())
    /// # };
    /// let (old, renamed) = (graph("chat"), graph("support"));
    /// old.invoke(Chat::update(), RunConfig::thread("t")).await?;
    /// assert!(renamed.invoke(Chat::update(), RunConfig::thread("t")).await.is_err());
    /// renamed.adopt_thread(&"t".into()).await?;
    /// assert_eq!(renamed.invoke(Chat::update(), RunConfig::thread("t")).await?.state.turns, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RunError::EmptyThread`] if there is none, [`CheckpointError::Busy`](crate::CheckpointError::Busy) if someone runs it,
    /// or what the checkpointer reports.
    pub async fn adopt_thread(&self, thread: &ThreadId) -> Result<(), RunError> {
        let checkpointer = self.checkpointer()?;
        let _lease = checkpointer.lease(&thread.root()).await?;
        match mark_all(&**checkpointer, thread, |before| self.inner.mark(before.nonce)).await? {
            true => Ok(()),
            false => Err(RunError::EmptyThread { thread: thread.clone() }),
        }
    }
}

/// Changes the mark of each checkpoint of a thread. Returns whether there is such a thread.
pub(crate) async fn mark_all(
    checkpointer: &dyn Checkpointer,
    thread: &ThreadId,
    new: impl Fn(Mark) -> Mark,
) -> Result<bool, RunError> {
    let history = checkpointer.history(thread, History::default()).await?;
    let Some(head) = history.first().map(|meta| meta.id) else { return Ok(false) };
    let mut prune = Prune { keep: history.iter().map(|meta| meta.id).collect(), ..Prune::default() };
    for meta in history {
        let before = Mark::of(&meta);
        let (mark, mut metadata) = (new(before.clone()), meta.metadata);
        if mark != before {
            mark.put(&mut metadata);
            prune.metadata.insert(meta.id, metadata);
        }
    }
    if !prune.metadata.is_empty() {
        checkpointer.prune(thread, head, prune).await?;
    }
    Ok(true)
}
