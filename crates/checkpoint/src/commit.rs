//! Checkpoints as they are stored and loaded.
//!
//! Start at [`Commit`].

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use superstep_engine::{Control, NodeName};
use superstep_state::ChannelValue;

use crate::{
    commit::own::{GRAPH, NONCE, VERSION},
    ids::CheckpointId,
    record::TaskRecord,
};

/// Why a checkpoint exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// An input was accepted.
    Input,
    /// A superstep ended.
    Loop,
    /// Someone updated the state from outside.
    Update,
    /// A run went on from an older checkpoint.
    Fork,
}

impl Source {
    /// The name that is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Loop => "loop",
            Self::Update => "update",
            Self::Fork => "fork",
        }
    }
}

/// What is known of a checkpoint without loading its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointMeta {
    /// Its id.
    pub id: CheckpointId,
    /// The checkpoint it follows; `None` for the first.
    pub parent: Option<CheckpointId>,
    /// Whether that one was pruned.
    #[serde(default, skip_serializing_if = "is_false")]
    pub parent_pruned: bool,
    /// Why it exists.
    pub source: Source,
    /// Its superstep, and what runs next.
    pub control: Control,
    /// When it was made: UTC milliseconds, by the clock of the run.
    pub created_ms: i64,
    /// What whoever gave the input wanted remembered. Empty on checkpoints of supersteps.
    pub metadata: Map<String, Value>,
}

/// The entries in the metadata of a checkpoint that are the driver's own, which nobody is shown.
pub mod own {
    /// Of a called graph's input: for which task it was accepted.
    pub const TASK: &str = "$task";
    /// Of the same: that the graph began with the state of the graph that called it, which is not stored with it.
    pub const SEEDED: &str = "$seeded";
    /// Of a superstep whose tasks' effects are recorded: the fingerprints of the channels that it wrote.
    pub const STATE: &str = "$state";
    /// Of an update from outside: where the tasks began that it left to be run, see `Origins`.
    pub const ORIGINS: &str = "$origins";
    /// Of any checkpoint of a thread whose tasks called subgraphs that live on over them: at which of their checkpoints the
    /// next tasks find them, see `Memories`.
    pub const MEMORIES: &str = "$memories";
    /// Of such a subgraph's input: that the checkpoints of its caller say where it is found.
    pub const BOUND: &str = "$bound";
    /// Of an update of such a subgraph from outside: the checkpoint of its caller that it was made at.
    pub const EDITED: &str = "$edited";
    /// Of a command from outside: whether it wrote anything, which nobody made.
    pub const OUTSIDE: &str = "$outside";
    /// Of every checkpoint: the name of the graph that stored it, the version if it said one, and what tells the thread from
    /// those that had its name before, see `Mark`.
    pub const GRAPH: &str = "$graph";
    /// The version of that graph.
    pub const VERSION: &str = "$version";
    /// The nonce of the thread.
    pub const NONCE: &str = "$nonce";

    /// All of them.
    pub const ALL: [&str; 11] =
        [TASK, SEEDED, STATE, ORIGINS, MEMORIES, BOUND, EDITED, OUTSIDE, GRAPH, VERSION, NONCE];
}

impl CheckpointMeta {
    /// The same, as it is shown.
    #[doc(hidden)]
    pub fn shown(mut self) -> Self {
        self.metadata.retain(|name, _| !own::ALL.contains(&name.as_str()));
        self
    }
}

/// A checkpoint to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// The checkpoint it follows.
    pub parent: Option<CheckpointId>,
    /// Why it exists.
    pub source: Source,
    /// Where the thread stands.
    pub control: Control,
    /// UTC milliseconds, by the clock of the run.
    pub created_ms: i64,
    /// What to remember with it.
    pub metadata: Map<String, Value>,
    /// The tasks whose updates make this state out of its parent's, in the order in which they are folded.
    pub applied: Vec<AppliedTask>,
    /// The full value of every channel after them, on some commits.
    pub snapshot: Option<Vec<ChannelValue>>,
    /// Records of tasks of this new checkpoint: an accepted input is the finished task of `START`.
    pub records: Vec<(u32, TaskRecord)>,
}

/// A task that a commit folds in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedTask {
    /// Its slot among the tasks of the parent checkpoint.
    pub slot: u32,
    /// Whether its record is stored already under the parent, so that it need not be stored again.
    pub recorded: bool,
    /// The node that ran, or in whose name the update was made.
    pub node: NodeName,
    /// Its update as JSON.
    pub update: Vec<u8>,
}

/// A checkpoint with everything needed to go on from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The checkpoint itself.
    pub meta: CheckpointMeta,
    /// The head of the thread, which may be another checkpoint.
    pub head: CheckpointId,
    /// Whose updates made this state out of its parent's, as the commit said: the slot and the node of each, in fold
    /// order.
    pub applied: Vec<(u32, NodeName)>,
    /// The nearest snapshot on the way from the beginning of the thread, if any.
    pub snapshot: Option<Vec<ChannelValue>>,
    /// The commits since the snapshot, oldest first, each with its updates in fold order, as JSON.
    pub commits: Vec<Vec<Vec<u8>>>,
    /// What is known of the checkpoint's own tasks, by slot: their records, and for tasks without a finished record
    /// that a checkpoint of [`Source::Loop`] applied, what they wrote, without targets. If several such checkpoints
    /// follow this one, the newest counts.
    pub tasks: Vec<(u32, TaskRecord)>,
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

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
    #[doc(hidden)]
    pub fn nonce(&self) -> Option<&str> {
        self.metadata.get(NONCE).and_then(Value::as_str)
    }
}
