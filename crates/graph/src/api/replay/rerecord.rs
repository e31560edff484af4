//! Recording a thread again with a changed graph.
//!
//! Start at [`Replay::rerecord`].

use std::sync::Arc;

use superstep_checkpoint::{CheckpointMeta, IntoShared, Source, TaskRecord, internal::input_metadata};

use super::{Replay, ReplayError};
use crate::{
    Checkpointer, OnUnfinished, RunError, RunOptions, State,
    compiled::graph::Backends,
    journal::{
        recorder::Recorded,
        replay_script::is_input,
        supply::{RecordedSupply, SuppliedTask},
    },
    run::root_run::rerecord,
};

/// The number of supersteps that a run may have beyond those of the recorded thread.
const MORE: u32 = 1_000;

impl<S: State> Replay<S> {
    /// Runs the inputs of the thread once more with this graph, on another store and under the same name: the thread as the graph
    /// would have made it, to replace a stored case after a deliberate change.
    ///
    /// No effect is repeated. Each task gets the recorded results, answers and times of its node, in the order in which the node ran,
    /// even if its state, its prompt or its question is another one. The ids and times of checkpoints are those of the recorded ones
    /// as long as the supersteps are. [`from`](Self::from) and [`to`](Self::to) may limit it to some of the inputs, to continue a
    /// thread of `target` with a graph of another configuration. Live nodes have no effect here.
    ///
    /// # Errors
    /// [`ReplayError::NotRerecorded`] if a task needs a result or an answer that was not recorded, calls another graph, or reads the
    /// inbox, and if the thread is pruned or was changed from outside, or an input discarded tasks that did not wait. A part of the
    /// thread may be in `target` then.
    // Not live: that needs the models, keys and files of its time, repeats effects, and changes more of the case than
    // the change under review. Called graphs are refused, because their tasks would have to be matched across threads
    // that are named after checkpoints.
    pub async fn rerecord(self, target: impl IntoShared<dyn Checkpointer>) -> Result<(), ReplayError> {
        let (stored, target) = (self.graph.checkpointer()?.clone(), target.into_shared());
        let branch = self.named_branch(&*stored).await?;
        let start = self.start(&branch)?;
        if branch[0].parent_pruned {
            return Err(self.refuse("its oldest checkpoints, which were pruned"));
        }
        if branch[start..].iter().any(|meta| meta.source == Source::Update) {
            return Err(self.refuse("an external update, which is not an input of the graph"));
        }
        let supply = self.supply(&*stored, &branch[start..]).await?;
        let mut newest_first = branch.clone();
        newest_first.reverse();
        for (position, meta) in
            (start..).zip(&branch[start..]).filter(|(_, meta)| meta.source == Source::Input)
        {
            let folded = branch.get(position + 1).filter(|next| next.source == Source::Loop);
            if position > start && self.is_cut_off(&*stored, &branch[position - 1]).await? {
                return Err(self.refuse("the end of a run whose tasks the next input discarded"));
            }
            supply.set_times(meta.created_ms, folded.map_or(meta.created_ms, |next| next.created_ms));
            let steps = u32::try_from(branch.len()).unwrap_or(u32::MAX).saturating_add(MORE);
            let mut metadata = input_metadata(&newest_first, meta.id);
            metadata.extend(self.metadata.clone());
            let options = RunOptions::new()
                .thread(self.thread().clone())
                .step_limit(steps)
                .on_unfinished(OnUnfinished::Discard)
                .context(self.context.clone());
            let options =
                metadata.into_iter().fold(options, |options, (name, value)| options.metadata(name, value));
            let backends =
                Backends { checkpointer: Some(target.clone()), store: self.store.clone(), retention: None };
            let input = self.input(&*stored, meta).await?;
            let (graph, thread) = (self.graph.inner().clone(), self.thread().clone());
            if let Some(missing) = rerecord(graph, backends, thread, input, options, supply.clone()).await? {
                return Err(self.refuse(missing));
            }
        }
        Ok(())
    }

    fn refuse(&self, missing: impl Into<String>) -> ReplayError {
        ReplayError::NotRerecorded { thread: self.thread().clone(), missing: missing.into() }
    }

    /// Returns whether a checkpoint before an input has unfinished tasks, none of which waits for an answer: a run that is recorded
    /// again would continue them.
    async fn is_cut_off(
        &self,
        stored: &dyn Checkpointer,
        last: &CheckpointMeta,
    ) -> Result<bool, ReplayError> {
        if last.control.is_finished() {
            return Ok(false);
        }
        let loaded = stored.load(self.thread(), Some(last.id)).await.map_err(RunError::from)?;
        let tasks = loaded.map(|loaded| loaded.tasks).unwrap_or_default();
        let waits = |record: TaskRecord| match record.into_parts().1 {
            TaskRecord::Interrupted { questions, .. } => !questions.is_empty(),
            _ => false,
        };
        Ok(!tasks.into_iter().any(|(_, record)| waits(record)))
    }

    /// Reads the recorded inputs of all tasks of a part of the branch.
    async fn supply(
        &self,
        stored: &dyn Checkpointer,
        part: &[CheckpointMeta],
    ) -> Result<Arc<RecordedSupply>, ReplayError> {
        let supply = RecordedSupply::default();
        for pair in part.windows(2) {
            let [at, next] = pair else { continue };
            if next.source != Source::Loop || next.parent != Some(at.id) {
                continue;
            }
            let loaded = stored.load(self.thread(), Some(at.id)).await.map_err(RunError::from)?;
            for (slot, record) in loaded.map(|loaded| loaded.tasks).unwrap_or_default() {
                let (failure, record) = record.into_parts();
                let (TaskRecord::Finished { update, .. }, Some(node)) =
                    (record, at.control.next.get(slot as usize).filter(|_| !is_input(at, slot)))
                else {
                    continue;
                };
                let mut recorded = Recorded::of(&update).map_err(|source| RunError::Decode {
                    thread: self.thread().clone(),
                    checkpoint: at.id,
                    what: "a task's recorded inputs".to_owned(),
                    source: source.into(),
                })?;
                if failure.is_some() {
                    recorded.failure = failure;
                }
                if recorded.cached {
                    return Err(self.refuse("a result that came from a cache"));
                }
                if !recorded.inbox.is_empty() {
                    return Err(self.refuse("messages that it received while it ran"));
                }
                supply.add(
                    node.clone(),
                    SuppliedTask { recorded: Arc::new(recorded.into()), folded_ms: next.created_ms },
                );
            }
        }
        Ok(supply.into())
    }
}
