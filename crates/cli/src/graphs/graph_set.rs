//! The graphs of a program.
//!
//! Start at [`GraphSet`].

use std::sync::Arc;

use superstep::{RunOptions, checkpoint::GraphId};

use crate::{
    graphs::any_graph::AnyGraph,
    output::{
        exit::{Exit, Failure},
        suggest::closest,
    },
};

/// The graphs of a program, and the options of their runs.
pub(crate) struct GraphSet {
    /// The name of the program.
    pub(crate) program: String,
    graphs: Vec<Arc<dyn AnyGraph>>,
    pub(crate) options: RunOptions,
}

impl GraphSet {
    /// Creates the set.
    ///
    /// # Errors
    /// There are no graphs, or two have the same name.
    pub(crate) fn new(
        program: String,
        graphs: Vec<Arc<dyn AnyGraph>>,
        options: RunOptions,
    ) -> Result<Self, Failure> {
        let failed = |what: String| Failure::new(Exit::Failed, what);
        if graphs.is_empty() {
            return Err(failed("this program has no graphs".to_owned()));
        }
        for (position, graph) in graphs.iter().enumerate() {
            if graphs[..position].iter().any(|other| other.name() == graph.name()) {
                return Err(failed(format!("two graphs of this program have the name `{}`", graph.name())));
            }
        }
        Ok(Self { program, graphs, options })
    }

    /// Returns the graph of this name; without a name, the only graph.
    ///
    /// # Errors
    /// There is no such graph, or no name and several graphs.
    pub(crate) fn named(&self, name: Option<&str>) -> Result<&Arc<dyn AnyGraph>, Failure> {
        let Some(name) = name else {
            return match &self.graphs[..] {
                [only] => Ok(only),
                _ => Err(Failure::usage(format!("name a graph: {}", self.names()))),
            };
        };
        self.find(name).ok_or_else(|| {
            let known: Vec<&str> = self.graphs.iter().map(|graph| graph.name()).collect();
            Failure::usage(match closest(name, &known) {
                Some(near) => format!("unknown graph `{name}`; did you mean `{near}`?"),
                None => format!("unknown graph `{name}`; the graphs are {}", self.names()),
            })
        })
    }

    /// Returns the graph of a thread that stores this graph.
    ///
    /// # Errors
    /// The thread belongs to another graph.
    pub(crate) fn owner(
        &self,
        thread: &str,
        stored: Option<&GraphId>,
    ) -> Result<&Arc<dyn AnyGraph>, Failure> {
        match stored {
            Some(owner) => self.find(&owner.name).ok_or_else(|| {
                let known = self.names();
                let message =
                    format!("thread `{thread}` belongs to graph {owner}, and this program has {known}");
                Failure::new(Exit::Thread, message)
            }),
            // An older version stored it without its graph.
            None => self.named(None).map_err(|_| {
                let message =
                    format!("thread `{thread}` does not store its graph, and this program has several");
                Failure::new(Exit::Thread, message)
            }),
        }
    }

    /// Returns all graphs.
    pub(crate) fn all(&self) -> &[Arc<dyn AnyGraph>] {
        &self.graphs
    }

    /// Returns whether there is a graph of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    fn find(&self, name: &str) -> Option<&Arc<dyn AnyGraph>> {
        self.graphs.iter().find(|graph| graph.name() == name)
    }

    fn names(&self) -> String {
        let names = self.graphs.iter().map(|graph| format!("`{}`", graph.name()));
        names.collect::<Vec<_>>().join(", ")
    }
}
