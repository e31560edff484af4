//! The graphs of a program.
//!
//! Start at [`GraphSet`].

use std::sync::Arc;

use superstep::{
    CheckpointId, Checkpointer, RunOptions, ThreadId,
    checkpoint::{CheckpointError, GraphId},
    erased::{JsonGraph, JsonThread},
    memory::Dreams,
};
use superstep_session::{
    config::location::Location,
    error::{ErrorKind, SessionError},
    suggest::closest,
};

use crate::output::note::print_new;

/// The graphs of a program, and the options of their runs.
pub(crate) struct GraphSet {
    pub(crate) program: String,
    graphs: Vec<Arc<dyn JsonGraph>>,
    pub(crate) options: RunOptions,
    /// The program is that of the agent: its graphs are those of turns and of dreams.
    pub(crate) is_agent: bool,
}

/// A thread of a database with its graph.
pub(crate) struct Owned<'a> {
    pub(crate) graph: &'a Arc<dyn JsonGraph>,
    pub(crate) store: Arc<dyn Checkpointer>,
    pub(crate) name: ThreadId,
    /// The options of the program for this thread.
    pub(crate) options: RunOptions,
}

impl Owned<'_> {
    /// Opens the thread at its head.
    pub(crate) fn open(&self) -> Box<dyn JsonThread> {
        self.open_at(None)
    }

    /// Opens the thread at a checkpoint, or at its head.
    pub(crate) fn open_at(&self, at: Option<CheckpointId>) -> Box<dyn JsonThread> {
        self.graph.with_checkpointer(self.store.clone()).thread(self.options.clone().at(at))
    }
}

impl GraphSet {
    /// Creates the set.
    ///
    /// # Errors
    /// There are no graphs, or two have the same name.
    pub(crate) fn new(
        program: String,
        graphs: Vec<Arc<dyn JsonGraph>>,
        options: RunOptions,
    ) -> Result<Self, SessionError> {
        let failed = |what: String| SessionError::new(ErrorKind::Failed, what);
        if graphs.is_empty() {
            return Err(failed("this program has no graphs".to_owned()));
        }
        for (position, graph) in graphs.iter().enumerate() {
            if graphs[..position].iter().any(|other| other.name() == graph.name()) {
                return Err(failed(format!("two graphs of this program have the name `{}`", graph.name())));
            }
        }
        Ok(Self { program, graphs, options, is_agent: false })
    }

    /// Returns the graph of this name; without a name, the only graph.
    ///
    /// # Errors
    /// There is no such graph, or no name and several graphs.
    pub(crate) fn named(&self, name: Option<&str>) -> Result<&Arc<dyn JsonGraph>, SessionError> {
        let Some(name) = name else {
            return match &self.graphs[..] {
                [only] => Ok(only),
                _ => Err(SessionError::usage(format!("name a graph: {}", self.names()))),
            };
        };
        self.find_graph(name).ok_or_else(|| {
            let known: Vec<&str> = self.graphs.iter().map(|graph| graph.name()).collect();
            SessionError::usage(match closest(name, &known) {
                Some(near) => format!("unknown graph `{name}`; did you mean `{near}`?"),
                None => format!("unknown graph `{name}`; the graphs are {}", self.names()),
            })
        })
    }

    /// Finds a thread in the database of a command to show it, with a note if it was set back.
    ///
    /// # Errors
    /// The thread does not exist, or belongs to another graph.
    pub(crate) async fn find_to_show(
        &self,
        location: &Location,
        name: &str,
        at: Option<CheckpointId>,
    ) -> Result<Owned<'_>, SessionError> {
        let owned = self.find(location, name, at).await?;
        print_new(location.set_back_note(&*owned.store, &owned.name).await, false);
        Ok(owned)
    }

    /// Finds a thread in the database of a command.
    ///
    /// # Errors
    /// The thread does not exist, or belongs to another graph.
    pub(crate) async fn find(
        &self,
        location: &Location,
        name: &str,
        at: Option<CheckpointId>,
    ) -> Result<Owned<'_>, SessionError> {
        self.find_in(location, location.existing(name)?, &ThreadId::from(name), at).await
    }

    /// Finds a thread in a database, which may be another one than that of the command.
    ///
    /// # Errors
    /// The thread does not exist, or belongs to another graph.
    pub(crate) async fn find_in(
        &self,
        location: &Location,
        store: Arc<dyn Checkpointer>,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> Result<Owned<'_>, SessionError> {
        let loaded = match store.load(thread, None).await {
            // An older checkpoint of a damaged thread may be readable.
            Err(CheckpointError::Corrupt { .. }) if at.is_some() => store.load(thread, at).await?,
            loaded => loaded?,
        };
        let Some(loaded) = loaded else { return Err(location.unknown(thread.as_str())) };
        let graph = self.owner(thread, loaded.meta.graph().as_ref())?;
        let options = self.options.clone().thread(thread.clone());
        Ok(Owned { graph, store, name: thread.clone(), options })
    }

    /// Returns the graph of a thread that stores this graph.
    ///
    /// # Errors
    /// The thread belongs to another graph.
    pub(crate) fn owner(
        &self,
        thread: &ThreadId,
        stored: Option<&GraphId>,
    ) -> Result<&Arc<dyn JsonGraph>, SessionError> {
        let wrong = |what: String| SessionError::new(ErrorKind::Thread, format!("thread `{thread}` {what}"));
        match stored {
            // Their graph rejects a thread of another one.
            _ if self.is_agent => Ok(&self.graphs[usize::from(Dreams::is_thread(thread))]),
            Some(owner) => self.find_graph(&owner.name).ok_or_else(|| {
                wrong(format!("belongs to graph {owner}, and this program has {}", self.names()))
            }),
            // An older version stored it without its graph.
            None => self
                .named(None)
                .map_err(|_| wrong("does not store its graph, and this program has several".to_owned())),
        }
    }

    pub(crate) fn all(&self) -> &[Arc<dyn JsonGraph>] {
        &self.graphs
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.find_graph(name).is_some()
    }

    fn find_graph(&self, name: &str) -> Option<&Arc<dyn JsonGraph>> {
        self.graphs.iter().find(|graph| graph.name() == name)
    }

    fn names(&self) -> String {
        let names = self.graphs.iter().map(|graph| format!("`{}`", graph.name()));
        names.collect::<Vec<_>>().join(", ")
    }
}
