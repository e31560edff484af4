//! Replays of recorded threads.
//!
//! Start at [`Replay`].

mod rerecord;

use std::{collections::BTreeSet, fmt, sync::Arc};

use serde_json::{Map, Value};
use superstep_checkpoint::{
    CheckpointMeta, Clock, Commit, IntoShared, Loaded, Source, SystemClock, TaskRecord,
    internal::input_metadata,
};
use superstep_engine::NodeName;
use superstep_state::{StoredUpdate, internal::ThreadDecoder};

use crate::{
    CheckpointId, Checkpointer, CompiledGraph, History, OnUnfinished, RunError, RunOptions, State, Store,
    Thread, ThreadId,
    api::replay_checkpointer::ReplayCheckpointer,
    compiled::{graph::Backends, owner::Mark},
    journal::{
        divergence::Divergence,
        memories::{add_memories, bound},
        replay_script::{Line, ReplayCursor, Script, is_input},
    },
    run::{begin::RunInput, replaying::adopted, restore::unfit_error, root_run},
    run_error::names,
};

/// A replay of a stored thread: the same inputs, ids, times, answers and effect results, provided through
/// each node's [`Cx`](crate::Cx) without repeating the effects. It reports the first divergence from the
/// stored thread.
///
/// A recorded thread thereby becomes a test of the graph's nodes, prompts, reducers and edges, without a
/// model or a tool. A replay stores nothing and does not affect runs of the thread. **Effects outside of `Cx`
/// are repeated**, unless the node checks [`Cx::is_live`](crate::Cx::is_live).
///
/// ```
/// # use std::sync::Arc;
/// use superstep_graph::{Cx, MemoryCheckpointer, START, State, StateGraph};
/// # use superstep_graph::{CompiledGraph, CompileError, Checkpointer};
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Trip { city: String, weather: String }
///
/// fn trip(store: Arc<dyn Checkpointer>, polite: bool) -> Result<CompiledGraph<Trip>, CompileError> {
///     let mut graph = StateGraph::<Trip>::new("trip");
///     let look_up = graph.add_node_with("look_up", polite, async |polite: bool, trip: Trip, cx: Cx| {
///         let weather = cx.recorded("weather", async || format!("rain in {}", trip.city)).await;
///         Trip::update().weather(if polite { format!("sorry, {weather}") } else { weather })
///     });
///     graph.add_edge(START, look_up);
///     Ok(graph.compile()?.with_checkpointer(store))
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = Arc::new(MemoryCheckpointer::new());
/// trip(store.clone(), false)?.thread("t").run(Trip::update().city("Bonn")).await?;
///
/// trip(store.clone(), false)?.thread("t").replay().run().await?.assert_same();
///
/// let found = trip(store, true)?.thread("t").replay().run().await?.divergence.expect("it became polite");
/// assert_eq!((found.node.as_str(), found.at.channel()), ("look_up", Some("weather")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Replay<S: State> {
    pub(super) graph: CompiledGraph<S>,
    thread: Option<ThreadId>,
    pub(crate) from: Option<CheckpointId>,
    pub(crate) to: Option<CheckpointId>,
    pub(crate) live: BTreeSet<String>,
    pub(super) context: Value,
    pub(super) metadata: Map<String, Value>,
    pub(crate) store: Option<Arc<dyn Store>>,
}

/// The result of a [`Replay`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a difference is not an error: inspect `divergence`, or call `assert_same`"]
#[non_exhaustive]
pub struct Replayed {
    /// The number of supersteps that agree with the stored ones.
    pub supersteps: usize,
    /// The number of tasks whose stored update was used unchanged because their inputs were not recorded: it was stored
    /// without [`Thread::recording`](crate::Thread::recording), by an older program, or by an external update.
    pub taken: usize,
    /// The number of skipped supersteps, which were stored as one checkpoint with [`Durability::Exit`](crate::Durability::Exit).
    pub skipped: usize,
    /// The number of supersteps of the branch that a live replay did not reach. It ends before a checkpoint
    /// that is not a superstep, and at the first divergence.
    pub left: usize,
    /// The fork on which live nodes ran, if there were any.
    pub fork: Option<CheckpointId>,
    /// The first divergence.
    pub divergence: Option<Divergence>,
}

/// The remedy for an intended divergence.
const ACCEPT: &str = "if the change is intended, record the thread again with `Replay::rerecord`, or its text with `replay --accept`";

/// A thread that cannot be replayed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The thread has no checkpoint.
    #[error(
        "SS193: thread `{thread}` has no checkpoint, so there is nothing to replay; check its name and the store"
    )]
    EmptyThread {
        /// The thread.
        thread: ThreadId,
    },
    /// A checkpoint that is not on the path to the replay's last checkpoint.
    #[error(
        "SS194: checkpoint {checkpoint} of thread `{thread}` does not lead to checkpoint {to}, where the \
         replay ends; end the replay on the branch of that checkpoint, or begin at a checkpoint of this \
         branch"
    )]
    NotOnBranch {
        /// The thread.
        thread: ThreadId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The last checkpoint of the replay.
        to: CheckpointId,
    },
    /// A live replay of a thread with pending tasks, which a fork would lose.
    #[error(
        "SS195: thread `{thread}` is not finished, {} would be next; resume it to its end before a live \
         replay, or replay it without live nodes",
        names(next)
    )]
    Unfinished {
        /// The thread.
        thread: ThreadId,
        /// The pending nodes.
        next: Vec<NodeName>,
    },
    /// A live replay in which a node calls a graph with one thread for all its calls.
    #[error(
        "SS196: node `{node}` calls a graph with `Persistence::PerNode`, and a live replay of thread `{thread}` would write to the \
         thread of that graph; replay it without live nodes, or up to a checkpoint before that node"
    )]
    Own {
        /// The thread.
        thread: ThreadId,
        /// The calling node.
        node: NodeName,
    },
    /// A thread whose text was redacted before it was imported.
    #[error(
        "SS199: thread `{thread}` was redacted when it was exported ({}), so the values that a replay compares are missing; \
         replay the thread that was exported", .rules.join(", ")
    )]
    Redacted {
        /// The thread.
        thread: ThreadId,
        /// The names of the rules.
        rules: Vec<String>,
    },
    /// A thread that cannot be recorded again without its effects.
    #[error(
        "SS200: thread `{thread}` cannot be recorded again: {missing} is missing; run the graph on its inputs instead, which \
         performs the effects"
    )]
    NotRerecorded {
        /// The thread.
        thread: ThreadId,
        /// The missing data.
        missing: String,
    },
    /// An unknown name of a live node.
    #[error(
        "SS197: unknown live node `{node}`: not found in graph `{graph}` or its subgraphs; name the nodes \
         as they were added to the graph"
    )]
    NoSuchNode {
        /// The name.
        node: String,
        /// The graph.
        graph: String,
    },
    /// An error of the thread or the graph before the replay.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl<S: State> Thread<S> {
    /// Returns a replay of the whole thread, along the branch that ends at its head or at the checkpoint named by
    /// [`at`](Self::at), to be narrowed down and run. The other options of the handle do not apply to it.
    pub fn replay(&self) -> Replay<S> {
        Replay {
            graph: self.graph.clone(),
            thread: self.id().cloned(),
            from: None,
            to: self.options.checkpoint,
            live: BTreeSet::new(),
            context: Value::Null,
            metadata: Map::new(),
            store: None,
        }
    }
}

impl<S: State> Replay<S> {
    /// Begins at this checkpoint: its tasks are the first to run.
    #[must_use]
    pub fn from(self, checkpoint: CheckpointId) -> Self {
        Self { from: Some(checkpoint), ..self }
    }

    /// Ends the replay at this checkpoint, which may be on another branch than the head.
    #[must_use]
    pub fn to(self, checkpoint: CheckpointId) -> Self {
        Self { to: Some(checkpoint), ..self }
    }

    /// Sets live nodes by name, which perform their effects, also in called graphs; the comparison does not
    /// change. The run is stored as a fork of the thread. It ends at the first divergence, or before a
    /// checkpoint that is not a superstep: see [`Replayed::left`]. Then the thread's former head is restored,
    /// so the thread must be finished. A replay that is dropped before leaves the thread on the fork.
    #[must_use]
    pub fn live<N: Into<String>>(mut self, nodes: impl IntoIterator<Item = N>) -> Self {
        self.live.extend(nodes.into_iter().map(Into::into));
        self
    }

    /// Sets the value of [`Cx::context`](crate::Cx::context), which is not stored.
    #[must_use]
    pub fn context(self, context: Value) -> Self {
        Self { context, ..self }
    }

    /// Replaces entries of the metadata of inputs that [`rerecord`](Self::rerecord) stores. No effect on other replays.
    #[must_use]
    pub fn input_metadata(self, metadata: Map<String, Value>) -> Self {
        Self { metadata, ..self }
    }

    /// Sets the store for [`Cx::store`](crate::Cx::store), for live and all other nodes. Without it there is
    /// none, even if the graph has one: operations on a store are effects and belong in
    /// [`Cx::recorded`](crate::Cx::recorded).
    #[must_use]
    pub fn store(self, store: impl IntoShared<dyn Store>) -> Self {
        Self { store: Some(store.into_shared()), ..self }
    }

    /// Runs the replay.
    ///
    /// # Errors
    /// [`ReplayError`]. A divergence is not an error: see [`Replayed::divergence`].
    pub async fn run(self) -> Result<Replayed, ReplayError> {
        let stored = self.graph.checkpointer()?.clone();
        let branch: Arc<[CheckpointMeta]> = self.named_branch(&*stored).await?.into();
        let start = self.start(&branch)?;
        let script = Arc::new(Script::new(stored.clone(), self.live.clone()));
        let (skipped, fork) = if script.is_any_live() {
            (0, Some(self.live_run(&script, stored, &branch, start).await?))
        } else {
            (self.quiet_runs(&script, &branch, start).await?, None)
        };
        Ok(Replayed {
            supersteps: script.supersteps(),
            taken: script.taken(),
            skipped,
            left: if fork.is_some() { script.left(self.thread()) } else { 0 },
            fork,
            divergence: script.found(),
        })
    }

    /// Returns the position of the first checkpoint on the branch.
    pub(super) fn start(&self, branch: &[CheckpointMeta]) -> Result<usize, ReplayError> {
        let Some(from) = self.from else { return Ok(0) };
        branch.iter().position(|meta| meta.id == from).ok_or_else(|| {
            let to = branch.last().map_or(from, |last| last.id);
            ReplayError::NotOnBranch { thread: self.thread().clone(), checkpoint: from, to }
        })
    }

    /// Returns the branch of a handle that has a thread.
    pub(super) async fn named_branch(
        &self,
        stored: &dyn Checkpointer,
    ) -> Result<Vec<CheckpointMeta>, ReplayError> {
        if self.thread.is_none() {
            return Err(RunError::NoThread { graph: self.graph.name().to_owned() }.into());
        }
        self.branch(stored).await
    }

    pub(super) fn thread(&self) -> &ThreadId {
        self.thread.as_ref().expect("`run` refuses a handle without a thread")
    }

    /// The checkpoints that lead to the last one, oldest first.
    async fn branch(&self, stored: &dyn Checkpointer) -> Result<Vec<CheckpointMeta>, ReplayError> {
        let all = stored.history(self.thread(), History::default()).await.map_err(RunError::from)?;
        let thread = self.thread().clone();
        let Some(head) = all.first().map(|head| head.id) else {
            return Err(ReplayError::EmptyThread { thread });
        };
        if let Some(checkpoint) = self.from.filter(|from| all.iter().all(|meta| meta.id != *from)) {
            return Err(RunError::UnknownCheckpoint { thread, checkpoint }.into());
        }
        all.iter().try_for_each(|meta| self.graph.inner().owns(self.thread(), meta))?;
        let mut wanted = Some(self.to.unwrap_or(head));
        let mut branch: Vec<CheckpointMeta> = Vec::new();
        for meta in all {
            if wanted == Some(meta.id) {
                wanted = meta.parent.filter(|_| !meta.parent_pruned);
                branch.push(meta);
            }
        }
        match wanted {
            Some(checkpoint) => Err(RunError::UnknownCheckpoint { thread, checkpoint }.into()),
            None => {
                if let Some(rules) =
                    branch.iter().map(CheckpointMeta::redacted).find(|rules| !rules.is_empty())
                {
                    return Err(ReplayError::Redacted { thread, rules });
                }
                branch.reverse();
                Ok(branch)
            }
        }
    }

    /// Replays the branch section by section: each begins with a checkpoint that is not a superstep. Returns
    /// the number of skipped supersteps.
    async fn quiet_runs(
        &self,
        script: &Arc<Script>,
        branch: &Arc<[CheckpointMeta]>,
        start: usize,
    ) -> Result<usize, ReplayError> {
        let (mut at, mut skipped, mut stuck) = (start, 0, false);
        while at < branch.len() && script.found().is_none() {
            let (first, end) = (&branch[at], end_of_piece(branch, at));
            if first.source == Source::Loop && at > start && !stuck {
                let supersteps = first.control.step.saturating_sub(branch[at - 1].control.step);
                skipped += usize::try_from(supersteps).unwrap_or_default();
            }
            if let Some(divergence) = adopted(self.graph.inner(), script, self.thread(), first).await? {
                script.diverge(divergence);
                break;
            }
            let is_input = first.source == Source::Input && (at > 0 || first.parent.is_none());
            let done = if is_input { at } else { at + 1 };
            script.put(self.thread(), Line { checkpoints: branch.clone(), done, end });
            let run_input = if is_input {
                RunInput::Stored(self.input(&*script.store, first).await?)
            } else {
                RunInput::Nothing
            };
            stuck = (is_input || end > at + 1)
                && self.run_along(script, Arc::new(ReplayCheckpointer(script.clone())), run_input).await?;
            // Where it is stuck, another run begins with the results of that superstep.
            at = if stuck { script.done(self.thread()) } else { end };
        }
        Ok(skipped)
    }

    async fn live_run(
        &self,
        script: &Arc<Script>,
        stored: Arc<dyn Checkpointer>,
        branch: &Arc<[CheckpointMeta]>,
        mut start: usize,
    ) -> Result<CheckpointId, ReplayError> {
        // No run begins before the thread is at its former checkpoint again.
        let _lease = stored.lease(self.thread()).await.map_err(RunError::from)?;
        // Where nothing ran there is nothing to compare.
        while end_of_piece(branch, start) == start + 1 && start + 1 < branch.len() {
            start += 1;
        }
        let line = Line { checkpoints: branch.clone(), done: start + 1, end: end_of_piece(branch, start) };
        script.put(self.thread(), line);
        let at = branch[start].id;
        let loaded = stored.load(self.thread(), Some(at)).await.map_err(RunError::from)?;
        let Some(Loaded { meta, head, tasks, .. }) = loaded else {
            return Err(RunError::UnknownCheckpoint { thread: self.thread().clone(), checkpoint: at }.into());
        };
        self.check_finished(&*stored, head).await?;
        let all = stored.history(self.thread(), History::default()).await.map_err(RunError::from)?;
        let records = tasks.into_iter().filter(|(slot, _)| is_input(&meta, *slot)).collect();
        let mark = Mark::of(&meta);
        let mut metadata = input_metadata(&all, at);
        mark.put(&mut metadata);
        add_memories(&mut metadata, &bound(&meta));
        // Its supersteps have the numbers of the thread's, so that ids are equal.
        let fork = Commit {
            parent: Some(at),
            source: Source::Fork,
            control: meta.control,
            created_ms: SystemClock.now_ms(),
            metadata: metadata.into(),
            applied: Vec::new(),
            snapshot: None,
            fingerprints: None,
            records,
        };
        let fork = stored.commit(self.thread(), Some(head), fork).await.map_err(RunError::from)?;
        let ran = self.run_along(script, stored.clone(), RunInput::Nothing).await;
        let mut metadata = input_metadata(&all, head);
        mark.put(&mut metadata);
        self.stand_at(&*stored, head, metadata).await?;
        ran?;
        if let Some(node) = script.refused() {
            return Err(ReplayError::Own { thread: self.thread().clone(), node });
        }
        let graph = self.graph.inner();
        match script.unmet(|name| graph.topology.find(name).is_some()) {
            Some(node) if script.found().is_none() => {
                Err(ReplayError::NoSuchNode { node, graph: graph.name.to_string() })
            }
            _ => Ok(fork),
        }
    }

    /// Rejects a thread with pending tasks: a part of their work may be done, on threads and under keys that
    /// are named after that checkpoint, so that no other checkpoint can continue it.
    async fn check_finished(&self, stored: &dyn Checkpointer, head: CheckpointId) -> Result<(), ReplayError> {
        let loaded = stored.load(self.thread(), Some(head)).await.map_err(RunError::from)?;
        match loaded.map(|loaded| loaded.meta.control) {
            Some(control) if !control.is_finished() => {
                Err(ReplayError::Unfinished { thread: self.thread().clone(), next: control.next })
            }
            _ => Ok(()),
        }
    }

    /// Restores the thread's former head, a checkpoint without pending tasks.
    async fn stand_at(
        &self,
        stored: &dyn Checkpointer,
        at: CheckpointId,
        mut metadata: Map<String, Value>,
    ) -> Result<(), ReplayError> {
        let head = stored.load(self.thread(), None).await.map_err(RunError::from)?;
        let stood = stored.load(self.thread(), Some(at)).await.map_err(RunError::from)?;
        if let (Some(head), Some(stood)) = (head, stood) {
            add_memories(&mut metadata, &bound(&stood.meta));
            let back = Commit {
                parent: Some(at),
                source: Source::Fork,
                control: stood.meta.control,
                created_ms: SystemClock.now_ms(),
                metadata: metadata.into(),
                applied: Vec::new(),
                snapshot: None,
                fingerprints: None,
                records: Vec::new(),
            };
            stored.commit(self.thread(), Some(head.head), back).await.map_err(RunError::from)?;
        }
        Ok(())
    }

    /// Runs one section. Returns whether it is stuck, without a divergence.
    async fn run_along(
        &self,
        script: &Arc<Script>,
        checkpointer: Arc<dyn Checkpointer>,
        run_input: RunInput<S>,
    ) -> Result<bool, ReplayError> {
        let options = RunOptions::new()
            .thread(self.thread().clone())
            .step_limit(u32::MAX)
            .on_unfinished(OnUnfinished::Discard)
            .context(self.context.clone());
        let store = self.store.clone();
        let backends = Backends { checkpointer: Some(checkpointer), store, retention: None };
        let cursor = ReplayCursor { script: script.clone(), thread: self.thread().clone() };
        Ok(root_run::replay(self.graph.inner().clone(), backends, run_input, options, cursor).await?)
    }

    /// Returns the input that a checkpoint accepted.
    pub(crate) async fn input(
        &self,
        stored: &dyn Checkpointer,
        meta: &CheckpointMeta,
    ) -> Result<S::Update, ReplayError> {
        let loaded = stored.load(self.thread(), Some(meta.id)).await.map_err(RunError::from)?;
        let tasks = loaded.map(|loaded| loaded.tasks).unwrap_or_default();
        let update = tasks.into_iter().find_map(|(_, record)| match record {
            TaskRecord::Finished { update, .. } => Some(update),
            _ => None,
        });
        let mut reader = ThreadDecoder::new((*self.graph.inner().initial).clone());
        let read = reader.record(0, &update.unwrap_or_else(StoredUpdate::empty));
        read.map_err(|unfit| unfit_error(unfit, self.thread(), meta.id, "an input").into())
    }
}

/// Returns the end of the consecutive supersteps that follow a checkpoint.
fn end_of_piece(branch: &[CheckpointMeta], at: usize) -> usize {
    let steps = branch[at..].windows(2);
    let plain = steps.take_while(|pair| {
        pair[1].source == Source::Loop && pair[1].control.step == pair[0].control.step.saturating_add(1)
    });
    at + 1 + plain.count()
}

impl Replayed {
    /// Returns whether the replay agrees with the stored thread.
    pub fn is_same(&self) -> bool {
        self.divergence.is_none()
    }

    /// Returns whether the whole branch was replayed, without using stored updates.
    pub fn is_whole(&self) -> bool {
        self.supersteps > 0 && self.taken == 0 && self.skipped == 0 && self.left == 0
    }

    /// Asserts a complete replay without divergence, for tests.
    ///
    /// # Panics
    /// If there is a divergence. Also if the replay was empty or incomplete, or if a task was not run for
    /// lack of records, because the test would then cover less than it claims.
    #[track_caller]
    pub fn assert_same(&self) {
        if let Some(divergence) = &self.divergence {
            panic!("the replay diverged from the thread\n{divergence}\n{ACCEPT}");
        }
        assert!(self.supersteps > 0, "nothing was replayed: {self}");
        assert!(self.taken == 0 && self.skipped == 0, "not all of the thread is recorded: {self}");
        assert!(self.left == 0, "not all of the thread was replayed: {self}");
    }
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { supersteps, taken, skipped, left, divergence, .. } = self;
        if let Some(divergence) = divergence {
            return write!(f, "{divergence}");
        }
        let s = |number: usize| if number == 1 { "" } else { "s" };
        write!(f, "{supersteps} superstep{} replayed, no divergence", s(*supersteps))?;
        if *taken > 0 {
            write!(f, "; {taken} task{} not recorded and taken as stored", s(*taken))?;
        }
        if *skipped > 0 {
            write!(f, "; {skipped} superstep{} stored as one and passed over", s(*skipped))?;
        }
        if *left > 0 {
            write!(
                f,
                "; {left} superstep{} after that not replayed, for a live replay ends there",
                s(*left)
            )?;
        }
        Ok(())
    }
}

impl<S: State> fmt::Debug for Replay<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay")
            .field("thread", &self.thread)
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}

superstep_state::debug_by_chain!(ReplayError);
