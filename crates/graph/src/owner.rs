//! Whose a thread is: the graph that runs on it, and what tells it from others that had its name.
//!
//! Every checkpoint says so in its metadata, so that the head alone tells it, whatever was pruned.
//!
//! Start at [`Mark`].

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use superstep_checkpoint::internal::own::{GRAPH, NONCE, VERSION};

use crate::{
    CheckpointMeta, CompiledGraph, GraphId, History, Prune, RunError, State, ThreadId, compiled::Inner,
};

/// What is stored with every checkpoint of a thread.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    graph: Option<GraphId>,
    pub(crate) nonce: Option<String>,
}

impl Mark {
    /// That of a checkpoint as it is stored.
    pub(crate) fn of(meta: &CheckpointMeta) -> Self {
        Self { graph: meta.graph(), nonce: meta.nonce().map(str::to_owned) }
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
        let history = checkpointer.history(thread, History::default()).await?;
        let empty = || RunError::EmptyThread { thread: thread.clone() };
        let head = history.first().ok_or_else(empty)?.id;
        let mut prune = Prune { keep: history.iter().map(|meta| meta.id).collect(), ..Prune::default() };
        let marked = history.into_iter().map(|meta| {
            let (mark, mut metadata) = (self.inner.mark(Mark::of(&meta).nonce), meta.metadata);
            mark.put(&mut metadata);
            (meta.id, metadata)
        });
        prune.metadata = marked.collect::<BTreeMap<_, _>>();
        checkpointer.prune(thread, head, prune).await?;
        Ok(())
    }
}
