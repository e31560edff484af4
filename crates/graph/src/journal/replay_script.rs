//! The stored data of a thread for a replay.
//!
//! Start at [`Script`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use superstep_checkpoint::{
    CheckpointError, CheckpointMeta, RecordedTarget, Source, TaskRecord,
    internal::{
        Superstep, WrongTask,
        own::{EDITED, STATE, TASK},
    },
};
use superstep_engine::{NodeName, START};
use superstep_state::StoredUpdate;

use super::divergence::Divergence;
use crate::{
    CheckpointId, Checkpointer, History, RunError, ThreadId,
    journal::recorder::{Recorded, ReplayInputs, ReplayMode},
};

/// The thread that a replay follows, and its script.
#[derive(Clone)]
pub(crate) struct ReplayCursor {
    pub(crate) script: Arc<Script>,
    /// The thread whose records are replayed; it differs from the run's if that is a fork.
    pub(crate) thread: ThreadId,
}

/// A replayed thread, with those of its called graphs.
pub(crate) struct Script {
    pub(crate) store: Arc<dyn Checkpointer>,
    /// The live nodes.
    live: BTreeSet<String>,
    /// The live nodes that have run.
    met: Mutex<BTreeSet<String>>,
    lines: Mutex<BTreeMap<ThreadId, Line>>,
    found: Mutex<Option<Divergence>>,
    /// The node that calls a graph which cannot run live during a replay.
    refused: Mutex<Option<NodeName>>,
    supersteps: AtomicUsize,
    taken: AtomicUsize,
}

/// The checkpoints of a thread along one branch, oldest first.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) checkpoints: Arc<[CheckpointMeta]>,
    /// The number of checkpoints that the replay has reached.
    pub(crate) done: usize,
    /// The number of checkpoints that the replay must reach.
    pub(crate) end: usize,
}

/// The stored data of the cursor's position.
#[derive(Default)]
pub(crate) struct Expected {
    /// The checkpoint, if it is stored.
    pub(crate) at: Option<CheckpointId>,
    /// The next checkpoint; `None` at the end of the line.
    pub(crate) next: Option<CheckpointMeta>,
    /// The tasks of the superstep, by slot.
    pub(crate) tasks: BTreeMap<u32, ExpectedTask>,
}

impl Expected {
    /// Checks that the update of each task of a superstep is stored.
    fn check_tasks(&self, thread: &ThreadId, at: &CheckpointMeta) -> Result<(), CheckpointError> {
        let Some(next) = self.next.as_ref().filter(|next| !next.parent_pruned) else { return Ok(()) };
        let stored = self.tasks.iter().filter(|(_, task)| task.update.is_some()).map(|(slot, _)| *slot);
        let stored = stored.filter(|slot| (*slot as usize) < at.control.next.len());
        match Superstep::of(&at.control).wrong_task((next.source, next.control.step), stored) {
            None => Ok(()),
            Some(WrongTask::Missing(slot) | WrongTask::Superfluous(slot)) => {
                let (id, from) = (next.id, at.id);
                let node = at.control.next.get(slot as usize).map_or("?", NodeName::as_str);
                let what = format!(
                    "checkpoint {id} of thread `{thread}` has no update of node `{node}`, task {slot} of checkpoint {from}, so its \
                     state is not the one that was stored; import the thread again from a complete file, or delete it"
                );
                Err(CheckpointError::Corrupt { what, source: None })
            }
        }
    }
}

/// The stored data of a task.
#[derive(Default)]
pub(crate) struct ExpectedTask {
    /// The stored form of its update, if it finished.
    pub(crate) update: Option<StoredUpdate>,
    /// The recorded inputs; `None` if they were not recorded.
    pub(crate) recorded: Option<Arc<ReplayInputs>>,
    /// The targets of the task, if stored.
    pub(crate) targets: Option<Vec<RecordedTarget>>,
    /// The error of the task, if it failed permanently.
    pub(crate) error: Option<String>,
    /// The error handler that wrote the update, if the failure that it received is not recorded.
    pub(crate) handler: Option<NodeName>,
}

impl ExpectedTask {
    /// Returns the inputs for its replay.
    pub(crate) fn mode(&self, live: bool) -> ReplayMode {
        match &self.recorded {
            Some(recorded) if live => ReplayMode::Live(recorded.clone()),
            Some(recorded) => ReplayMode::Recorded(recorded.clone()),
            None => ReplayMode::Unknown,
        }
    }
}

/// The replayability of a call.
pub(crate) enum CallReplay {
    Yes,
    /// The call is not stored.
    Never,
    /// The next checkpoint is not a superstep.
    Otherwise,
}

impl Script {
    pub(crate) fn new(store: Arc<dyn Checkpointer>, live: BTreeSet<String>) -> Self {
        Self {
            store,
            live,
            met: Mutex::default(),
            lines: Mutex::default(),
            found: Mutex::default(),
            refused: Mutex::default(),
            supersteps: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
        }
    }

    fn lines(&self) -> MutexGuard<'_, BTreeMap<ThreadId, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, thread: &ThreadId, line: Line) {
        self.lines().insert(thread.clone(), line);
    }

    pub(crate) fn is_live(&self, node: &NodeName) -> bool {
        let is_live = self.live.contains(node.as_str());
        if is_live {
            self.met.lock().unwrap_or_else(PoisonError::into_inner).insert(node.to_string());
        }
        is_live
    }

    /// Returns a live node that did not run, and that the graph does not have either.
    pub(crate) fn unmet(&self, has: impl Fn(&str) -> bool) -> Option<String> {
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        self.live.iter().find(|name| !met.contains(*name) && !has(name)).cloned()
    }

    pub(crate) fn is_any_live(&self) -> bool {
        !self.live.is_empty()
    }

    /// Records a divergence. Only the first one counts.
    pub(crate) fn diverge(&self, divergence: Divergence) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.get_or_insert_with(|| divergence.narrowed());
    }

    pub(crate) fn found(&self) -> Option<Divergence> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the replay, because a node calls a graph that cannot run live during a replay.
    pub(crate) fn refuse(&self, node: &NodeName) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(node.clone());
    }

    pub(crate) fn refused(&self) -> Option<NodeName> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether the replay has ended early: it diverged, or a node was rejected.
    pub(crate) fn is_over(&self) -> bool {
        self.refused().is_some() || self.found.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Returns the number of supersteps of a line that the replay has not reached.
    pub(crate) fn left(&self, thread: &ThreadId) -> usize {
        let is_superstep = |meta: &&CheckpointMeta| meta.source == Source::Loop;
        let left = |line: &Line| line.checkpoints.iter().skip(line.done).filter(is_superstep).count();
        self.lines().get(thread).map_or(0, left)
    }

    /// Returns the number of checkpoints of a line that the replay has reached.
    pub(crate) fn done(&self, thread: &ThreadId) -> usize {
        self.lines().get(thread).map_or(0, |line| line.done)
    }

    /// Counts a task whose stored update was used.
    pub(crate) fn took(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn supersteps(&self) -> usize {
        self.supersteps.load(Ordering::Relaxed)
    }

    /// Returns the position of a line, and its next checkpoint.
    pub(crate) fn place(&self, thread: &ThreadId) -> (Option<CheckpointMeta>, Option<CheckpointMeta>) {
        let lines = self.lines();
        let Some(line) = lines.get(thread) else { return (None, None) };
        let at = line.done.checked_sub(1).and_then(|last| line.checkpoints.get(last));
        let next = line.checkpoints.get(line.done).filter(|_| line.done < line.end);
        (at.cloned(), next.cloned())
    }

    /// Advances a line to the next checkpoint. Returns whether the line ends there.
    pub(crate) fn advance(&self, thread: &ThreadId) -> bool {
        let mut lines = self.lines();
        let Some(line) = lines.get_mut(thread) else { return false };
        line.done += 1;
        if line.checkpoints.get(line.done - 1).is_some_and(|meta| meta.source == Source::Loop) {
            self.supersteps.fetch_add(1, Ordering::Relaxed);
        }
        line.done >= line.end
    }

    /// Returns the stored data of the tasks at a line's position.
    pub(crate) async fn expect(&self, thread: &ThreadId) -> Result<Expected, RunError> {
        let (at, next) = self.place(thread);
        let mut expected = Expected { at: at.as_ref().map(|at| at.id), next, tasks: BTreeMap::new() };
        let Some(at) = at else { return Ok(expected) };
        let loaded = self.store.load(thread, Some(at.id)).await?;
        if let Some(next) = expected.next.take() {
            expected.next = Some(self.fingerprinted(thread, next).await?);
        }
        let is_recorded = expected.next.as_ref().is_some_and(|next| next.metadata.contains_key(STATE));
        for (slot, record) in loaded.map(|loaded| loaded.tasks).unwrap_or_default() {
            let task = known(record, is_recorded).map_err(|source| RunError::Decode {
                thread: thread.clone(),
                checkpoint: at.id,
                what: "a task's recorded inputs".to_owned(),
                source: source.into(),
            })?;
            expected.tasks.insert(slot, task);
        }
        expected.check_tasks(thread, &at)?;
        if let Some(next) = expected.next.as_ref().filter(|next| next.source == Source::Loop && !is_recorded)
        {
            let applied = self.store.load(thread, Some(next.id)).await?.map(|next| next.applied);
            for (slot, node) in applied.unwrap_or_default() {
                let is_handler = at.control.next.get(slot as usize).is_some_and(|planned| *planned != node);
                if let Some(task) = expected.tasks.get_mut(&slot).filter(|_| is_handler) {
                    task.handler = Some(node);
                }
            }
        }
        Ok(expected)
    }

    /// Adds the fingerprints of a backend that computes them only for replays.
    pub(crate) async fn fingerprinted(
        &self,
        thread: &ThreadId,
        meta: CheckpointMeta,
    ) -> Result<CheckpointMeta, RunError> {
        if !self.store.keeps_values() || meta.source != Source::Loop || meta.metadata.contains_key(STATE) {
            return Ok(meta);
        }
        let Some(loaded) = self.store.load(thread, Some(meta.id)).await? else { return Ok(meta) };
        loaded.into_fingerprinted(thread).map_err(|source| RunError::Decode {
            thread: thread.clone(),
            checkpoint: meta.id,
            what: "its state".to_owned(),
            source,
        })
    }

    /// Returns the update that was the next input of a thread.
    pub(crate) async fn input(&self, thread: &ThreadId) -> Result<Option<StoredUpdate>, CheckpointError> {
        let (_, next) = self.place(thread);
        let Some(next) = next.filter(|next| next.source == Source::Input) else { return Ok(None) };
        let loaded = self.store.load(thread, Some(next.id)).await?;
        let tasks = loaded.map(|loaded| loaded.tasks).unwrap_or_default();
        Ok(tasks.into_iter().find_map(|(_, record)| match record {
            TaskRecord::Finished { update, .. } => Some(update),
            _ => None,
        }))
    }

    /// Moves a line to the call of a task, which its input identifies.
    pub(crate) async fn seek(
        &self,
        thread: &ThreadId,
        task: &serde_json::Value,
    ) -> Result<CallReplay, CheckpointError> {
        let mut all = self.store.history(thread, History::default()).await?;
        all.reverse();
        let is_of_task =
            |meta: &CheckpointMeta| meta.source == Source::Input && meta.metadata.get(TASK) == Some(task);
        let Some(first) = all.iter().position(is_of_task) else { return Ok(CallReplay::Never) };
        let others = all[first + 1..].iter().position(|meta| meta.source == Source::Input);
        let after = others.map_or(all.len(), |others| first + 1 + others);
        // Updates that were made after the call name the caller's checkpoint, and do not belong to the call.
        let over = all[first..after]
            .windows(2)
            .position(|pair| pair[0].control.is_finished() && pair[1].metadata.contains_key(EDITED));
        let after = over.map_or(after, |over| first + over + 1);
        let before = all[first].parent.and_then(|parent| all.iter().position(|meta| meta.id == parent));
        let done = usize::from(before.is_some());
        let before = before.map(|before| all[before].clone());
        let checkpoints: Arc<[_]> = before.into_iter().chain(all[first..after].iter().cloned()).collect();
        let line = Line { done, end: checkpoints.len(), checkpoints };
        let steps = line.checkpoints[line.done..].windows(2);
        let is_plain = |pair: &[CheckpointMeta]| {
            pair[1].source == Source::Loop
                && pair[1].parent == Some(pair[0].id)
                && pair[1].control.step == pair[0].control.step.saturating_add(1)
        };
        let called = if steps.into_iter().all(is_plain) { CallReplay::Yes } else { CallReplay::Otherwise };
        self.put(thread, line);
        Ok(called)
    }
}

/// Reads the stored data of a task from its record.
fn known(record: TaskRecord, is_recorded: bool) -> Result<ExpectedTask, serde_json::Error> {
    let (failure, record) = record.into_parts();
    Ok(match record {
        TaskRecord::Finished { update, targets, .. } => {
            let mut recorded = is_recorded.then(|| Recorded::of(&update)).transpose()?;
            if let (Some(recorded), Some(failure)) = (&mut recorded, failure) {
                recorded.failure = Some(failure);
            }
            let inputs = |recorded| Arc::new(ReplayInputs { recorded, update: Some(update.clone()) });
            let recorded = recorded.map(inputs);
            // The targets of a task that was stored with its superstep are unknown.
            let targets = (!targets.is_empty()).then_some(targets);
            ExpectedTask { update: Some(update), recorded, targets, ..ExpectedTask::default() }
        }
        // Other failures were followed by another attempt.
        TaskRecord::Failed { attempts: 0, error, .. } => {
            ExpectedTask { error: Some(error), ..ExpectedTask::default() }
        }
        _ => ExpectedTask::default(),
    })
}

/// Returns whether a task of a checkpoint is the input, which is not repeated.
pub(crate) fn is_input(meta: &CheckpointMeta, slot: u32) -> bool {
    meta.control.next.get(slot as usize).is_some_and(|node| node.as_str() == START)
}
