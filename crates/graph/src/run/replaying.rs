//! The observer that replays a stored thread: tasks get their recorded inputs, and their results are compared.
//!
//! Start at [`Replaying`].

mod compare;
mod nested;

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use futures::FutureExt as _;
use serde_json::Value;
use superstep_checkpoint::{Commit, RecordedTarget, Source};
use superstep_engine::{Breakpoints, RunLimits, START, Task};
use superstep_state::{StoredUpdate, chain};

pub(crate) use self::compare::adopted;
pub(super) use self::nested::{recorded_of, seek};
use super::{
    observer::{RunObserver, RunView, TaskStart, Wait},
    recording::{add_fingerprints, record},
    superstep::{Refused, Stop, TaskResult},
    targets::recorded_targets,
};
use crate::{
    NodeError, RunError, State,
    journal::{
        divergence::{At, Divergence},
        interrupts::WaitReason,
        recorder::ReplayMode,
        replay_script::{Expected, ExpectedTask, ReplayCursor},
    },
    node::{cache::Lookup, output::Written, routing::Targets},
};

/// The observer of a replay.
pub(super) struct Replaying {
    cursor: ReplayCursor,
    progress: Mutex<Progress>,
}

/// The progress of a replay.
#[derive(Default)]
struct Progress {
    expected: Expected,
    /// The divergences of this superstep, by slot.
    deviated: BTreeMap<u32, Divergence>,
    /// `true` if a stored update was used whose task may have returned a command.
    lost: bool,
    step: i64,
    /// `true` if the run failed.
    refused: bool,
}

impl Progress {
    fn expected(&self, slot: u32) -> Option<&ExpectedTask> {
        self.expected.tasks.get(&slot)
    }
}

impl Replaying {
    pub(super) fn new(cursor: ReplayCursor) -> Self {
        Self { cursor, progress: Mutex::default() }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what the tasks did that are to run now.
    async fn expect<S: State>(&self, run: RunView<'_, S>) -> Result<(), Stop> {
        if run.is_stored {
            let expected = self.cursor.script.expect(&self.cursor.thread).await?;
            self.progress().expected = expected;
        }
        Ok(())
    }

    /// Returns what an attempt is given.
    fn mode<S: State>(&self, run: RunView<'_, S>, task: Task) -> ReplayMode {
        let live = self.cursor.script.is_live(run.graph.topology.name(task.node));
        if let Some(parent) = &run.cx.scope.parent {
            return parent.mode(task.id, live);
        }
        self.progress().expected(task.id.slot).map_or(ReplayMode::Unknown, |expected| expected.mode(live))
    }

    /// Returns the result of a task whose node did not run when it was stored either.
    fn over_before<S: State>(
        &self,
        run: RunView<'_, S>,
        task: Task,
        mode: &ReplayMode,
    ) -> Option<(Result<Written<S>, NodeError>, Lookup)> {
        if let ReplayMode::Recorded(recorded) | ReplayMode::Live(recorded) = mode
            && let Some(failure) = recorded.failure_of(&run.graph.topology, task.node)
        {
            return Some((Err(NodeError::new(failure.message.clone()).fatal()), Lookup::None));
        }
        let progress = self.progress();
        let expected = progress.expected(task.id.slot)?;
        match (mode, &expected.error) {
            (ReplayMode::Recorded(recorded), _) if recorded.cached => {
                // Without a node that the graph has lost it leads elsewhere, which is found.
                let (targets, _) = recorded_targets(&run.graph.topology, recorded.went.clone());
                let stored = self.stored(run, &progress, expected)?;
                Some((Ok(Written { recorded_targets: Some(Box::new(targets)), ..stored }), Lookup::Hit))
            }
            (ReplayMode::Unknown, Some(error)) => {
                Some((Err(NodeError::new(error.clone()).fatal()), Lookup::None))
            }
            (ReplayMode::Unknown, None) => {
                let handler = expected.handler.as_ref()?;
                let ended = if *handler == *run.graph.topology.name(task.node) {
                    Ok(self.stored(run, &progress, expected)?)
                } else {
                    Err(NodeError::new("a failure that was not recorded").fatal())
                };
                Some((ended, Lookup::None))
            }
            _ => None,
        }
    }
}

impl<S: State> RunObserver<S> for Replaying {
    fn begin<'a>(&'a self, run: RunView<'a, S>, limits: &mut RunLimits) -> Wait<'a> {
        // It stops where the script ends, and nowhere before.
        limits.breakpoints = Breakpoints::default();
        Some(self.expect(run).boxed())
    }

    fn before_task(&self, run: RunView<'_, S>, task: Task) -> TaskStart<S> {
        let mode = self.mode(run, task);
        let (over, counts) = (self.over_before(run, task, &mode), mode.counts());
        run.cx.recorder.begin(task.id, mode);
        match over {
            Some((result, lookup)) => TaskStart::Ended(result, lookup),
            None => TaskStart::Run { counts },
        }
    }

    /// Returns `false`: the cache has entries of other runs, which the stored run may not have found.
    fn reads_cache(&self) -> bool {
        false
    }

    fn after_task(&self, run: RunView<'_, S>, task: Task, result: &mut TaskResult<S>) -> Result<(), Stop> {
        let (script, mut progress) = (&self.cursor.script, self.progress());
        if progress.refused || script.is_over() {
            return Err(Stop::Halted);
        }
        progress.step = task.id.step;
        let node = run.graph.topology.name(task.node).clone();
        let expected = progress.expected(task.id.slot);
        let handler = expected.and_then(|expected| expected.handler.clone());
        let stored = expected.and_then(|expected| self.stored(run, &progress, expected));
        // A node that leaves by commands needs a target, until the difference is reported.
        let route = run.graph.nodes[task.node.position()].routes.first();
        let recorded_targets = route.map(|route| Box::new(Targets { ends: vec![*route], items: Vec::new() }));
        let parent = run.cx.scope.parent.as_ref();
        let is_unknown =
            parent.is_some_and(|parent| matches!(parent.mode(task.id, false), ReplayMode::Unknown));
        let deviation = match result {
            // All that is known is that it did not finish when it was stored: a run without a thread has no line to end.
            TaskResult::Finished(..) if is_unknown || handler.as_ref() == Some(&node) => None,
            TaskResult::Finished(written, _) => {
                let Some(stored) = &stored else { return Ok(()) };
                let state = run.state;
                let (expected, got) =
                    (compare::channels(state, &stored.update), compare::channels(state, &written.update));
                match compare::differ(state, expected, got) {
                    None => return Ok(()),
                    Some((channel, expected, got)) => {
                        Some(progress.divergence(run, node, At::Channel(channel), expected, got))
                    }
                }
            }
            TaskResult::Failed(error) => {
                let failure = run.cx.recorder.failure(task.id, &run.graph.topology, task.node);
                if failure.is_some() || handler.is_some() || stored.is_none() {
                    return Ok(());
                }
                let got = Value::from(chain(error.cause()));
                Some(progress.divergence(run, node, At::Failure, "an update".into(), got))
            }
            TaskResult::Interrupted(reasons) => {
                let Some(first) = reasons.iter().position(|reason| matches!(reason, WaitReason::Deviated(_)))
                else {
                    return Ok(());
                };
                let WaitReason::Deviated(deviation) = reasons.swap_remove(first) else {
                    unreachable!("it was found")
                };
                progress.diverged(run, node, deviation)
            }
        };
        let stored = match (deviation, stored) {
            (Some(divergence), Some(stored)) => {
                progress.deviated.insert(task.id.slot, divergence);
                stored
            }
            (Some(divergence), None) => {
                script.diverge(divergence);
                return Err(Stop::Halted);
            }
            (None, Some(stored)) => {
                script.took();
                progress.lost |= recorded_targets.is_some();
                stored
            }
            // The caller of this graph has its own update stored.
            (None, None) => return Err(Stop::Halted),
        };
        *result = TaskResult::Finished(Written { recorded_targets, ..stored }, Lookup::None);
        Ok(())
    }

    fn before_store(
        &self,
        run: RunView<'_, S>,
        task: Task,
        cached: Option<Vec<RecordedTarget>>,
        update: Option<&mut StoredUpdate>,
    ) -> Result<(), RunError> {
        if !run.cx.recorder.records {
            return Ok(());
        }
        let failed = self.progress().expected(task.id.slot).and_then(|expected| {
            let recorded = expected.recorded.as_ref()?;
            Some(u32::try_from(recorded.failed).unwrap_or(u32::MAX - 1))
        });
        record(run, task, failed.map_or(task.attempt, |failed| failed + 1), cached, update)
    }

    fn before_commit<'a>(&'a self, run: RunView<'a, S>, new: &'a mut Commit) -> Wait<'a> {
        let compare = async move {
            match new.source {
                Source::Input => self.compare_input(run, new).await?,
                Source::Loop => self.compare_superstep(run, new)?,
                Source::Update | Source::Fork => {}
            }
            if run.cx.recorder.records {
                add_fingerprints(run, new);
            }
            if !self.cursor.script.is_any_live()
                && let Some(next) = self.cursor.script.place(&self.cursor.thread).1
            {
                new.created_ms = next.created_ms;
            }
            Ok(())
        };
        Some(compare.boxed())
    }

    /// Goes on to the next checkpoint; the run ends there if the line does.
    fn after_commit<'a>(&'a self, run: RunView<'a, S>) -> Wait<'a> {
        if self.cursor.script.advance(&self.cursor.thread) && !run.is_nested {
            run.cx.drain.request("the replay ends here");
        }
        Some(self.expect(run).boxed())
    }

    fn ended(&self, run: RunView<'_, S>, refused: Option<&Refused>) {
        let ReplayCursor { script, thread } = &self.cursor;
        let mut progress = self.progress();
        let Some(refused) = refused else {
            // A run that ended before the line did would otherwise pass for a thread that was replayed.
            if !run.is_nested && script.place(thread).1.is_some() && !script.is_over() {
                let got = "a run that ends before it".into();
                let expected = "another superstep".into();
                script.diverge(progress.divergence(run, START.into(), At::Failure, expected, got));
            }
            return;
        };
        progress.refused = true;
        if script.is_over() {
            return;
        }
        let is_stored =
            |slot: &u32| progress.expected(*slot).is_some_and(|expected| expected.update.is_some());
        if run.is_nested && !progress.expected.tasks.keys().any(is_stored) {
            // It failed then, too; its caller's update shows what followed.
            return;
        }
        let blamed = refused.blamed.first().and_then(|slot| run.done.get(*slot as usize)?.as_ref());
        let node = match (&refused.error, blamed) {
            (RunError::Node { node, .. } | RunError::Fold { node, .. }, _) => node.clone(),
            (_, Some(done)) => run.graph.topology.name(done.node).clone(),
            _ => START.into(),
        };
        let (expected, got) = ("a superstep that ends".into(), chain(&refused.error).into());
        script.diverge(progress.divergence(run, node, At::Failure, expected, got));
    }
}
