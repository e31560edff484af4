//! Reading subgraphs and updating their state.
//!
//! A subgraph that works on its caller's state can be read only from the caller, because that state is not
//! stored with it. The lookup therefore descends from the root, graph by graph, for any types of states.
//!
//! Start at [`Thread::subgraph`].

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use superstep_checkpoint::{
    Segment, Source, TaskKey, TaskRecord,
    internal::own::{EDITED, SEEDED},
};

use crate::{
    CheckpointId, Checkpointer, CompiledGraph, History, RunError, State, Thread, ThreadId,
    api::{state::StateSnapshot, update::update_states},
    compiled::{
        graph::Inner,
        subgraph::{At, RemainingPath},
    },
    journal::{interrupts::waiting_record, memories::head, task_origin::Origins},
    run::{
        external_update::AsNode,
        subgraph_lookup::{LocatedSubgraph, SubgraphValues, find},
    },
};

impl<S: State> Thread<S> {
    /// Returns a handle to a subgraph, to read and change its state at the head of the thread, not [`at`](Self::at) another
    /// checkpoint. `path` has the nodes that lead down to it, from a node of this graph on; `T` is the state of the last one.
    ///
    /// A subgraph that has a thread for each of its tasks is found while its task is pending, not once that has finished. Use
    /// [`TaskSnapshot::subgraphs`](crate::thread::TaskSnapshot::subgraphs) and [`state`](Self::state) of the called graph for a
    /// graph that a node calls with [`Cx::call`](crate::Cx::call).
    pub fn subgraph<T: State>(
        &self,
        path: impl IntoIterator<Item = impl Into<String>>,
    ) -> SubgraphThread<S, T> {
        let path = path.into_iter().map(Into::into).collect();
        SubgraphThread { root: self.clone(), path, state: PhantomData }
    }

    /// Returns the state of a subgraph of any type at the head of the thread; `None` if nothing of it is stored.
    pub(crate) async fn subgraph_values(
        &self,
        path: Vec<String>,
    ) -> Result<Option<SubgraphValues>, RunError> {
        let (checkpointer, thread) = self.stored()?;
        let (graph, checkpointer) = (self.graph.clone(), checkpointer.clone());
        let root = LocatedSubgraph { graph, thread: thread.clone(), at: At::Head, seed: None };
        let down = RemainingPath { checkpointer, path: path.into_iter(), reads_values: true };
        let found = find(root, down).await?.downcast::<Option<SubgraphValues>>();
        Ok(*found.expect("values were requested"))
    }
}

/// A subgraph of a thread. Made by [`Thread::subgraph`].
#[must_use = "a handle does nothing until one of its operations runs"]
pub struct SubgraphThread<S: State, T: State> {
    root: Thread<S>,
    path: Vec<String>,
    state: PhantomData<fn() -> T>,
}

impl<S: State, T: State> fmt::Debug for SubgraphThread<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubgraphThread")
            .field("root", &self.root)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl<S: State, T: State> SubgraphThread<S, T> {
    /// Returns the state of the subgraph at the head of its thread. If the
    /// subgraph works on its caller's state, this includes the state that it started with.
    ///
    /// # Errors
    /// [`RunError::NoSubgraph`] if there is none, its state is not a `T`, or the thread's handle is [`at`](Thread::at) another
    /// checkpoint than the head; or the error of the checkpointer or the state.
    pub async fn state(&self) -> Result<StateSnapshot<T>, RunError> {
        let (checkpointer, thread) = self.root.stored()?;
        let found = self.find(thread).await?;
        let restored = found.load(checkpointer).await?;
        let restored = restored.ok_or_else(|| self.missing("nothing of it is stored yet"))?;
        let topology = &found.graph.inner().topology;
        StateSnapshot::new(restored, true, &**checkpointer, &found.thread, topology).await
    }

    /// Stores an update in the name of the node that ran last: see [`Thread::update`].
    ///
    /// # Errors
    /// Those of [`update_as`](Self::update_as), and [`RunError::AmbiguousUpdate`] if several nodes ran last.
    pub async fn update(&self, update: impl Into<T::Update>) -> Result<CheckpointId, RunError> {
        self.update_as(AsNode::LastRun, update).await
    }

    /// Stores an update in the name of a node of the subgraph: see [`Thread::update_as`]. The caller's task continues with
    /// it when the thread is resumed; the subgraph's pending questions are withdrawn.
    ///
    /// # Errors
    /// Those of [`state`](Self::state) and of [`Thread::update_as`].
    pub async fn update_as(
        &self,
        node: impl Into<AsNode>,
        update: impl Into<T::Update>,
    ) -> Result<CheckpointId, RunError> {
        let (checkpointer, thread) = self.root.stored_root()?;
        let supersteps = vec![vec![(update.into(), node.into())]];
        let lease = checkpointer.lease(thread).await?;
        let LocatedSubgraph { graph, thread, at, seed } = self.find(thread).await?;
        self.root.options.check_metadata()?;
        let mut config = self.root.options.clone();
        config.checkpoint = match at {
            // It would begin without the input that its caller gives to it.
            At::Head if head(&**checkpointer, &thread).await?.is_none() => {
                return Err(self.missing("nothing of it is stored yet"));
            }
            At::Head => None,
            At::Checkpoint { found, caller } => {
                config.metadata.insert(EDITED.to_owned(), caller.0.into());
                Some(found)
            }
            At::Nowhere => return Err(self.missing("nothing of it is stored yet")),
        };
        let inner: &Inner<T> = graph.inner();
        let id = update_states(inner, checkpointer, &thread, &config, supersteps, seed.as_ref()).await?;
        forget_questions(&**checkpointer, thread).await?;
        drop(lease);
        Ok(id)
    }

    async fn find(&self, thread: &ThreadId) -> Result<LocatedSubgraph<T>, RunError> {
        if self.path.is_empty() {
            return Err(self.missing("the path to it is empty"));
        }
        let graph = self.root.graph.clone();
        let checkpointer = graph.checkpointer()?.clone();
        if let Some(at) = self.root.options.checkpoint
            && head(&*checkpointer, thread).await?.is_none_or(|head| head.id != at)
        {
            return Err(
                self.missing("it is found at the head of the thread only, not `at` another checkpoint")
            );
        }
        let root = LocatedSubgraph { graph, thread: thread.clone(), at: At::Head, seed: None };
        let found = find(
            root,
            RemainingPath { checkpointer, path: self.path.clone().into_iter(), reads_values: false },
        )
        .await?;
        let found = found.downcast::<LocatedSubgraph<T>>();
        found.map(|found| *found).map_err(|_| self.missing("its state is of another type"))
    }

    fn missing(&self, why: &'static str) -> RunError {
        let (graph, node) = (self.root.graph.name().to_owned(), self.path.join("/"));
        RunError::NoSubgraph { graph, node, why }
    }
}

impl<S: State> CompiledGraph<S> {
    /// Refuses the thread of a subgraph that works on its caller's state, which is not stored with it.
    pub(crate) async fn refuse_seeded(&self, thread: &ThreadId) -> Result<(), RunError> {
        if !thread.is_child() {
            return Ok(());
        }
        let range = History { source: Some(Source::Input), limit: Some(1), ..History::default() };
        let inputs = self.checkpointer()?.history(thread, range).await?;
        if inputs.iter().any(|input| input.metadata.contains_key(SEEDED)) {
            let why = "it works on the state of its caller; read it from the caller's thread with `subgraph`";
            let node = thread.to_string();
            return Err(RunError::NoSubgraph { graph: self.name().to_owned(), node, why });
        }
        Ok(())
    }
}

/// Removes the questions of a subgraph from the records of its callers: it continued without the answers. The tasks are recorded
/// as ones that waited, because their results depend on the update.
async fn forget_questions(checkpointer: &dyn Checkpointer, mut thread: ThreadId) -> Result<(), RunError> {
    while let Some((parent, segment)) = thread.parent() {
        thread = parent;
        let Some(loaded) = checkpointer.load(&thread, None).await? else { break };
        let origins = Origins::of(&loaded.meta);
        let is_caller = |slot: u32| match segment.task {
            Some(task) => task == origins.caller(slot),
            None => loaded.meta.control.next.get(slot as usize) == Some(&segment.node),
        };
        for (slot, _) in (0..).zip(&loaded.meta.control.next).filter(|(slot, _)| is_caller(*slot)) {
            let record = loaded.tasks.iter().find(|(of, _)| *of == slot).map(|(_, record)| record.clone());
            let Some(record) = without_questions(record, &segment) else { continue };
            let key = TaskKey { thread: thread.clone(), checkpoint: loaded.meta.id, slot };
            checkpointer.record(&key, record).await?;
        }
    }
    Ok(())
}

/// Returns the record of a task that waited and has no questions of this subgraph; `None` if its record remains.
fn without_questions(record: Option<TaskRecord>, subgraph: &Segment) -> Option<TaskRecord> {
    let waited = |attempts, error, once| waiting_record(Vec::new(), &BTreeMap::new(), attempts, error, once);
    match record {
        Some(TaskRecord::Interrupted { mut questions, answers, asked, attempts, error, once }) => {
            questions
                .retain(|question| question.within.as_ref().is_none_or(|within| within.call != subgraph.key));
            Some(TaskRecord::Interrupted { questions, answers, asked, attempts, error, once })
        }
        Some(TaskRecord::Started { attempts, once }) => Some(waited(attempts, None, once)),
        Some(TaskRecord::Failed { attempts, error, once }) => Some(waited(attempts, Some(error), once)),
        Some(TaskRecord::Cancelled { once }) => Some(waited(0, None, once)),
        // The calling task of a graph that outlives its tasks may not have begun.
        None => subgraph.task.map(|_| waited(0, None, BTreeMap::new())),
        Some(TaskRecord::Finished { .. } | TaskRecord::Handled { .. }) => None,
    }
}
