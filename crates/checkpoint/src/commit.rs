//! Checkpoints in their stored and loaded form.
//!
//! Start at [`Commit`].

use std::{error::Error, fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use superstep_engine::{ChannelSet, Control, NodeName};
use superstep_state::{Snapshot, StoredUpdate};

use crate::{
    CheckpointError,
    commit::own::{GRAPH, NONCE, VERSION},
    ids::{CheckpointId, ThreadId},
    record::TaskRecord,
};

/// The reason for a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// An input was accepted.
    Input,
    /// A superstep was committed.
    Loop,
    /// An external update of the state.
    Update,
    /// A run continued from an older checkpoint.
    Fork,
}

impl Source {
    /// Returns the name that is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Loop => "loop",
            Self::Update => "update",
            Self::Fork => "fork",
        }
    }
}

/// The metadata of a checkpoint, readable without its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointMeta {
    /// The id of the checkpoint.
    pub id: CheckpointId,
    /// The previous checkpoint; `None` for the first.
    pub parent: Option<CheckpointId>,
    /// `true` if the parent was pruned.
    #[serde(default, skip_serializing_if = "is_false")]
    pub parent_pruned: bool,
    /// Why it exists.
    pub source: Source,
    /// The superstep and the pending nodes.
    pub control: Control,
    /// The time of creation: UTC milliseconds, by the clock of the run.
    pub created_ms: i64,
    /// The caller's metadata of the input, of the fork, or, on the first superstep of a resumed run, of that run. Empty on checkpoints
    /// of other supersteps.
    pub metadata: Map<String, Value>,
}

/// The driver's own entries in the metadata of a checkpoint, which are hidden from users, and the threads below a root that
/// belong to no subgraph. No channel and no node has such a name.
pub mod own {
    use superstep_state::internal::keys;

    use crate::{Segment, ThreadId};

    /// On a called graph's input: the task for which it was accepted.
    pub const TASK: &str = "$task";
    /// On such an input: the graph started with the state of its caller, which is not stored with it.
    pub const SEEDED: &str = "$seeded";
    /// On a superstep with recorded inputs: the fingerprints of the written channels, unless they are computed when a replay
    /// asks, see `LazyFingerprints`.
    pub const STATE: &str = "$state";
    /// On an external update: the origins of the tasks that it left pending, see `Origins`.
    pub const ORIGINS: &str = "$origins";
    /// On any checkpoint whose tasks called subgraphs with persistent threads: the positions of those
    /// subgraphs for the next tasks, see `Memories`.
    pub const MEMORIES: &str = "$memories";
    /// On such a subgraph's input: the checkpoints of its caller refer to it.
    pub const BOUND: &str = "$bound";
    /// On an external update of such a subgraph: the checkpoint of its caller at that time.
    pub const EDITED: &str = "$edited";
    /// On a checkpoint whose parent was pruned: the positions in it and in its successors include such updates at pruned
    /// checkpoints.
    pub const SETTLED: &str = "$settled";
    /// On an external command: whether it contained a write. Such a write has no author node.
    pub const OUTSIDE: &str = "$outside";
    /// On every checkpoint: the name of the graph that stored it, its version if it has one, and the nonce of
    /// the thread; see `Mark`.
    pub const GRAPH: &str = "$graph";
    /// The version of that graph.
    pub const VERSION: &str = "$version";
    /// The nonce of the thread.
    pub const NONCE: &str = "$nonce";
    /// On an input: a list with its id, under which the thread accepts it once. After a prune also those of deleted inputs.
    pub const INPUT: &str = "$input";
    /// On every checkpoint of a thread whose text was redacted: the names of the rules.
    pub const REDACTED: &str = "$redacted";
    /// On every checkpoint that is encrypted: all the others, and those of the caller.
    pub const SEALED: &str = keys::SEALED;

    /// The thread with the inbox of its root.
    pub const INBOX: &str = "$inbox";
    /// Returns the thread with the inbox of a root.
    pub fn inbox_of(root: &ThreadId) -> ThreadId {
        root.child(&Segment { node: INBOX.into(), task: None, key: String::new() })
    }

    /// The key of an item in the metadata of its checkpoint in an inbox.
    pub const ITEM: &str = "item";

    /// The thread with the data keys of its root, the channel in its snapshots, and the namespace with those of a store.
    pub const KEYS: &str = "$keys";
    /// Returns the thread with the data keys of a root. It may be stored before its root.
    pub fn keys_of(root: &ThreadId) -> ThreadId {
        root.child(&Segment { node: KEYS.into(), task: None, key: String::new() })
    }

    /// All entries in the metadata.
    const ALL: [&str; 15] = [
        TASK, SEEDED, STATE, ORIGINS, MEMORIES, BOUND, EDITED, SETTLED, OUTSIDE, GRAPH, VERSION, NONCE,
        INPUT, REDACTED, SEALED,
    ];

    /// Returns whether an entry of the metadata is one of the driver's.
    pub fn is_own(name: &str) -> bool {
        ALL.contains(&name)
    }
}

impl CheckpointMeta {
    /// Returns whether a run began here, or was resumed, with metadata of the caller.
    #[doc(hidden)]
    pub fn has_run_metadata(&self) -> bool {
        match self.source {
            Source::Input | Source::Fork => true,
            Source::Loop => self.metadata.keys().any(|name| !own::is_own(name)),
            Source::Update => false,
        }
    }

    /// Removes the driver's own metadata, for display.
    #[doc(hidden)]
    pub fn shown(mut self) -> Self {
        self.metadata.retain(|name, _| !own::is_own(name));
        self
    }
}

/// A checkpoint to store.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// The previous checkpoint.
    pub parent: Option<CheckpointId>,
    /// Why it exists.
    pub source: Source,
    /// The control record of the thread.
    pub control: Control,
    /// The time of creation: UTC milliseconds, by the clock of the run.
    pub created_ms: i64,
    /// The metadata of the checkpoint. Commits of one run share it as long as it is the same.
    pub metadata: Arc<Map<String, Value>>,
    /// The tasks whose updates make this state from its parent's, in fold order.
    pub applied: Vec<AppliedTask>,
    /// The full value of every channel after these updates, on some commits.
    pub snapshot: Option<Snapshot>,
    /// The records of tasks of this new checkpoint: an accepted input is the finished task of `START`.
    pub records: Vec<(u32, TaskRecord)>,
    /// The fingerprints of a superstep with recorded inputs, for a backend that [keeps typed
    /// values](crate::Checkpointer::keeps_values); other backends find them in the metadata.
    pub fingerprints: Option<LazyFingerprints>,
}

/// The fingerprints of the channels that a superstep wrote, which are computed when a replay compares them.
#[derive(Clone)]
pub struct LazyFingerprints {
    written: ChannelSet,
    graph: Arc<dyn Fingerprints>,
}

/// Computes fingerprints of the state that a graph of this process stored.
#[doc(hidden)]
pub trait Fingerprints: Send + Sync {
    /// Returns the fingerprints of these channels in the state of a checkpoint, by name.
    ///
    /// # Errors
    /// If the checkpoint cannot be read.
    fn compute(
        &self,
        thread: &ThreadId,
        loaded: Loaded,
        written: ChannelSet,
    ) -> Result<Map<String, Value>, Box<dyn Error + Send + Sync>>;
}

impl LazyFingerprints {
    /// Creates those of the channels in `written`.
    #[doc(hidden)]
    pub fn new(written: ChannelSet, graph: Arc<dyn Fingerprints>) -> Self {
        Self { written, graph }
    }
}

impl fmt::Debug for LazyFingerprints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyFingerprints").field("written", &self.written).finish_non_exhaustive()
    }
}

impl PartialEq for LazyFingerprints {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written && Arc::ptr_eq(&self.graph, &other.graph)
    }
}

impl Commit {
    /// Returns the slot of a task of the parent whose update this checkpoint lacks, or has twice: a superstep folds one update of each
    /// task. `None` if it has all of them, and if it need not: an input, a fork, an external update, several supersteps in one.
    pub(crate) fn wrong_task(&self, parent: &Superstep) -> Option<WrongTask> {
        let applied = self.applied.iter().map(|task| task.slot);
        parent.wrong_task((self.source, self.control.step), applied)
    }

    /// Rebuilds the commit of a checkpoint from its load and that of its parent.
    pub(crate) fn of_loaded(
        thread: &ThreadId,
        loaded: Loaded,
        parent: Option<Loaded>,
    ) -> Result<Self, CheckpointError> {
        let Loaded { meta, applied, snapshot, mut commits, tasks, fingerprints, .. } = loaded;
        // With a snapshot of its own, no commit is left to fold.
        let is_own = snapshot.is_some() && commits.is_empty();
        let folded = commits.pop().unwrap_or_default();
        let of_parent = parent.map(|parent| parent.tasks).unwrap_or_default();
        let recorded = |slot: u32| {
            let found = of_parent.iter().find(|(of, _)| *of == slot)?;
            match &found.1 {
                TaskRecord::Finished { update, .. } if meta.source == Source::Loop => Some(update.clone()),
                _ => None,
            }
        };
        let mut tasks_applied = Vec::with_capacity(applied.len());
        for (nth, (slot, node)) in applied.into_iter().enumerate() {
            let update = match is_own {
                false => folded.get(nth).cloned(),
                true if meta.parent_pruned => Some(StoredUpdate::empty()),
                true => recorded(slot),
            };
            let update = update.ok_or_else(|| CheckpointError::hidden_update(thread, meta.id, slot))?;
            tasks_applied.push(AppliedTask { slot, recorded: false, node, update });
        }
        Ok(Self {
            parent: meta.parent,
            source: meta.source,
            control: meta.control,
            created_ms: meta.created_ms,
            metadata: meta.metadata.into(),
            applied: tasks_applied,
            snapshot: snapshot.filter(|_| is_own),
            records: tasks,
            fingerprints,
        })
    }
}

/// The tasks of a checkpoint, which the checkpoint of the next superstep folds.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Superstep {
    step: i64,
    tasks: usize,
}

/// A task whose update a checkpoint does not have once.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongTask {
    /// The update is missing.
    Missing(u32),
    /// The update is there twice, or the task does not exist.
    Superfluous(u32),
}

impl Superstep {
    /// Returns the tasks of a checkpoint.
    pub fn of(control: &Control) -> Self {
        Self { step: control.step, tasks: control.next.len() }
    }

    /// Returns the number of the superstep.
    pub(crate) fn step(&self) -> i64 {
        self.step
    }

    /// Returns a task whose update the checkpoint after these tasks does not have once. `next` is its source and its superstep; the
    /// slots are those of the updates that it folds. `None` if it is not the next superstep.
    pub fn wrong_task(
        &self,
        next: (Source, i64),
        applied: impl IntoIterator<Item = u32>,
    ) -> Option<WrongTask> {
        if next != (Source::Loop, self.step.saturating_add(1)) {
            return None;
        }
        let mut lacks = vec![true; self.tasks];
        for slot in applied {
            let lacks = usize::try_from(slot).ok().and_then(|slot| lacks.get_mut(slot));
            if !lacks.is_some_and(std::mem::take) {
                return Some(WrongTask::Superfluous(slot));
            }
        }
        let missing = lacks.iter().position(|lacks| *lacks)?;
        u32::try_from(missing).ok().map(WrongTask::Missing)
    }
}

/// A task whose update a commit folds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedTask {
    /// The slot in the parent checkpoint.
    pub slot: u32,
    /// `true` if its record is already stored under the parent and need not be stored again.
    pub recorded: bool,
    /// The node that ran, or the author of an external update.
    pub node: NodeName,
    /// The update of the task.
    pub update: StoredUpdate,
}

/// A checkpoint with everything needed to continue from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The checkpoint itself.
    pub meta: CheckpointMeta,
    /// The head of the thread, which may be another checkpoint.
    pub head: CheckpointId,
    /// The tasks whose updates made this state from its parent's: slot and node of each, in fold order.
    pub applied: Vec<(u32, NodeName)>,
    /// The nearest snapshot on the path from the start of the thread, if any.
    pub snapshot: Option<Snapshot>,
    /// The commits since the snapshot, oldest first, each with its updates in fold order.
    pub commits: Vec<Vec<StoredUpdate>>,
    /// The records of the checkpoint's own tasks, by slot. A task without a finished record that a checkpoint
    /// of [`Source::Loop`] applied has the writes of that checkpoint, without targets. If several such
    /// checkpoints follow, the newest counts.
    pub tasks: Vec<(u32, TaskRecord)>,
    /// The [fingerprints](Commit::fingerprints) with which it was committed.
    pub fingerprints: Option<LazyFingerprints>,
}

impl Loaded {
    /// Moves the fingerprints of the superstep into the metadata, where other backends have them.
    ///
    /// # Errors
    /// If the state cannot be read.
    #[doc(hidden)]
    pub fn into_fingerprinted(
        mut self,
        thread: &ThreadId,
    ) -> Result<CheckpointMeta, Box<dyn Error + Send + Sync>> {
        let Some(LazyFingerprints { written, graph }) = self.fingerprints.take() else {
            return Ok(self.meta);
        };
        let mut meta = self.meta.clone();
        meta.metadata.insert(own::STATE.to_owned(), graph.compute(thread, self, written)?.into());
        Ok(meta)
    }
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

/// The graph that a thread belongs to. Displays itself as "`name`" or "`name`, version `2`".
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GraphId {
    /// The name of the graph.
    pub name: String,
    /// The graph version that stored the checkpoint, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl GraphId {
    /// Reads the graph from the metadata of a checkpoint.
    pub(crate) fn of(metadata: &Map<String, Value>) -> Option<Self> {
        let text = |entry| metadata.get(entry).and_then(Value::as_str).map(str::to_owned);
        Some(Self { name: text(GRAPH)?, version: text(VERSION) })
    }
}

impl fmt::Display for GraphId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.name)?;
        self.version.as_ref().map_or(Ok(()), |version| write!(f, ", version `{version}`"))
    }
}

impl CheckpointMeta {
    /// Returns the graph that stored it, from the metadata in a [`Checkpointer`](crate::Checkpointer). `None`
    /// if an older program stored it, and in the checkpoints that graphs show of their own threads.
    pub fn graph(&self) -> Option<GraphId> {
        GraphId::of(&self.metadata)
    }

    /// Returns the rules by which values were replaced when the thread was exported as text, such as `channel email`; from
    /// the metadata in a [`Checkpointer`](crate::Checkpointer). Empty if none were, and in the checkpoints that graphs show.
    pub fn redacted(&self) -> Vec<String> {
        let rules = self.metadata.get(own::REDACTED).and_then(Value::as_array).into_iter().flatten();
        rules.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// See [`Checkpointer::nonce`](crate::Checkpointer::nonce).
    #[doc(hidden)]
    pub fn nonce(&self) -> Option<&str> {
        self.metadata.get(NONCE).and_then(Value::as_str)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::{Checkpointer, MemoryCheckpointer, Prune, TaskKey};

    fn now<T>(future: impl Future<Output = Result<T, CheckpointError>>) -> Result<T, CheckpointError> {
        future.now_or_never().expect("a store in memory does not wait")
    }

    fn commit(parent: Option<u64>, source: Source, update: &str) -> Commit {
        let task = AppliedTask { slot: 0, recorded: false, node: "a".into(), update: update.into() };
        Commit {
            parent: parent.map(CheckpointId),
            source,
            control: Control::new(0, vec!["a".into()]),
            created_ms: 7,
            metadata: Map::new().into(),
            applied: vec![task],
            snapshot: None,
            records: Vec::new(),
            fingerprints: None,
        }
    }

    /// Rebuilds the commit of a checkpoint as the default implementation of `read_commit` does.
    fn rebuilt(store: &MemoryCheckpointer, id: u64) -> Result<Commit, CheckpointError> {
        let thread = "t".into();
        let loaded = now(store.load(&thread, Some(CheckpointId(id))))?.expect("it exists");
        let parent = match loaded.meta.parent.filter(|_| !loaded.meta.parent_pruned) {
            Some(parent) => now(store.load(&thread, Some(parent)))?,
            None => None,
        };
        Commit::of_loaded(&thread, loaded, parent)
    }

    #[test]
    fn a_commit_is_rebuilt_from_loads_unless_a_snapshot_hides_its_updates() {
        let (store, thread) = (MemoryCheckpointer::new(), ThreadId::from("t"));
        let snapshot = || Some(Snapshot::from(Vec::new()));
        let commits = vec![
            commit(None, Source::Input, "1"),
            Commit { snapshot: snapshot(), ..commit(Some(1), Source::Loop, "2") },
            Commit { snapshot: snapshot(), ..commit(Some(2), Source::Update, "3") },
            commit(Some(3), Source::Loop, "4"),
        ];
        now(store.commit_all(&thread, None, commits)).unwrap();
        let task = TaskKey { thread: thread.clone(), checkpoint: CheckpointId(4), slot: 1 };
        now(store.record(&task, TaskRecord::Cancelled { once: Default::default() })).unwrap();
        let read = |id| now(store.read_commit(&thread, CheckpointId(id))).unwrap().unwrap();
        for id in [2, 4] {
            assert_eq!(rebuilt(&store, id).unwrap(), read(id));
        }
        let applied = rebuilt(&store, 1).unwrap().records;
        let update = "2".into();
        assert_eq!(applied, [(0, TaskRecord::Finished { update, targets: Vec::new(), failure: None })]);
        let hidden = rebuilt(&store, 3).unwrap_err().to_string();
        assert!(hidden.ends_with("implement `Checkpointer::read_commit` for this backend"), "{hidden}");
        let prune = Prune {
            keep: [CheckpointId(2)].into(),
            snapshots: [(CheckpointId(4), Vec::new())].into(),
            ..Prune::default()
        };
        now(store.prune(&thread, CheckpointId(4), prune)).unwrap();
        assert_eq!(rebuilt(&store, 4).unwrap().applied[0].update, StoredUpdate::empty());
    }
}
