//! States of threads, for callers.
//!
//! Start at [`StateSnapshot`].

use superstep_checkpoint::{CheckpointMeta, GraphId, TaskRecord};
use superstep_engine::{ChannelSet, NodeName, Topology};
use superstep_state::internal::fold;

use crate::{
    Checkpointer, Interrupt, Question, RunError, State, Thread, ThreadId,
    journal::{interrupts::into_interrupt, task_origin::Origins},
    run::{
        conflicts::set_back_refused,
        restore::{Restored, load_known},
    },
};

/// The state of a thread at a checkpoint.
#[derive(Clone, Debug)]
pub struct StateSnapshot<S: State> {
    /// The state. At the head it includes the updates of finished tasks of an incomplete superstep; updates
    /// that cannot be folded are errors of their tasks.
    pub values: S,
    /// The pending nodes. Empty if the thread is [finished](Self::is_finished), and if it does not [exist](Self::exists).
    pub next: Vec<NodeName>,
    /// The checkpoint's tasks and their records.
    pub tasks: Vec<TaskSnapshot<S>>,
    /// The checkpoint; `None` if the thread has none.
    pub checkpoint: Option<CheckpointMeta>,
    /// The graph that stored it: this one, in any version. `None` if there is no checkpoint, or if an older
    /// program stored it.
    pub graph: Option<GraphId>,
    /// The names of stored channels that this state does not have. They are retained if the thread continues.
    pub unknown: Vec<String>,
}

impl<S: State> StateSnapshot<S> {
    /// Returns whether the thread exists. [`next`](Self::next) is empty for an unknown thread as for a finished one.
    pub fn exists(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// Returns whether the thread exists and has no pending nodes.
    pub fn is_finished(&self) -> bool {
        self.exists() && self.next.is_empty()
    }
}

/// A task of a checkpoint.
#[derive(Clone, Debug)]
pub struct TaskSnapshot<S: State> {
    /// The node of the task.
    pub node: NodeName,
    /// The update of the task, if it is finished.
    pub result: Option<S::Update>,
    /// The error of the task, if it failed.
    pub error: Option<String>,
    /// The pending interrupts of the task.
    pub interrupts: Vec<Interrupt>,
    /// The stored threads of the graphs that it called, if it is pending. [`Thread::subgraph`] inspects a subgraph,
    /// [`Thread::state`] of the called graph inspects one that a node called.
    pub subgraphs: Vec<ThreadId>,
}

impl<S: State> StateSnapshot<S> {
    /// Converts a checkpoint for the caller. With `live`, it folds the writes of finished tasks of an incomplete
    /// superstep.
    pub(crate) async fn new(
        restored: Restored<S>,
        live: bool,
        checkpointer: &dyn Checkpointer,
        thread: &ThreadId,
        topology: &Topology,
    ) -> Result<Self, RunError> {
        let Restored { meta, state: mut values, tasks: mut records, unknown, .. } = restored;
        if live {
            set_back_refused(topology, &meta.control, &values, &mut records);
        }
        let origins = Origins::of(&meta);
        let mut tasks: Vec<TaskSnapshot<S>> = meta
            .control
            .next
            .iter()
            .map(|node| TaskSnapshot {
                node: topology.present_name(node).clone(),
                result: None,
                error: None,
                interrupts: Vec::new(),
                subgraphs: Vec::new(),
            })
            .collect();
        let mut next: Vec<_> =
            meta.control.next.iter().map(|node| topology.present_name(node).clone()).collect();
        if live && meta.control.next.first().is_some_and(|node| node.as_str() != superstep_engine::START) {
            let done = |slot: u32| records.iter().any(|task| task.slot == slot && task.update.is_some());
            next = (0u32..).zip(next).filter(|(slot, _)| !done(*slot)).map(|(_, node)| node).collect();
        }
        let folds_early = next.len() < meta.control.next.len();
        if folds_early {
            values.clear_ephemeral();
        }
        for record in records {
            let Some(task) = tasks.get_mut(record.slot as usize) else {
                continue;
            };
            if let (true, Some(update)) = (folds_early, &record.update) {
                let (node, step) = (task.node.clone(), meta.control.step + 1);
                fold(&mut values, update.clone()).map_err(|source| RunError::Fold { node, step, source })?;
            }
            task.result = record.update;
            let planned = &meta.control.next[record.slot as usize];
            let (asks, questions) = record.record.questions(planned, topology);
            let began = origins.occasion(record.slot, thread);
            let ask = |question: &Question| into_interrupt(question.clone(), began, asks, topology);
            task.interrupts = questions.iter().map(ask).collect();
            let (failure, end) = record.record.into_parts();
            task.error = match end {
                TaskRecord::Failed { error, .. } => Some(error),
                TaskRecord::Interrupted { error, .. } => {
                    error.or_else(|| failure.map(|failure| failure.chain()))
                }
                TaskRecord::Cancelled { .. } if failure.is_none() => Some("cancelled".to_owned()),
                TaskRecord::Finished { .. } => None,
                // The node's failure remains until its error handler has run.
                TaskRecord::Started { .. } | TaskRecord::Cancelled { .. } | TaskRecord::Handled { .. } => {
                    failure.map(|failure| failure.chain())
                }
            };
        }
        let (graph, checkpoint) = (meta.graph(), Some(meta.shown()));
        let snapshot = Self { values, next, tasks, checkpoint, graph, unknown: unknown.channels() };
        snapshot.with_subgraphs(checkpointer, thread, &origins, topology).await
    }

    /// Adds the threads of the graphs that its unfinished tasks called.
    async fn with_subgraphs(
        mut self,
        checkpointer: &dyn Checkpointer,
        thread: &ThreadId,
        origins: &Origins,
        topology: &Topology,
    ) -> Result<Self, RunError> {
        if self.next.is_empty() {
            return Ok(self);
        }
        for child in checkpointer.children(thread).await? {
            let Some((_, segment)) = child.parent().filter(|(parent, _)| parent == thread) else { continue };
            for (slot, task) in (0u32..).zip(&mut self.tasks) {
                let calls = segment.task.is_none_or(|called| called == origins.caller(slot));
                if calls && topology.is_same(&segment.node, &task.node) && task.result.is_none() {
                    task.subgraphs.push(child.clone());
                }
            }
        }
        Ok(self)
    }
}

impl<S: State> Thread<S> {
    /// Returns the state at the head, or at the checkpoint named by [`at`](Self::at). A thread that never ran has the
    /// initial state and no pending tasks, and does not [exist](StateSnapshot::exists).
    ///
    /// # Errors
    /// [`RunError::UnknownCheckpoint`], [`RunError::OtherGraph`], or the error of the checkpointer or the state;
    /// [`RunError::NoSubgraph`] for the thread of a subgraph that can be read from its caller only.
    pub async fn state(&self) -> Result<StateSnapshot<S>, RunError> {
        let (checkpointer, thread) = self.stored()?;
        let (graph, at) = (&self.graph.inner, self.options.checkpoint);
        self.graph.refuse_seeded(thread).await?;
        match load_known(graph, checkpointer, thread, at, ChannelSet::EMPTY).await? {
            Some(restored) => {
                let checkpointer = &**checkpointer;
                StateSnapshot::new(restored, at.is_none(), checkpointer, thread, &graph.topology).await
            }
            None => Ok(StateSnapshot {
                values: (*graph.initial).clone(),
                next: Vec::new(),
                tasks: Vec::new(),
                checkpoint: None,
                graph: None,
                unknown: Vec::new(),
            }),
        }
    }
}
