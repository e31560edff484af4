//! Where a thread is kept.
//!
//! Start at [`Checkpointer`].

use std::{any::Any, collections::BTreeMap, fmt, sync::Arc};

use futures::future::BoxFuture;
use rand::{TryRng as _, rngs::SysRng};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use superstep_engine::{Control, NodeName};

use crate::{CheckpointError, History, NodeFailure, Prune, Question, namespace::SEPARATOR};

/// Keeps threads: durable lines of checkpoints, each with one writer.
///
/// A checkpoint is a state and a control record. What is stored of the state is what changed: the updates of its
/// superstep, and now and then, when [`Commit::snapshot`] has one, the full value of every channel. Loading a checkpoint
/// takes the nearest snapshot before it and the updates since.
///
/// # Contract
/// - [`commit`](Self::commit) is atomic, and succeeds only if `expected` is still the head of the thread.
/// - Ids count up by one in the order of commits on a thread, from 1, and are never used again, so branches cannot meet.
/// - What is stored cannot change afterwards, except that [`record`](Self::record) replaces the record of the same task
///   as long as its checkpoint is the head, and that [`prune`](Self::prune) may give a checkpoint a snapshot and other metadata.
/// - A future that is dropped before it is ready may or may not have had its effect.
/// - A thread of a subgraph ([`ThreadId::child`]) is kept like any other, but belongs to its root: it has no writer of its
///   own, is not listed, and is deleted with any thread above it, in one transaction.
/// - [`superstep_testing`](https://docs.rs/superstep-testing) has the suite that every implementation passes.
pub trait Checkpointer: Send + Sync + 'static {
    /// Makes the caller the thread's one writer until the [`Lease`] is dropped or its process ends. Does not wait for
    /// another writer, and makes no thread.
    ///
    /// # Errors
    /// [`CheckpointError::Busy`] if someone else is.
    fn lease(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Lease, CheckpointError>>;

    /// The checkpoint `at`, or the head. `None` if there is no such thread or checkpoint.
    fn load(
        &self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> BoxFuture<'_, Result<Option<Loaded>, CheckpointError>>;

    /// Stores how a task of the head ended before its superstep is over. Storing it again replaces it.
    ///
    /// # Errors
    /// [`CheckpointError::Conflict`] if the task's checkpoint is not the head.
    fn record(&self, task: &TaskKey, record: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>>;

    /// What is to tell a thread that is about to begin from those that had its name before, for
    /// [`Cx::key`](crate::Cx::key). Asked once, before the first commit of a thread, with which it is stored.
    ///
    /// `None` if no thread of this name was ever forgotten. Drawn by chance if nothing else is written here, so that it holds
    /// whatever became of the store.
    fn nonce(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Option<String>, CheckpointError>> {
        let _ = thread;
        Box::pin(async { drawn().map(Some) })
    }

    /// Adds a checkpoint and makes it the head.
    ///
    /// # Errors
    /// [`CheckpointError::Conflict`] if `expected` is not the head. [`CheckpointError::Storage`] if the parent does not
    /// exist, or a task is applied as recorded and has no finished record under the parent. Nothing is stored then.
    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>>;

    /// Adds several checkpoints one behind the other, or none of them.
    ///
    /// # Shape
    /// The first follows any checkpoint, as with [`commit`](Self::commit). Later ones may also follow those before them,
    /// whose ids count on from `expected`. An empty list does nothing.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    fn commit_all(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Vec<Commit>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>>;

    /// Waits until everything that was stored so far survives a power failure too, and not only the end of the process. Does
    /// nothing by default, which is right for storage that does so at once, or never.
    ///
    /// # Errors
    /// [`CheckpointError::Storage`] if it cannot be written to the disk.
    fn sync(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The thread's checkpoints, newest first. Empty if there is no such thread.
    fn history(
        &self,
        thread: &ThreadId,
        range: History,
    ) -> BoxFuture<'_, Result<Vec<CheckpointMeta>, CheckpointError>>;

    /// The heads of all threads, newest first by [`CheckpointMeta::created_ms`], then by name. Those of subgraphs are not
    /// among them.
    fn threads(&self) -> BoxFuture<'_, Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError>>;

    /// The names of those threads, in order; also of those whose head cannot be read.
    fn names(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        Box::pin(async {
            let mut names: Vec<_> = self.threads().await?.into_iter().map(|(thread, _)| thread).collect();
            names.sort_unstable();
            Ok(names)
        })
    }

    /// The threads of subgraphs under a thread, however deep, by name. Empty if there is none.
    fn children(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>>;

    /// Forgets a thread and with it the threads of its subgraphs, so that one of the same name begins at 1 again. Nothing
    /// happens if there is none.
    fn delete(&self, thread: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>>;

    /// Makes `to` a thread that is like `from`, with its subgraphs, checkpoint by checkpoint and record by record, under
    /// the same ids. From then on they know nothing of each other.
    ///
    /// # Errors
    /// [`CheckpointError::NoThread`] if there is no `from`, [`CheckpointError::ThreadExists`] if there is a `to`.
    fn copy(&self, from: &ThreadId, to: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>>;

    /// Forgets the checkpoints of a thread that are not to be kept, in one transaction, and returns how many those were.
    /// The threads of subgraphs that their tasks called go along; those that kept ones called stay, and so do those of
    /// [`Prune::callers`], and those that are there for all ([`ThreadId::caller_under`]).
    ///
    /// What is kept is loaded as before, with what is known of its tasks. Only the way to its state is another one where
    /// [`Prune::snapshots`] gave it a snapshot, its metadata where [`Prune::metadata`] has some for it, and
    /// [`CheckpointMeta::parent_pruned`] says so where its parent is gone.
    ///
    /// # Errors
    /// [`CheckpointError::Conflict`] if `head` is not the head of the thread. [`CheckpointError::Storage`] if a
    /// checkpoint to be kept does not exist, or would have neither its parent nor a snapshot. Nothing is forgotten then.
    fn prune(
        &self,
        thread: &ThreadId,
        head: CheckpointId,
        prune: Prune,
    ) -> BoxFuture<'_, Result<usize, CheckpointError>>;
}

/// A number that nobody drew before.
fn drawn() -> Result<String, CheckpointError> {
    let drawn = SysRng.try_next_u64().map_err(|cause| CheckpointError::Storage {
        what: "this machine has no random number for a new thread; try again".to_owned(),
        source: Some(Box::new(cause)),
    })?;
    Ok(format!("{drawn:016x}"))
}

/// The name of a thread. Cheap to clone. The number 7 and the text "7" name the same thread.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ThreadId(Arc<str>);

impl ThreadId {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ThreadId {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl From<String> for ThreadId {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl From<u64> for ThreadId {
    fn from(number: u64) -> Self {
        Self(number.to_string().into())
    }
}

/// The name; for the thread of a subgraph, its root's name and the namespace, with `/` between.
impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_once(SEPARATOR) {
            Some((root, _)) => write!(f, "{root}/{}", self.namespace()),
            None => f.write_str(&self.0),
        }
    }
}

impl fmt::Debug for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A checkpoint of a thread: the first one is 1, and later commits have greater numbers, whatever their branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CheckpointId(pub u64);

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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
pub(crate) mod own {
    /// Of a called graph's input: for which task it was accepted.
    pub(crate) const TASK: &str = "$task";
    /// Of the same: that the graph began with the state of the graph that called it, which is not stored with it.
    pub(crate) const SEEDED: &str = "$seeded";
    /// Of a superstep whose tasks' effects are recorded: the fingerprints of the channels that it wrote.
    pub(crate) const STATE: &str = "$state";
    /// Of an update from outside: where the tasks began that it left to be run, see [`Origins`](crate::origin::Origins).
    pub(crate) const ORIGINS: &str = "$origins";
    /// Of any checkpoint of a thread whose tasks called subgraphs that live on over them: at which of their checkpoints the
    /// next tasks find them, see [`Memories`](crate::memories::Memories).
    pub(crate) const MEMORIES: &str = "$memories";
    /// Of such a subgraph's input: that the checkpoints of its caller say where it is found.
    pub(crate) const BOUND: &str = "$bound";
    /// Of an update of such a subgraph from outside: the checkpoint of its caller that it was made at.
    pub(crate) const EDITED: &str = "$edited";
    /// Of a command from outside: whether it wrote anything, which nobody made.
    pub(crate) const OUTSIDE: &str = "$outside";
    /// Of every checkpoint: the name of the graph that stored it, the version if it said one, and what tells the thread from
    /// those that had its name before, see [`Mark`](crate::owner::Mark).
    pub(crate) const GRAPH: &str = "$graph";
    pub(crate) const VERSION: &str = "$version";
    pub(crate) const NONCE: &str = "$nonce";

    pub(crate) const ALL: [&str; 11] =
        [TASK, SEEDED, STATE, ORIGINS, MEMORIES, BOUND, EDITED, OUTSIDE, GRAPH, VERSION, NONCE];
}

impl CheckpointMeta {
    /// The same, as it is shown.
    pub(crate) fn shown(mut self) -> Self {
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

/// The full value of a channel, or, under a name that begins with `$`, something that the driver keeps beside them. To a
/// checkpointer it is all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelValue {
    /// The channel's name.
    pub channel: String,
    /// Its value as JSON.
    pub json: Vec<u8>,
}

/// A task of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TaskKey {
    /// The thread.
    pub thread: ThreadId,
    /// The checkpoint that has it to run.
    pub checkpoint: CheckpointId,
    /// Its slot, the position in [`Control::next`].
    pub slot: u32,
}

/// How a task ended, as far as it has. `once` has what it did with [`Cx::once`](crate::Cx::once): results by name, as JSON.
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
    /// What the task did with [`Cx::once`](crate::Cx::once) and has not to do again; `None` if it is done itself.
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

/// The right to write a thread. Given back when dropped.
pub struct Lease(#[expect(dead_code, reason = "held for its Drop")] Box<dyn Any + Send + Sync>);

impl Lease {
    /// A lease that lasts as long as `guard` is not dropped.
    pub fn new(guard: impl Any + Send + Sync) -> Self {
        Self(Box::new(guard))
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lease")
    }
}

fn is_zero(attempts: &u32) -> bool {
    *attempts == 0
}

fn is_false(flag: &bool) -> bool {
    !*flag
}
