//! The records of tasks: results, questions, and the failures passed to error handlers.
//!
//! Start at [`TaskRecord`].

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_engine::{NodeIndex, NodeName, Topology};
use superstep_state::{RawJson, StoredUpdate};

use crate::ids::{CheckpointId, ThreadId};

/// The permanent failure of a node, as its error handler receives it. It is the same in the run that failed
/// and in any later one.
///
/// See `StateGraph::add_error_handler`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeFailure {
    /// The node.
    pub node: NodeName,
    /// The number of attempts, including retries.
    pub attempts: u32,
    /// The kind of the last failure.
    pub kind: FailureKind,
    /// The message of the last failure.
    pub message: String,
    /// The causes, from the nearest to the farthest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// Additional data of the node: `NodeError::with_data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// The item, if the node is a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<Value>,
}

/// The kind of a node's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The node returned an error.
    Error,
    /// The node exceeded its time limit, or made no progress for too long.
    Timeout,
    /// The node panicked.
    Panic,
}

impl FailureKind {
    /// Returns the name that is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Panic => "panic",
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl NodeFailure {
    /// Creates a failure without causes, data and item.
    #[doc(hidden)]
    pub fn new(node: NodeName, attempts: u32, kind: FailureKind, message: String) -> Self {
        Self { node, attempts, kind, message, causes: Vec::new(), data: None, item: None }
    }

    /// Returns the message and its causes in one line.
    #[doc(hidden)]
    pub fn chain(&self) -> String {
        let texts = [&self.message].into_iter().chain(&self.causes);
        texts.map(String::as_str).collect::<Vec<_>>().join(": ")
    }

    /// Returns the node's error handler, if the graph has one.
    #[doc(hidden)]
    pub fn handler(&self, topology: &Topology) -> Option<NodeIndex> {
        topology.handler(topology.find(self.node.as_str())?)
    }
}

impl TaskRecord {
    /// Returns the record as that of an error handler that received `failure`.
    #[doc(hidden)]
    pub fn handled(self, failure: Option<&NodeFailure>) -> Self {
        let Some(failure) = failure else { return self };
        let failure = Box::new(failure.clone());
        match self {
            Self::Finished { update, targets, .. } => {
                Self::Finished { update, targets, failure: Some(failure) }
            }
            unfinished => Self::Handled { failure, handler: Box::new(unfinished) },
        }
    }

    /// Splits off the failure that an error handler receives, if one runs instead, and returns it with the
    /// record of the task or handler.
    #[doc(hidden)]
    pub fn into_parts(self) -> (Option<Box<NodeFailure>>, Self) {
        match self {
            Self::Handled { failure, handler } => (Some(failure), *handler),
            Self::Finished { update, targets, failure } => {
                (failure, Self::Finished { update, targets, failure: None })
            }
            other => (None, other),
        }
    }

    /// Returns the results of the task's effects.
    #[doc(hidden)]
    pub fn into_once(self) -> BTreeMap<String, RawJson> {
        match self {
            Self::Started { once, .. }
            | Self::Failed { once, .. }
            | Self::Interrupted { once, .. }
            | Self::Cancelled { once } => once,
            // The results belong to the handler.
            Self::Finished { .. } | Self::Handled { .. } => BTreeMap::new(),
        }
    }

    /// Returns the open questions, each with its node: the pending node or its error handler.
    #[doc(hidden)]
    pub fn questions<'a>(
        &'a self,
        node: &'a NodeName,
        topology: &'a Topology,
    ) -> (&'a NodeName, &'a [Question]) {
        match self {
            Self::Interrupted { questions, .. } => (node, questions),
            Self::Handled { failure, handler } => {
                let asks = failure.handler(topology).map_or(node, |handler| topology.first_name(handler));
                (asks, handler.questions(asks, topology).1)
            }
            Self::Finished { .. } | Self::Started { .. } | Self::Failed { .. } | Self::Cancelled { .. } => {
                (node, &[])
            }
        }
    }
}

/// A task of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TaskKey {
    /// The thread.
    pub thread: ThreadId,
    /// The checkpoint at which it is pending.
    pub checkpoint: CheckpointId,
    /// The slot of the task, the position in [`Control::next`](superstep_engine::Control::next).
    pub slot: u32,
}

/// The result of a task so far. `once` has the results of its effects (`Cx::once`) by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum TaskRecord {
    /// The task is finished and will not run again.
    Finished {
        /// The update of the task.
        update: StoredUpdate,
        /// The targets of its conditional edges and fan-outs, in order.
        targets: Vec<RecordedTarget>,
        /// The failure that the handler received, if the node failed and its error handler wrote the update.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Box<NodeFailure>>,
    },
    /// The task started, had an effect that must not be repeated, and is unfinished; it will run again.
    Started {
        /// The number of failed attempts so far.
        #[serde(default, skip_serializing_if = "is_zero")]
        attempts: u32,
        /// The results of its effects.
        once: BTreeMap<String, RawJson>,
    },
    /// The task failed and will run again.
    Failed {
        /// The number of failed attempts so far, if another one is left; 0 if none was left, so that it
        /// starts afresh.
        attempts: u32,
        /// The error with its causes.
        error: String,
        /// The results of its earlier effects.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        once: BTreeMap<String, RawJson>,
    },
    /// The task was interrupted, and runs again when it is answered.
    Interrupted {
        /// The questions without an answer.
        questions: Vec<Question>,
        /// The answers so far, by key.
        answers: BTreeMap<String, RawJson>,
        /// The questions of the answers, by the same keys. An answer without one was stored by an older
        /// program and applies to any question with its key.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        asked: BTreeMap<String, Question>,
        /// The number of failed attempts since, as in `Failed`.
        #[serde(default, skip_serializing_if = "is_zero")]
        attempts: u32,
        /// The last error, if it failed since.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// The results of its earlier effects.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        once: BTreeMap<String, RawJson>,
    },
    /// The task was dropped in its first attempt because a sibling failed or the run was cancelled; it will run
    /// again. A task that failed before retains that record.
    Cancelled {
        /// The results of its earlier effects.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        once: BTreeMap<String, RawJson>,
    },
    /// The node of the task failed permanently, and its error handler runs next.
    Handled {
        /// The failure that the handler receives.
        failure: Box<NodeFailure>,
        /// The handler's record so far; `Failed` with the error of the node, and no attempts, before its
        /// first run. Never `Finished`.
        handler: Box<TaskRecord>,
    },
}

impl TaskRecord {
    /// Returns the results of the task's effects (`Cx::once`), which are not repeated; `None` if the task is
    /// finished.
    pub fn once(&self) -> Option<&BTreeMap<String, RawJson>> {
        match self {
            Self::Finished { .. } => None,
            Self::Started { once, .. }
            | Self::Failed { once, .. }
            | Self::Interrupted { once, .. }
            | Self::Cancelled { once } => Some(once),
            Self::Handled { handler, .. } => handler.once(),
        }
    }

    /// Returns the results of the task's effects, for changes; `None` if the task is finished.
    pub fn once_mut(&mut self) -> Option<&mut BTreeMap<String, RawJson>> {
        match self {
            Self::Finished { .. } => None,
            Self::Started { once, .. }
            | Self::Failed { once, .. }
            | Self::Interrupted { once, .. }
            | Self::Cancelled { once } => Some(once),
            Self::Handled { handler, .. } => handler.once_mut(),
        }
    }
}

/// A target of a finished task: a node's name, `__end__` for the end, or a worker with its item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RecordedTarget {
    /// A node or the end.
    Node(NodeName),
    /// To a worker.
    Send {
        /// The worker.
        node: NodeName,
        /// The item of the task.
        item: RawJson,
    },
}

impl From<&str> for RecordedTarget {
    fn from(node: &str) -> Self {
        Self::Node(node.into())
    }
}

fn is_zero(attempts: &u32) -> bool {
    *attempts == 0
}

/// A pending question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interrupt {
    /// The id of the question, unique on the thread for the question and its content. It stays the same when
    /// the node asks again. It differs on another branch, and when the content under the key changes.
    pub id: String,
    /// The interrupted node.
    pub node: NodeName,
    /// The key of the question.
    pub key: String,
    /// The content of the question.
    pub question: Value,
    /// The JSON Schema of an answer, if the node gave one with `Cx::ask`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
}

/// The stored form of a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The key of the question.
    pub key: String,
    /// The content of the question.
    pub question: RawJson,
    /// The JSON Schema of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<RawJson>,
    /// The origin of the question, if a called graph interrupted the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Within>,
    /// The earlier question under this key, if it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<Replaced>,
}

/// A question that the node replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// The id of its interrupt.
    pub id: String,
    /// The content of the question.
    pub question: RawJson,
}

/// The origin of a question in a called graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Within {
    /// The key of the call.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub call: String,
    /// The superstep of the called graph whose task was interrupted. An answer is valid for that superstep
    /// only, even if a later one has an equal question.
    pub step: i64,
    /// The slot of that task.
    pub slot: u32,
    /// The key under which that task stores the answer.
    pub key: String,
    /// The id of the interrupt in the called graph.
    pub id: String,
    /// The interrupted node.
    pub node: NodeName,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_failure_is_shown_by_its_stored_name() {
        for kind in [FailureKind::Error, FailureKind::Timeout, FailureKind::Panic] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.to_string());
        }
    }
}
