//! Finished tasks: folding their writes and finding their targets.

use serde::ser::Error as _;
use superstep_engine::{Commit as Plan, Finished, Input, NodeIndex, NodeName, Report, Run, Task, TaskId};
use superstep_state::{
    ChannelValue, Snapshot, StoredUpdate, WriteError,
    internal::{Unencoded, UnencodedChannel, encode, fold},
    reduce,
};

use super::{
    driver::Driver,
    nested_call::{begin_fold, note},
    stop::{Refused, Stop},
    task_result::FinishedTask,
};
use crate::{
    RunError, State,
    node::{cache::Lookup, output::Written, routing::Targets},
    run::{
        targets::{items, named, targets},
        thread_writer::SnapshotSource,
    },
};

impl<S: State> Driver<S> {
    /// Stores the writes of a task.
    pub(super) fn finish_task(
        &mut self,
        run: &mut Run,
        task: Task,
        written: Written<S>,
        lookup: Lookup,
    ) -> Result<(), Stop> {
        let (step, slot) = (task.id.step, task.id.slot);
        let blame = |error| Stop::from(Refused { error, blamed: vec![slot] });
        let cached = matches!(lookup, Lookup::Hit);
        let cache_insert = match lookup {
            Lookup::Miss(missing) => Some(Box::new((slot, task.node, *missing, written.clone()))),
            Lookup::None | Lookup::Hit => None,
        };
        let Written { update, goto, went } = written;
        let mut stored = self.encode(&update, task.node, step).map_err(blame)?;
        let gotos = match went {
            Some(went) => Ok(*went),
            None if goto.is_empty() => Ok(Targets::default()),
            None => self.graph.gotos(task.node, goto),
        };
        let went = gotos.as_ref().ok().filter(|_| cached);
        let went =
            went.map(|gotos| named(&self.graph.topology, &gotos.ends, &mut gotos.items.iter().cloned()));
        self.observer.before_store(self.view(Some(run)), task, went, stored.as_mut()).map_err(blame)?;
        self.emit_update(task, &update, cached);
        let gotos = gotos.map_err(|error| blame(RunError::Route { step, error }))?;
        let report =
            self.finish(task.id, task.node, update, stored, gotos, run.width() == 1).map_err(blame)?;
        let finished = run.handle(Input::Finished(Finished { task: task.id, report }));
        finished.map_err(|error| blame(RunError::Route { step, error }))?;
        if let Some(cache_insert) = cache_insert {
            self.cache_inserts.push(*cache_insert);
        }
        Ok(())
    }

    /// Retains a finished task until the end of its superstep and calls its routers, which add to the targets
    /// of its command.
    ///
    /// A task that is `alone` in its superstep is folded immediately, since no other update can come before
    /// it.
    pub(super) fn finish(
        &mut self,
        task: TaskId,
        node: NodeIndex,
        update: S::Update,
        stored: Option<StoredUpdate>,
        goes: Targets,
        alone: bool,
    ) -> Result<Report, RunError> {
        let (written, exclusive) = (self.state.written(&update), self.state.exclusive(&update));
        self.written = self.written.union(written);
        let name = self.graph.topology.name(node);
        let compiled = &self.graph.nodes[node.position()];
        if let Some(other) = compiled.undeclared(written) {
            let channel = self.state.channels()[other].name.clone();
            return Err(RunError::Undeclared { node: name.clone(), step: task.step, channel });
        }
        let refuse = |source| RunError::Fold { node: name.clone(), step: task.step, source };
        let (update, targets) = if alone {
            self.is_head = false;
            begin_fold(&mut self.state, self.inside.as_mut()).map_err(refuse)?;
            note(self.inside.as_mut(), &update);
            fold(&mut self.state, update).map_err(refuse)?;
            (None, targets(compiled, &self.state, task.step, name)?)
        } else if !compiled.decides() {
            (Some(update), Targets::default())
        } else {
            let left_behind = reduce(&self.state, [update.clone()]).map_err(refuse)?;
            (Some(update), targets(compiled, &left_behind, task.step, name)?)
        };
        let Targets { ends, items } = goes.followed_by(targets);
        if update.is_some() || !items.is_empty() || self.writer.is_some() {
            self.put(task.slot, FinishedTask { node, update, stored, items, recorded: false });
        }
        Ok(Report { written, exclusive, targets: ends })
    }

    /// Folds the writes of a superstep's tasks in the order of the plan, and retains the items of the next
    /// one.
    pub(super) fn fold(&mut self, plan: Plan) -> Result<(), Stop> {
        if self.done.iter().flatten().any(|done| done.update.is_some()) {
            let last = self.done.iter().flatten().next_back().expect("there is one");
            let node = self.graph.topology.name(last.node).clone();
            let refuse = |source| RunError::Fold { node, step: plan.step, source };
            self.is_head = false;
            begin_fold(&mut self.state, self.inside.as_mut()).map_err(refuse)?;
        }
        for (task, done) in plan.order().zip(&mut self.done) {
            let Some(FinishedTask { node, update, .. }) = done else { continue };
            let Some(update) = update.take() else { continue };
            note(self.inside.as_mut(), &update);
            fold(&mut self.state, update).map_err(|source| {
                let node = self.graph.topology.name(*node).clone();
                Refused { error: RunError::Fold { node, step: plan.step, source }, blamed: vec![task.slot] }
            })?;
        }
        // These are usually empty, and taking or clearing an empty one has a cost.
        if !self.cache_inserts.is_empty() {
            // Only accepted results, because others would be rejected again and again.
            for (_, node, missing, written) in std::mem::take(&mut self.cache_inserts) {
                self.keep_cached(node, missing, written);
            }
        }
        if !self.items.is_empty() {
            self.items.clear();
        }
        if !self.started.is_empty() {
            self.started.clear();
        }
        debug_assert!(self.waiting.is_empty(), "a superstep with a task that asks is not over");
        if !self.failures.is_empty() {
            self.failures.clear();
        }
        if !self.fetched.is_empty() {
            self.fetched.clear();
        }
        if !self.open_questions.is_empty() {
            self.open_questions.clear();
        }
        if !self.origins.is_empty() {
            self.origins.clear();
        }
        if !self.planned.is_empty() {
            self.planned.clear();
        }
        if self.done.iter().flatten().any(|done| !done.items.is_empty()) {
            let sent = self.done.iter_mut().flatten().flat_map(|done| done.items.drain(..)).collect();
            self.items = items(plan.next as usize, sent);
        }
        if let Some(events) = &self.events {
            events.values(plan.step, &self.state);
        }
        Ok(())
    }

    pub(super) fn put(&mut self, slot: u32, done: FinishedTask<S>) {
        let slot = slot as usize;
        if self.done.len() < slot {
            self.done.resize_with(slot, || None);
        }
        match self.done.get_mut(slot) {
            Some(place) => *place = Some(done),
            None => self.done.push(Some(done)),
        }
    }

    pub(super) fn encode(
        &mut self,
        update: &S::Update,
        node: NodeIndex,
        step: i64,
    ) -> Result<Option<StoredUpdate>, RunError> {
        let name = self.graph.topology.name(node);
        let Some(writer) = &self.writer else {
            return check(&self.state, update, step, name).map(|()| None);
        };
        let stored = match writer.keeps_values() {
            true => encode::keep(&self.state, &self.graph.initial, update, &mut self.scratch),
            false => encode::encode(&self.state, update, &mut self.scratch),
        };
        stored.map(Some).map_err(|refused| unencoded(refused, step, name))
    }
}

/// Returns the stored form of an update.
///
/// # Errors
/// [`RunError::UndeclaredChannel`], [`RunError::UnfitWrite`] and [`RunError::Encode`], in the name of `node`.
pub(crate) fn encode<S: State>(
    state: &S,
    update: &S::Update,
    step: i64,
    node: &NodeName,
    scratch: &mut Vec<u8>,
) -> Result<StoredUpdate, RunError> {
    encode::encode(state, update, scratch).map_err(|refused| unencoded(refused, step, node))
}

fn unencoded(refused: Unencoded, step: i64, node: &NodeName) -> RunError {
    match refused {
        Unencoded::Write(error) => refused_write(error, step, node),
        Unencoded::Json { channel, source } => RunError::Encode { node: node.clone(), channel, step, source },
    }
}

/// Rejects an update that does not fit the state.
fn check<S: State>(state: &S, update: &S::Update, step: i64, node: &NodeName) -> Result<(), RunError> {
    state.check(update).map_err(|error| refused_write(error, step, node))
}

fn refused_write(error: WriteError, step: i64, node: &NodeName) -> RunError {
    let node = node.clone();
    match error {
        WriteError::Undeclared { channel, declared } => {
            RunError::UndeclaredChannel { node, step, channel, declared }
        }
        WriteError::Unfit { channel, place, reason } => {
            RunError::UnfitWrite { node, step, channel, place, reason }
        }
        // This version of the program handles all variants.
        other => {
            let source = serde_json::Error::custom(other);
            RunError::Encode { node, channel: None, step, source }
        }
    }
}

/// A state of which a snapshot may be stored.
pub(super) struct DueSnapshot<'a, S> {
    pub(super) state: &'a S,
    pub(super) step: i64,
}

impl<S: State> SnapshotSource for DueSnapshot<'_, S> {
    fn bytes(&self) -> Option<usize> {
        encode::snapshot_bytes(self.state)
    }

    fn typed(&self) -> Result<Snapshot, RunError> {
        encode::keep_snapshot(self.state).map_err(|refused| unencoded_channel(refused, self.step))
    }

    fn encoded(&self) -> Result<Vec<ChannelValue>, RunError> {
        snapshot(self.state, self.step)
    }
}

/// Returns the full value of every channel, and their versions.
pub(crate) fn snapshot<S: State>(state: &S, step: i64) -> Result<Vec<ChannelValue>, RunError> {
    encode::snapshot(state).map_err(|refused| unencoded_channel(refused, step))
}

fn unencoded_channel(refused: UnencodedChannel, step: i64) -> RunError {
    RunError::EncodeChannel { channel: refused.channel, step, source: refused.source }
}
