//! An external update of a state, as a separate superstep.
//!
//! Start at [`Change`].

use std::collections::BTreeMap;

use superstep_checkpoint::{AppliedTask, CheckpointMeta, Commit, RecordedTarget, Source, TaskRecord};
use superstep_engine::{
    Before, ChannelSet, Control, END, EngineError, NodeIndex, NodeName, START, Target, Topology,
};
use superstep_state::{RawJson, StoredUpdate, internal::fold};

use crate::{
    CheckpointId, Question, RunError, RunOptions, State, ThreadId,
    compiled::graph::Inner,
    journal::{
        interrupts::into_interrupt,
        task_origin::{CarriedOrigins, Origins, with_origins},
    },
    node::routing::Targets,
    run::{encode::encode, fail::lost_handler, restore::RestoredTask, targets},
};

/// The author of an external update. Converts from a node's name, or from `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AsNode {
    /// The node that ran last: the author of the checkpoint's state, or, at the head, a node that has
    /// finished since. On a thread without checkpoints it is an input. All unfinished tasks remain pending,
    /// including those of this node, and so do their questions. If there were any before the superstep of the
    /// update, the node sends no items again, follows no edge again, and reaches no join again; its conditional
    /// edges may lead to more nodes. Routes that a node returned are not taken again. After an update by
    /// [`End`](Self::End) no task is added.
    #[default]
    LastRun,
    /// The node with this name. The update replaces the task of that node: an unfinished or deferred one, or
    /// else one that has finished in the incomplete superstep, with its writes and its successors. The tasks of
    /// other nodes remain.
    Named(String),
    /// An input: the successors of the start run next. Also by the name `__start__`.
    Input,
    /// The end: no pending tasks. Also by the name `__end__`.
    End,
}

impl From<&str> for AsNode {
    fn from(node: &str) -> Self {
        Self::Named(node.to_owned())
    }
}

impl From<&String> for AsNode {
    fn from(node: &String) -> Self {
        Self::Named(node.clone())
    }
}

impl From<String> for AsNode {
    fn from(node: String) -> Self {
        Self::Named(node)
    }
}

impl From<&NodeName> for AsNode {
    fn from(node: &NodeName) -> Self {
        Self::Named(node.to_string())
    }
}

impl From<Option<&str>> for AsNode {
    fn from(node: Option<&str>) -> Self {
        node.map_or(Self::LastRun, Self::from)
    }
}

/// The author of an update: a node, the end, or none, which has no successors.
#[derive(Clone, Copy)]
pub(crate) enum As {
    /// The node; the update replaces its tasks.
    Node(NodeIndex),
    /// The update adds to the node's writes. Its unfinished tasks remain pending.
    LastRun(NodeIndex),
    End,
    /// The update adds to one by the end. Unfinished tasks, which came later, remain pending.
    LastEnd,
    Nobody,
}

impl As {
    pub(crate) fn name<S: State>(self, graph: &Inner<S>) -> NodeName {
        match self {
            Self::Node(node) | Self::LastRun(node) => graph.topology.name(node).clone(),
            Self::End | Self::LastEnd => END.into(),
            Self::Nobody => START.into(),
        }
    }
}

/// An external superstep: the writes of finished tasks, then the updates.
pub(crate) struct Change<S: State> {
    pub(crate) state: S,
    step: i64,
    /// The control record of the parent.
    before: Option<Control>,
    /// The origins of its tasks; `None` if they start anew.
    origins: Option<Origins>,
    /// The tasks that need not run any more, by slot.
    done: Vec<u32>,
    /// Tasks that have finished since the parent, in slot order, until they are folded or replaced.
    ended: Vec<EndedTask<S>>,
    /// Unfinished tasks with records.
    pending: Vec<RestoredTask<S>>,
    applied: Vec<AppliedTask>,
    finished: Vec<(NodeIndex, Vec<Target>)>,
    items: Vec<RawJson>,
    /// The additional target nodes of an update without an author.
    led: Vec<(NodeIndex, NodeIndex)>,
    /// `true` if tasks of the parent were pending, or are done since: the successors of the node that ran last
    /// were planned.
    is_going: bool,
    /// `true` if no tasks are pending after it.
    ends: bool,
    /// `true` once an update was folded, which ends the ephemeral values of the superstep before.
    has_folded: bool,
}

/// A task that has finished since the parent.
struct EndedTask<S: State> {
    slot: u32,
    /// The node that ran: the task's node, or its error handler.
    node: NodeIndex,
    update: S::Update,
    json: StoredUpdate,
    targets: Vec<RecordedTarget>,
}

impl<S: State> Change<S> {
    fn new(state: S, before: Option<Control>) -> Self {
        let step = before.as_ref().map_or(0, |before| before.step + 1);
        let is_going = before.as_ref().is_some_and(|before| !before.is_finished());
        Self {
            state,
            step,
            before,
            origins: None,
            done: Vec::new(),
            ended: Vec::new(),
            pending: Vec::new(),
            applied: Vec::new(),
            finished: Vec::new(),
            items: Vec::new(),
            led: Vec::new(),
            is_going,
            ends: false,
            has_folded: false,
        }
    }

    /// Creates the change. With `live`, it includes the finished tasks of the head, and the records of the
    /// others, so that they are not lost; a fork from an older checkpoint leaves them to the other branch.
    ///
    /// Use [`take_over`](Self::take_over) to replace tasks, and then [`fold_ended`](Self::fold_ended).
    pub(crate) fn after(
        graph: &Inner<S>,
        before: Option<(CheckpointMeta, S, Vec<RestoredTask<S>>)>,
        live: bool,
    ) -> Result<Self, RunError> {
        let Some((meta, state, tasks)) = before else {
            return Ok(Self::new((*graph.initial).clone(), None));
        };
        let names = meta.control.next.clone();
        let origins = live.then(|| Origins::of(&meta));
        let mut change = Self { origins, ..Self::new(state, Some(meta.control)) };
        let lost = (0..).zip(&names).filter(|(_, name)| graph.topology.find(name.as_str()).is_none());
        change.done.extend(lost.map(|(slot, _)| slot));
        change.is_going = change.done.len() < names.len();
        for RestoredTask { slot, record, update } in tasks {
            let (json, targets, failure, update) = match (record, update) {
                (TaskRecord::Finished { update: json, targets, failure }, Some(update)) => {
                    (json, targets, failure, update)
                }
                (record, update) => {
                    change.pending.extend(live.then_some(RestoredTask { slot, record, update }));
                    continue;
                }
            };
            let Some(name) = names.get(slot as usize) else { continue };
            let node = match &failure {
                None => graph.topology.find(name.as_str()),
                Some(failure) => {
                    let lost = || lost_handler(failure, &graph.name, change.step - 1, slot);
                    Some(failure.handler(&graph.topology).ok_or_else(lost)?)
                }
            };
            let Some(node) = node else { continue };
            // An input cannot run again.
            if !live && node != graph.topology.start() {
                continue;
            }
            change.ended.push(EndedTask { slot, node, update, json, targets });
        }
        Ok(change)
    }

    /// Marks the tasks that the updates replace as done: those of the named nodes, unfinished ones first.
    pub(crate) fn take_over(
        &mut self,
        graph: &Inner<S>,
        thread: &ThreadId,
        updates: &[(S::Update, As)],
    ) -> Result<(), RunError> {
        let mut named: BTreeMap<NodeIndex, usize> = BTreeMap::new();
        for (_, node) in updates {
            if let As::Node(node) = node {
                *named.entry(*node).or_default() += 1;
            }
        }
        let ends = updates.iter().any(|(_, node)| matches!(node, As::End));
        let mut taken = Vec::new();
        for (node, updates) in named {
            let (mut tasks, finished) = (self.unfinished(graph, node), self.finished(graph, node));
            let replaces_finished = updates > tasks.len() && !finished.is_empty();
            if replaces_finished {
                tasks.extend(finished);
            }
            if tasks.len() > updates && !ends {
                let tasks = tasks.iter().map(|slot| self.shown(graph, thread, *slot)).collect();
                let (thread, node) = (thread.clone(), graph.topology.name(node).clone());
                return Err(RunError::UnclearUpdate {
                    thread,
                    node,
                    updates,
                    tasks,
                    finished: replaces_finished,
                });
            }
            taken.extend(tasks);
            if let Some(before) = &mut self.before {
                let is_other = |name: &NodeName| graph.topology.find(name.as_str()) != Some(node);
                before.deferred.retain(is_other);
                before.held.retain(|name, _| is_other(name));
            }
        }
        self.ended.retain(|task| !taken.contains(&task.slot));
        self.done.extend(taken);
        Ok(())
    }

    /// Returns the slots of the tasks that have finished since the parent, and that are not folded yet, each with the author
    /// of its update.
    pub(crate) fn ended(&self, graph: &Inner<S>) -> Vec<(u32, NodeName)> {
        self.ended.iter().map(|task| (task.slot, graph.topology.name(task.node).clone())).collect()
    }

    /// Folds the tasks that have finished since the parent, and that no update replaces.
    pub(crate) fn fold_ended(&mut self, graph: &Inner<S>) -> Result<(), RunError> {
        for EndedTask { slot, node, update, json, targets } in std::mem::take(&mut self.ended) {
            // Targets that the graph no longer has are left out, like its tasks.
            let (targets, _) = targets::recorded_targets(&graph.topology, targets);
            let targets = targets.only(|target| graph.topology.leads(node, target));
            let name = graph.topology.name(node);
            self.fold(name, update)?;
            self.done.push(slot);
            self.applied.push(AppliedTask { slot, recorded: true, node: name.clone(), update: json });
            self.finished.push((node, targets.ends));
            self.items.extend(targets.items);
        }
        Ok(())
    }

    /// Returns the tasks of a node that have finished since the parent, including those that it ran as an
    /// error handler, or its error handler ran, by slot.
    fn finished(&self, graph: &Inner<S>, node: NodeIndex) -> Vec<u32> {
        let next = |slot: u32| self.before.as_ref().and_then(|before| before.next.get(slot as usize));
        let planned = |slot| next(slot).and_then(|name| graph.topology.find(name.as_str()));
        let own = |task: &&EndedTask<S>| task.node == node || planned(task.slot) == Some(node);
        self.ended.iter().filter(own).map(|task| task.slot).collect()
    }

    /// Returns the unfinished tasks of a node, including those that it runs as an error handler, by slot.
    fn unfinished(&self, graph: &Inner<S>, node: NodeIndex) -> Vec<u32> {
        let handler = |task: &&RestoredTask<S>| match &task.record {
            TaskRecord::Handled { failure, .. } => failure.handler(&graph.topology) == Some(node),
            _ => false,
        };
        let next = self.before.iter().flat_map(|before| &before.next);
        let is_own = |next: &NodeName| graph.topology.find(next.as_str()) == Some(node);
        let own = (0..).zip(next).filter(|(_, next)| is_own(next)).map(|(slot, _)| slot);
        let mut slots: Vec<u32> =
            own.chain(self.pending.iter().filter(handler).map(|task| task.slot)).collect();
        slots.retain(|slot| !self.done.contains(slot) && self.ended.iter().all(|task| task.slot != *slot));
        slots
    }

    /// Describes an unfinished task for an error: its place, and the ids of its questions.
    fn shown(&self, graph: &Inner<S>, thread: &ThreadId, slot: u32) -> String {
        let (next, origins) = (self.before.iter().flat_map(|before| &before.next), self.origins.as_ref());
        let node = next.clone().nth(slot as usize);
        let task = self.pending.iter().find(|task| task.slot == slot);
        let ids = node.zip(task).zip(origins).map(|((node, task), origins)| {
            let (asks, questions) = task.record.questions(node, &graph.topology);
            let id = |question: &Question| {
                into_interrupt(question.clone(), origins.occasion(slot, thread), asks, &graph.topology).id
            };
            questions.iter().map(id).collect::<Vec<_>>()
        });
        match ids.filter(|ids| !ids.is_empty()) {
            Some(ids) => ids.iter().map(|id| format!("`{id}` waits")).collect::<Vec<_>>().join(", "),
            None => format!("the task in slot {slot}"),
        }
    }

    /// Folds the updates in order. Each node's routers see the state after its own update, without those of
    /// the others.
    pub(crate) fn add(&mut self, graph: &Inner<S>, updates: Vec<(S::Update, As)>) -> Result<(), RunError> {
        if updates.is_empty() {
            return Ok(());
        }
        self.begin_fold();
        // No task of the parent has this slot.
        let slot = self.before.as_ref().map_or(0, |before| before.next.len());
        let slot = u32::try_from(slot).expect("slots are counted in 32 bits");
        let before = (updates.len() > 1).then(|| self.state.clone());
        let (mut written, mut exclusive) = (ChannelSet::EMPTY, ChannelSet::EMPTY);
        let mut writers: Vec<(ChannelSet, NodeName)> = Vec::new();
        for (update, node) in updates {
            let name = node.name(graph);
            let (writes, alone) = (self.state.written(&update), self.state.exclusive(&update));
            let clash = alone.intersection(written).union(writes.intersection(exclusive));
            if let Some(channel) = clash.iter().next() {
                let first = writers.iter().find(|(written, _)| written.contains(channel));
                let first = first.map_or_else(|| name.clone(), |(_, first)| first.clone());
                let channel = self.state.channels()[channel].name.clone();
                return Err(RunError::Conflict { channel, step: self.step, first, second: name });
            }
            (written, exclusive) = (written.union(writes), exclusive.union(alone));
            writers.push((writes, name.clone()));
            let json = encode(&self.state, &update, self.step, &name, &mut Vec::new())?;
            let alone = before.as_ref().map(|before| {
                let mut alone = before.clone();
                fold(&mut alone, update.clone()).map(|()| alone)
            });
            let refused = |source| RunError::Fold { node: name.clone(), step: self.step, source };
            let alone = alone.transpose().map_err(refused)?;
            self.fold(&name, update)?;
            self.applied.push(AppliedTask { slot, recorded: false, node: name.clone(), update: json });
            let is_last_run = matches!(node, As::LastRun(_));
            let (As::Node(node) | As::LastRun(node)) = node else {
                self.ends |= matches!(node, As::End);
                continue;
            };
            let left_behind = alone.as_ref().unwrap_or(&self.state);
            let targets = graph.nodes[node.position()].targets(left_behind, self.step, &name)?;
            let led = graph.topology.check(node, &targets.ends);
            // The node that ran last took its own routes when it ran, and an update has none.
            let has_routed = is_last_run && matches!(led, Err(EngineError::NoGoto(_)));
            if !has_routed {
                led.map_err(|error| RunError::Route { step: self.step, error })?;
            }
            // Its items were sent and would be paid for twice, and its joins were reached. Only its routers are
            // evaluated, because the new state may lead to another node.
            if is_last_run && (self.is_going || has_routed) {
                // Its successors were planned when it ran: its items are sent, and it has reached its joins.
                let to = |target| if let Target::Node(to) = target { Some((to, node)) } else { None };
                self.led.extend(targets.ends.into_iter().filter_map(to));
                continue;
            }
            self.finished.push((node, targets.ends));
            self.items.extend(targets.items);
        }
        Ok(())
    }

    /// Folds an external update without an author.
    pub(crate) fn add_from_outside(&mut self, graph: &Inner<S>, update: S::Update) -> Result<(), RunError> {
        self.add(graph, vec![(update, As::Nobody)])
    }

    /// Resets the ephemeral channels before the first fold, like a load does.
    fn begin_fold(&mut self) {
        if !std::mem::replace(&mut self.has_folded, true) {
            self.state.clear_ephemeral();
        }
    }

    fn fold(&mut self, node: &NodeName, update: S::Update) -> Result<(), RunError> {
        self.begin_fold();
        let refused = |source| RunError::Fold { node: node.clone(), step: self.step, source };
        fold(&mut self.state, update).map_err(refused)
    }

    /// Returns the checkpoint `id`, and the change that may follow it.
    pub(crate) fn into_commit(
        self,
        graph: &Inner<S>,
        (parent, id): (Option<CheckpointId>, CheckpointId),
        config: &RunOptions,
    ) -> (Commit, Self) {
        let nonce = self.origins.as_ref().and_then(|origins| origins.nonce.clone());
        let changed = self.into_changed(graph, Targets::default());
        let records = changed.records();
        let Changed { state, control, applied, carried, origins } = changed;
        let (created_ms, metadata) = (config.clock.now_ms(), with_origins(config.metadata.clone(), &origins));
        let mut next = Self::new(state, Some(control.clone()));
        next.origins = Some(Origins::new(id, created_ms, control.step, origins).with_nonce(nonce));
        next.pending = carried.into_iter().map(|(_, task)| task).collect();
        let commit = Commit {
            parent,
            source: Source::Update,
            control,
            created_ms,
            metadata: metadata.into(),
            applied,
            snapshot: None,
            fingerprints: None,
            records,
        };
        (commit, next)
    }

    /// Returns the thread after the change, with the tasks of `also` as additional pending tasks.
    pub(crate) fn into_changed(self, graph: &Inner<S>, also: Targets) -> Changed<S> {
        let Self { state, step, before, origins, done, pending, applied, finished, items, led, ends, .. } =
            self;
        if ends {
            let control = Control::new(step, Vec::new());
            return Changed { state, control, applied, carried: Vec::new(), origins: CarriedOrigins::new() };
        }
        // Deferred tasks that have started are not deferred again, which would lose their records.
        let begun: Vec<u32> = pending.iter().map(|task| task.slot).collect();
        let stood = before.as_ref().map(|control| Before { control, done: &done, begun: &begun });
        let mut control = graph.topology.after(stood, &also.ends, &led, &finished);
        let still = before.iter().flat_map(|before| &before.items);
        let still = still.filter(|(slot, _)| !done.contains(slot)).map(|(_, item)| item.as_str().into());
        let sent = still.chain(also.items).chain(items).collect();
        control.items = targets::items(control.next.len(), sent);
        let moved = |before: &Control, slot| moved(&graph.topology, before, &done, &control, slot);
        let carry = |task: RestoredTask<S>| {
            let before = before.as_ref().filter(|_| !done.contains(&task.slot))?;
            let slot = moved(before, task.slot)?;
            Some((task.slot, RestoredTask { slot, ..task }))
        };
        let carried = pending.into_iter().filter_map(carry).collect();
        let stay =
            before.iter().flat_map(|before| (0..).zip(&before.next).map(move |(slot, _)| (before, slot)));
        let began = stay.filter(|(_, slot)| !done.contains(slot)).filter_map(|(before, slot)| {
            let origin = origins.as_ref().map(|origins| origins.get(slot));
            Some((moved(before, slot)?, before.next.get(slot as usize)?, origin))
        });
        let began: Vec<_> = began.collect();
        let origins = began.iter().filter_map(|(slot, _, origin)| Some((*slot, (*origin)?))).collect();
        // What belongs to them contains the names that their nodes had when they began.
        for (slot, name, _) in began {
            control.next[slot as usize].clone_from(name);
        }
        Changed { state, control, applied, carried, origins }
    }
}

/// A thread after an external superstep.
pub(crate) struct Changed<S: State> {
    pub(crate) state: S,
    pub(crate) control: Control,
    /// The folded updates.
    pub(crate) applied: Vec<AppliedTask>,
    /// The records of the remaining tasks, each with its former slot.
    pub(crate) carried: Vec<(u32, RestoredTask<S>)>,
    /// The origins of the remaining tasks, by their new slots.
    pub(crate) origins: CarriedOrigins,
}

impl<S: State> Changed<S> {
    /// Returns the stored form of the remaining tasks' records.
    pub(crate) fn records(&self) -> Vec<(u32, TaskRecord)> {
        self.carried.iter().map(|(_, task)| (task.slot, task.record.clone())).collect()
    }
}

/// Returns the slot among the tasks of `after` of a started task of `before`, where the tasks of `done` are
/// finished.
///
/// Tasks with an item come last, earlier ones first; other tasks exist once for each node.
fn moved(topology: &Topology, before: &Control, done: &[u32], after: &Control, slot: u32) -> Option<u32> {
    let pulled = after.next.len() - after.items.len();
    let new = if before.items.contains_key(&slot) {
        pulled + before.items.range(..slot).filter(|(other, _)| !done.contains(other)).count()
    } else {
        let name = before.next.get(slot as usize)?;
        after.next[..pulled].iter().position(|next| topology.is_same(next, name))?
    };
    u32::try_from(new).ok()
}
