//! What an error handler is told.
//!
//! Start at [`NodeFailure`].

use std::{collections::BTreeMap, error::Error};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_engine::{NodeIndex, NodeName, RestoreError, Topology};

use crate::{Panicked, Question, RunError, TaskRecord, TimedOut};

/// A node that failed for good, as its error handler is told of it: the same in the run in which it failed and in any that
/// goes on later.
///
/// See [`StateGraph::add_error_handler`](crate::StateGraph::add_error_handler).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeFailure {
    /// The node.
    pub node: NodeName,
    /// How often it ran, its retries included.
    pub attempts: u32,
    /// What kind of failure it was, the last time.
    pub kind: FailureKind,
    /// What happened, the last time.
    pub message: String,
    /// Why, from the nearest cause to the farthest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// What the node said beside: [`NodeError::with_data`](crate::NodeError::with_data).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// The item, if the node is a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<Value>,
}

/// How a node failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// It returned an error.
    Error,
    /// It took too long, or was silent for too long.
    Timeout,
    /// It panicked.
    Panic,
}

impl NodeFailure {
    pub(crate) fn new(
        node: NodeName,
        attempts: u32,
        source: &(dyn Error + 'static),
        data: Option<Value>,
        item: Option<&str>,
    ) -> Self {
        let kind = if source.is::<Panicked>() {
            FailureKind::Panic
        } else if source.is::<TimedOut>() {
            FailureKind::Timeout
        } else {
            FailureKind::Error
        };
        let mut causes = Vec::new();
        let mut next = source.source();
        while let Some(cause) = next {
            causes.push(cause.to_string());
            next = cause.source();
        }
        let item = item.and_then(|item| serde_json::from_str(item).ok());
        Self { node, attempts, kind, message: source.to_string(), causes, data, item }
    }
}

impl NodeFailure {
    /// What happened and why, in one line.
    pub(crate) fn chain(&self) -> String {
        let texts = [&self.message].into_iter().chain(&self.causes);
        texts.map(String::as_str).collect::<Vec<_>>().join(": ")
    }

    /// The handler that is told of it, if the graph has one.
    pub(crate) fn handler(&self, topology: &Topology) -> Option<NodeIndex> {
        topology.handler(topology.find(self.node.as_str())?)
    }

    /// A task whose update a handler wrote that the graph does not have any more.
    pub(crate) fn lost_handler(&self, graph: &str, step: i64, slot: u32) -> RunError {
        let detail = format!(
            "the error handler of node `{}` wrote it, and the graph has none for that node any more; add it again",
            self.node
        );
        RunError::Restore { graph: graph.to_owned(), error: RestoreError::BadRecord { step, slot, detail } }
    }
}

impl TaskRecord {
    /// The same record, of an error handler that was told of `failure`.
    pub(crate) fn handled(self, failure: Option<&NodeFailure>) -> Self {
        let Some(failure) = failure else { return self };
        let told = Box::new(failure.clone());
        match self {
            Self::Finished { update, targets, .. } => Self::Finished { update, targets, failure: Some(told) },
            unfinished => Self::Handled { failure: told, handler: Box::new(unfinished) },
        }
    }

    /// What an error handler is told, if one has the task over, and how the task or the handler ended.
    pub(crate) fn taken_apart(self) -> (Option<Box<NodeFailure>>, Self) {
        match self {
            Self::Handled { failure, handler } => (Some(failure), *handler),
            Self::Finished { update, targets, failure } => {
                (failure, Self::Finished { update, targets, failure: None })
            }
            other => (None, other),
        }
    }

    /// What the task did once.
    pub(crate) fn into_once(self) -> BTreeMap<String, String> {
        match self {
            Self::Started { once, .. }
            | Self::Failed { once, .. }
            | Self::Interrupted { once, .. }
            | Self::Cancelled { once } => once,
            // A handler did something else.
            Self::Finished { .. } | Self::Handled { .. } => BTreeMap::new(),
        }
    }

    /// What is asked, and who asks: the node that is to run, or its error handler.
    pub(crate) fn questions<'a>(
        &'a self,
        node: &'a NodeName,
        topology: &'a Topology,
    ) -> (&'a NodeName, &'a [Question]) {
        match self {
            Self::Interrupted { questions, .. } => (node, questions),
            Self::Handled { failure, handler } => {
                let asks = failure.handler(topology).map_or(node, |handler| topology.name(handler));
                (asks, handler.questions(asks, topology).1)
            }
            Self::Finished { .. } | Self::Started { .. } | Self::Failed { .. } | Self::Cancelled { .. } => {
                (node, &[])
            }
        }
    }
}
