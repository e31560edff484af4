//! The records of tasks: how they ended, what they ask, and what an error handler is told.
//!
//! Start at [`TaskRecord`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_engine::{NodeIndex, NodeName, Topology};

use crate::ids::{CheckpointId, ThreadId};

/// A node that failed for good, as its error handler is told of it: the same in the run in which it failed and in any that
/// goes on later.
///
/// See `StateGraph::add_error_handler`.
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
    /// What the node said beside: `NodeError::with_data`.
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
    /// A failure without causes, data and item.
    #[doc(hidden)]
    pub fn new(node: NodeName, attempts: u32, kind: FailureKind, message: String) -> Self {
        Self { node, attempts, kind, message, causes: Vec::new(), data: None, item: None }
    }

    /// What happened and why, in one line.
    #[doc(hidden)]
    pub fn chain(&self) -> String {
        let texts = [&self.message].into_iter().chain(&self.causes);
        texts.map(String::as_str).collect::<Vec<_>>().join(": ")
    }

    /// The handler that is told of it, if the graph has one.
    #[doc(hidden)]
    pub fn handler(&self, topology: &Topology) -> Option<NodeIndex> {
        topology.handler(topology.find(self.node.as_str())?)
    }
}

impl TaskRecord {
    /// The same record, of an error handler that was told of `failure`.
    #[doc(hidden)]
    pub fn handled(self, failure: Option<&NodeFailure>) -> Self {
        let Some(failure) = failure else { return self };
        let told = Box::new(failure.clone());
        match self {
            Self::Finished { update, targets, .. } => Self::Finished { update, targets, failure: Some(told) },
            unfinished => Self::Handled { failure: told, handler: Box::new(unfinished) },
        }
    }

    /// What an error handler is told, if one has the task over, and how the task or the handler ended.
    #[doc(hidden)]
    pub fn taken_apart(self) -> (Option<Box<NodeFailure>>, Self) {
        match self {
            Self::Handled { failure, handler } => (Some(failure), *handler),
            Self::Finished { update, targets, failure } => {
                (failure, Self::Finished { update, targets, failure: None })
            }
            other => (None, other),
        }
    }

    /// What the task did once.
    #[doc(hidden)]
    pub fn into_once(self) -> BTreeMap<String, String> {
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
    #[doc(hidden)]
    pub fn questions<'a>(
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

/// A task of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TaskKey {
    /// The thread.
    pub thread: ThreadId,
    /// The checkpoint that has it to run.
    pub checkpoint: CheckpointId,
    /// Its slot, the position in [`Control::next`](superstep_engine::Control::next).
    pub slot: u32,
}

/// How a task ended, as far as it has. `once` has what it did with `Cx::once`: results by name, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum TaskRecord {
    /// It is done and will not run again.
    Finished {
        /// Its update, a JSON text.
        update: String,
        /// Where its conditional edges and fan-outs lead, in order.
        targets: Vec<RecordedTarget>,
        /// If its node failed and the error handler wrote the update, what the handler was told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Box<NodeFailure>>,
    },
    /// It began, did something that is not to be done twice, and is not over; it will run again.
    Started {
        /// How often it failed so far.
        #[serde(default, skip_serializing_if = "is_zero")]
        attempts: u32,
        /// What it did.
        once: BTreeMap<String, String>,
    },
    /// It failed and will run again.
    Failed {
        /// How often it failed so far, if it had another attempt; 0 if it had none left, so that it starts afresh.
        attempts: u32,
        /// The error with its causes.
        error: String,
        /// What it did before.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        once: BTreeMap<String, String>,
    },
    /// It asked someone outside, and runs again once it is answered.
    Interrupted {
        /// What still has no answer.
        questions: Vec<Question>,
        /// The answers so far, by key, as JSON.
        answers: BTreeMap<String, String>,
        /// The questions that they answer, by the same keys. An answer without one was stored by an older program, and is
        /// for whatever is asked under its key.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        asked: BTreeMap<String, Question>,
        /// How often it failed since, as in `Failed`.
        #[serde(default, skip_serializing_if = "is_zero")]
        attempts: u32,
        /// The error of the last time, if it failed since.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// What it did before.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        once: BTreeMap<String, String>,
    },
    /// It was dropped in its first attempt because a sibling failed or the run was cancelled; it will run again. One that
    /// failed before keeps the record of that.
    Cancelled {
        /// What it did before.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        once: BTreeMap<String, String>,
    },
    /// Its node failed for good, and its error handler is what will run.
    Handled {
        /// What the handler is told.
        failure: Box<NodeFailure>,
        /// How the handler ended, as far as it has; `Failed` with the error of the node, and no attempts, if it has not
        /// run yet. Never `Finished`.
        handler: Box<TaskRecord>,
    },
}

impl TaskRecord {
    /// What the task did with `Cx::once` and has not to do again; `None` if it is done itself.
    pub fn once(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::Finished { .. } => None,
            Self::Started { once, .. }
            | Self::Failed { once, .. }
            | Self::Interrupted { once, .. }
            | Self::Cancelled { once } => Some(once),
            Self::Handled { handler, .. } => handler.once(),
        }
    }
}

/// Where a finished task leads: a node's name, `__end__` for the end, or a worker with its item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RecordedTarget {
    /// To a node or the end.
    Node(NodeName),
    /// To a worker.
    Send {
        /// The worker.
        node: NodeName,
        /// Its item as JSON.
        item: String,
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

/// A question that waits for its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interrupt {
    /// Names this question, with its content, among all that are ever asked on the thread. The same when it is asked again;
    /// another one on another branch, and once the node asks something else under the key.
    pub id: String,
    /// The node that asks.
    pub node: NodeName,
    /// The name under which it asks.
    pub key: String,
    /// What it asks.
    pub question: Value,
    /// The JSON Schema of an answer, if the node told it with `Cx::ask`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
}

/// A question as it is stored with its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The name under which it is asked.
    pub key: String,
    /// What is asked, as JSON.
    pub question: String,
    /// The JSON Schema of an answer, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// Who asks it, if the task does so for a graph that it called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Within>,
    /// What was asked under this key before something changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<Replaced>,
}

/// A question that the node does not ask any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// The id of its interrupt.
    pub id: String,
    /// What was asked, as JSON.
    pub question: String,
}

/// Where in a called graph a question comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Within {
    /// The key of the call.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub call: String,
    /// The superstep of the called graph whose task asks. An answer is for that superstep, and for no later one in which
    /// the same is asked.
    pub step: i64,
    /// The slot of that task.
    pub slot: u32,
    /// The name under which that task keeps the answer.
    pub key: String,
    /// The id of the interrupt in the called graph.
    pub id: String,
    /// The node that asks.
    pub node: NodeName,
}
