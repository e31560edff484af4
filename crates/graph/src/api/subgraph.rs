//! Reading subgraphs and updating their state.
//!
//! A subgraph that works on its caller's state can be read only from the caller, because that state is not
//! stored with it. The lookup therefore descends from the root, graph by graph, for any types of states.
//!
//! Start at [`CompiledGraph::get_subgraph_state`].

use superstep_checkpoint::internal::own::{EDITED, SEEDED};

use crate::{
    AsNode, CheckpointId, Checkpointer, CompiledGraph, History, RunConfig, RunError, Source, State,
    StateSnapshot, TaskKey, TaskRecord, ThreadId,
    api::update::update_states,
    compiled::{
        graph::Inner,
        subgraph::{At, Down},
    },
    journal::task_origin::Origins,
    run::subgraph_lookup::{Found, find},
};

impl<S: State> CompiledGraph<S> {
    /// Returns the state of a subgraph at the head of its thread. `path` has the nodes that lead down to it,
    /// starting with a node of this graph; `T` is the state of the last one. For a subgraph of the same
    /// state, it includes the state at its start.
    ///
    /// A subgraph with a thread per task is found while its task is pending. For graphs called with
    /// [`Cx::call`](crate::Cx::call), use [`TaskSnapshot::subgraphs`](crate::TaskSnapshot::subgraphs) and
    /// [`get_state`](Self::get_state) of the called graph.
    ///
    /// # Errors
    /// [`RunError::NoSubgraph`] if it does not exist, or its state is not a `T`; and errors of the
    /// checkpointer or the state.
    pub async fn get_subgraph_state<T: State>(
        &self,
        thread: &ThreadId,
        path: &[&str],
    ) -> Result<StateSnapshot<T>, RunError> {
        let found = self.find_subgraph::<T>(thread, path).await?;
        let checkpointer = self.checkpointer()?;
        let restored = found.load(checkpointer).await?;
        let restored = restored.ok_or_else(|| self.no_subgraph(path, "nothing of it is stored yet"))?;
        let origins = Origins::of(&restored.meta);
        let snapshot = restored.into_snapshot(true, &found.graph.inner().topology)?;
        snapshot.with_subgraphs(&**checkpointer, &found.thread, &origins).await
    }

    /// Updates the state of a subgraph, as [`update_state`](Self::update_state) does for this graph. Its
    /// caller's task continues it when the thread is resumed; earlier questions of the subgraph are void.
    ///
    /// # Errors
    /// Those of [`get_subgraph_state`](Self::get_subgraph_state) and [`update_state`](Self::update_state).
    pub async fn update_subgraph_state<T: State>(
        &self,
        config: RunConfig,
        path: &[&str],
        update: T::Update,
        as_node: impl Into<AsNode>,
    ) -> Result<CheckpointId, RunError> {
        let (checkpointer, thread) = (self.checkpointer()?, self.thread_of(&config)?);
        let supersteps = vec![vec![(update, as_node.into())]];
        let lease = checkpointer.lease(thread).await?;
        let Found { graph, thread, at, seed } = self.find_subgraph::<T>(thread, path).await?;
        config.check_metadata()?;
        let mut config = config.clone();
        config.checkpoint = match at {
            At::Head => None,
            At::Checkpoint { found, caller } => {
                config.metadata.insert(EDITED.to_owned(), caller.0.into());
                Some(found)
            }
            At::Nowhere => return Err(self.no_subgraph(path, "nothing of it is stored yet")),
        };
        let inner: &Inner<T> = graph.inner();
        let id = update_states(inner, checkpointer, &thread, &config, supersteps, seed.as_ref()).await?;
        forget_questions(&**checkpointer, thread).await?;
        drop(lease);
        Ok(id)
    }

    /// Rejects the thread of a subgraph that works on its caller's state, which is not stored with it.
    pub(crate) async fn refuse_seeded(&self, thread: &ThreadId) -> Result<(), RunError> {
        if !thread.is_child() {
            return Ok(());
        }
        let range = History { source: Some(Source::Input), limit: Some(1), ..History::default() };
        let inputs = self.checkpointer()?.history(thread, range).await?;
        if inputs.iter().any(|input| input.metadata.contains_key(SEEDED)) {
            let why = "it works on the state of its caller; ask the caller's graph with `get_subgraph_state`";
            let node = thread.to_string();
            return Err(RunError::NoSubgraph { graph: self.name().to_owned(), node, why });
        }
        Ok(())
    }

    async fn find_subgraph<T: State>(&self, thread: &ThreadId, path: &[&str]) -> Result<Found<T>, RunError> {
        if path.is_empty() {
            return Err(self.no_subgraph(path, "the path to it is empty"));
        }
        let checkpointer = self.checkpointer()?.clone();
        let path_down: Vec<String> = path.iter().map(|&node| node.to_owned()).collect();
        let root = Found { graph: self.clone(), thread: thread.clone(), at: At::Head, seed: None };
        let found = find(root, Down { checkpointer, path: path_down.into_iter() }).await?;
        let found = found.downcast::<Found<T>>();
        found.map(|found| *found).map_err(|_| self.no_subgraph(path, "its state is of another type"))
    }

    fn no_subgraph(&self, path: &[&str], why: &'static str) -> RunError {
        RunError::NoSubgraph { graph: self.name().to_owned(), node: path.join("/"), why }
    }
}

impl<S: State> StateSnapshot<S> {
    /// Adds the threads of the graphs that its unfinished tasks called.
    pub(crate) async fn with_subgraphs(
        mut self,
        checkpointer: &dyn Checkpointer,
        thread: &ThreadId,
        origins: &Origins,
    ) -> Result<Self, RunError> {
        if self.next.is_empty() {
            return Ok(self);
        }
        for child in checkpointer.children(thread).await? {
            let Some((_, segment)) = child.parent().filter(|(parent, _)| parent == thread) else { continue };
            for (slot, task) in (0u32..).zip(&mut self.tasks) {
                let calls = segment.task.is_none_or(|called| called == origins.caller(slot));
                if calls && segment.node == task.node && task.result.is_none() {
                    task.subgraphs.push(child.clone());
                }
            }
        }
        Ok(self)
    }
}

/// Removes the questions of a subgraph from the records of its callers: it continued without the answers.
async fn forget_questions(checkpointer: &dyn Checkpointer, mut thread: ThreadId) -> Result<(), RunError> {
    while let Some((parent, segment)) = thread.parent() {
        thread = parent;
        let Some(loaded) = checkpointer.load(&thread, None).await? else { break };
        let origins = Origins::of(&loaded.meta);
        let is_caller = |slot: u32| match segment.task {
            Some(task) => task == origins.caller(slot),
            None => loaded.meta.control.next.get(slot as usize) == Some(&segment.node),
        };
        for (slot, record) in loaded.tasks.iter().filter(|(slot, _)| is_caller(*slot)) {
            let mut record = record.clone();
            let TaskRecord::Interrupted { questions, .. } = &mut record else { continue };
            questions.retain(|asked| asked.within.as_ref().is_none_or(|within| within.call != segment.key));
            let key = TaskKey { thread: thread.clone(), checkpoint: loaded.meta.id, slot: *slot };
            checkpointer.record(&key, record).await?;
        }
    }
    Ok(())
}
