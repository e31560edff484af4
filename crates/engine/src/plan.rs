//! The plan of the next superstep.
//!
//! Start at [`plan`].

mod open_items;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use self::open_items::OpenItems;
use crate::{
    Control, EngineError, NodeIndex, NodeName, RestoreError, Target, Topology, Withheld,
    topology::TopologyNode,
};

/// The state of a thread before a manual superstep (an external update).
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    /// The control record of the checkpoint.
    pub control: &'a Control,
    /// The slots of its tasks that are done in the superstep.
    pub done: &'a [u32],
    /// The slots of tasks that have started and are not finished. They continue together with any added
    /// tasks, even if their node is deferred.
    pub begun: &'a [u32],
}

impl Topology {
    /// Checks that the topology has every node and join that a control record refers to, and that its nodes take
    /// items as they did.
    ///
    /// # Errors
    /// [`RestoreError`] if one is missing, or a task has an item that its node does not take, or lacks one.
    pub fn fits(&self, control: &Control) -> Result<(), RestoreError> {
        let step = control.step;
        let nodes = control.next.iter().chain(&control.deferred).chain(control.held.keys());
        let nodes: Vec<_> = nodes.filter(|name| self.find(name.as_str()).is_none()).cloned().collect();
        if !nodes.is_empty() {
            return Err(RestoreError::UnknownNodes { step, nodes });
        }
        let items = (0..).zip(&control.next).map(|(slot, name)| (name, control.items.contains_key(&slot)));
        let takes_item = |name: &NodeName| self.find(name.as_str()).is_some_and(|node| self.takes_item(node));
        let mut differing = items.filter(|(name, has_item)| takes_item(name) != *has_item);
        if let Some((node, has_item)) = differing.next() {
            let node = node.clone();
            return Err(if has_item {
                RestoreError::UnknownItem { step, node }
            } else {
                RestoreError::MissingItem { step, node }
            });
        }
        let joins: Vec<_> =
            control.arrived.keys().filter(|name| self.find_join(name).is_none()).cloned().collect();
        if joins.is_empty() { Ok(()) } else { Err(RestoreError::UnknownJoins { step, joins }) }
    }

    /// Returns the control record after a manual superstep in which the tasks of `finished` are done.
    ///
    /// Unfinished tasks of `before` stay pending. Tasks of nodes that the topology no longer has are dropped,
    /// as are arrivals at joins that it no longer has; this is how a thread continues without them. The tasks
    /// of `also` run in any case; sent ones come after those that stay. `led` are further nodes, each with one that leads to it,
    /// as an edge does. The caller must [check](Self::check) the targets of the finished tasks.
    pub fn after(
        &self,
        before: Option<Before<'_>>,
        also: &[Target],
        led: &[(NodeIndex, NodeIndex)],
        finished: &[(NodeIndex, Vec<Target>)],
    ) -> Control {
        let (mut waiting, mut still, mut sent) = (Waiting::default(), RunningTasks::default(), Vec::new());
        if let Some(Before { control, done, begun }) = before {
            waiting = Waiting::restore(self, control);
            for (slot, name) in (0..).zip(&control.next).filter(|(slot, _)| !done.contains(slot)) {
                let Some(node) = self.find(name.as_str()) else { continue };
                still.unfinished.push(node);
                if control.items.contains_key(&slot) {
                    sent.push(Target::Send(node));
                    continue;
                }
                still.tasks.push(Target::Node(node));
                if begun.contains(&slot) {
                    still.begun.push(node);
                }
            }
        }
        let mut next = Vec::new();
        waiting.held.extend(led);
        still.tasks.extend(sent.iter().chain(also));
        let finished = finished.iter().map(|(node, targets)| (*node, targets.as_slice()));
        plan_with(self, &still, finished, &mut waiting, &mut next);
        waiting.control(self, before.map_or(0, |before| before.control.step + 1), &next)
    }

    /// Returns whether a conditional edge or fan-out of `node` leads to `target`.
    pub fn leads(&self, node: NodeIndex, target: Target) -> bool {
        let TopologyNode { routes, gotos, fan_outs, .. } = &self.nodes[node.position()];
        let routed = |to: Option<NodeIndex>| routes.iter().chain(gotos).any(|(_, route)| *route == to);
        match target {
            Target::Node(to) => routed(Some(to)),
            Target::End => routed(None),
            Target::Send(to) => fan_outs.contains(&to),
        }
    }

    /// Returns whether a task of `node`, or its error handler, may lead directly to `to`.
    fn may_lead(&self, node: NodeIndex, to: NodeIndex) -> bool {
        let mut handlers = std::iter::successors(Some(node), |node| self.handler(*node));
        handlers
            .any(|node| self.nodes[node.position()].edges.contains(&to) || self.leads(node, Target::Node(to)))
    }

    /// Returns the successor of a node that leads to exactly one, at once and without an item.
    fn only(&self, node: NodeIndex, targets: &[Target]) -> Option<NodeIndex> {
        let TopologyNode { edges, joins, fan_outs, .. } = &self.nodes[node.position()];
        let to = match (&edges[..], targets) {
            ([to], []) | ([], [Target::Node(to)]) => *to,
            _ => return None,
        };
        let waits = self.nodes[to.position()].deferred || !joins.is_empty() || !fan_outs.is_empty();
        (!waits).then_some(to)
    }

    /// Checks that `node` may lead to exactly these targets.
    ///
    /// # Errors
    /// [`EngineError`] if a target is not among its conditional edges and fan-outs, or if one is missing.
    pub fn check(&self, node: NodeIndex, targets: &[Target]) -> Result<(), EngineError> {
        let TopologyNode { name, routes, gotos, edges, ends, joins, .. } = &self.nodes[node.position()];
        if targets.is_empty() && !gotos.is_empty() && edges.is_empty() && !ends && joins.is_empty() {
            return Err(EngineError::NoGoto(name.clone()));
        }
        if !routes.is_empty() && !targets.iter().any(|target| !matches!(target, Target::Send(_))) {
            return Err(EngineError::NoRoute(name.clone()));
        }
        let Some(unknown) = targets.iter().find(|target| !self.leads(node, **target)) else { return Ok(()) };
        let node = name.clone();
        Err(match *unknown {
            Target::Node(to) => EngineError::UnknownRoute { node, to: self.name(to).to_string() },
            Target::End => EngineError::UnknownRoute { node, to: crate::END.into() },
            Target::Send(to) => EngineError::UnknownSend { node, to: format!("`{}`", self.name(to)) },
        })
    }
}

/// Returns the workers to which a node has sent all their items, or none. The workers of its own sends are
/// excluded if it took another route.
fn fanned_out(node: &TopologyNode, targets: &[Target]) -> impl Iterator<Item = NodeIndex> {
    let is_route = |target: &Target| match *target {
        Target::Node(to) => node.gotos.iter().any(|(_, goto)| *goto == Some(to)),
        Target::End => node.gotos.iter().any(|(_, goto)| goto.is_none()),
        Target::Send(_) => false,
    };
    let took_route = !node.gotos.is_empty() && targets.iter().any(is_route);
    node.fan_outs.iter().copied().filter(move |worker| !took_route || !node.sends.contains(worker))
}

/// Targets that were reached and do not run yet.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// The arrived sources of each join; empty if no source of any join has arrived.
    arrived: Vec<Vec<bool>>,
    /// Sorted.
    deferred: Vec<NodeIndex>,
    /// The nodes whose arrival is withheld until the last of their items has ended.
    withheld: BTreeMap<NodeIndex, Withheld>,
    /// The nodes that wait for unfinished tasks, each with one that leads to it.
    held: BTreeSet<(NodeIndex, NodeIndex)>,
}

impl Waiting {
    /// Restores the arrivals, without joins that the topology lacks, see [`Topology::fits`].
    pub(crate) fn restore(topology: &Topology, control: &Control) -> Self {
        let mut waiting = Self::default();
        waiting.deferred.extend(control.deferred.iter().filter_map(|name| topology.find(name.as_str())));
        let withheld = control.withheld.iter();
        let withheld = withheld.filter_map(|(name, state)| Some((topology.find(name.as_str())?, *state)));
        waiting.withheld.extend(withheld);
        for (name, leaders) in &control.held {
            let Some(to) = topology.find(name.as_str()) else { continue };
            // One that the graph no longer has has no unfinished tasks.
            let leaders = leaders.iter().map(|name| topology.find(name.as_str()).unwrap_or(to));
            waiting.held.extend(leaders.map(|from| (to, from)));
        }
        for (join, names) in &control.arrived {
            let Some(position) = topology.find_join(join) else { continue };
            let nodes = names.iter().filter_map(|name| topology.find(name.as_str()));
            nodes.for_each(|node| waiting.arrive(topology, position, node));
        }
        waiting
    }

    /// Records that `node` has reached a join.
    fn arrive(&mut self, topology: &Topology, position: usize, node: NodeIndex) {
        if self.arrived.is_empty() {
            self.arrived = topology.joins.iter().map(|join| vec![false; join.sources.len()]).collect();
        }
        if let Ok(source) = topology.joins[position].sources.binary_search(&node) {
            self.arrived[position][source] = true;
        }
    }

    /// Records the arrival of a node at its joins, or withholds it while items of its worker are open.
    fn end(&mut self, topology: &Topology, node: NodeIndex, open: &OpenItems, reached: &mut Vec<usize>) {
        if open.has(topology.worker_of(node)) {
            return self.withhold(node, Withheld::Reached);
        }
        let joins = &topology.nodes[node.position()].joins;
        joins.iter().for_each(|&join| self.arrive(topology, join, node));
        reached.extend_from_slice(joins);
    }

    /// Withholds the arrival of a node.
    fn withhold(&mut self, node: NodeIndex, state: Withheld) {
        let withheld = self.withheld.entry(node).or_insert(state);
        *withheld = state.max(*withheld);
    }

    /// Records that these workers, which have nothing to run, have reached the joins that wait for them. The
    /// same applies to the workers that they would have sent items to, and to nodes that no other edge
    /// reaches. `earlier` has the states of nodes whose arrival was withheld before.
    fn pass_by(
        &mut self,
        topology: &Topology,
        (mut left, to_run): (Vec<NodeIndex>, &[NodeIndex]),
        (open, earlier): (&OpenItems, &BTreeMap<NodeIndex, Withheld>),
        reached: &mut Vec<usize>,
    ) {
        let mut passed = BTreeSet::new();
        while let Some(node) = left.pop() {
            if !passed.insert(node) {
                continue;
            }
            if open.may_send(node) {
                self.withhold(node, Withheld::Empty);
                continue;
            }
            // It had items in an earlier superstep.
            if earlier.get(&node).is_some_and(|state| *state > Withheld::Empty) {
                continue;
            }
            let TopologyNode { joins, fan_outs, only_way_to, .. } = &topology.nodes[node.position()];
            joins.iter().for_each(|&join| self.arrive(topology, join, node));
            reached.extend_from_slice(joins);
            left.extend(fan_outs.iter().chain(only_way_to).filter(|node| !to_run.contains(node)));
        }
    }

    /// Returns whether all sources of a join have arrived. If so, the join waits for all of them again.
    fn passes(&mut self, position: usize) -> bool {
        let arrived = &mut self.arrived[position];
        let all = arrived.iter().all(|arrived| *arrived);
        if all {
            arrived.fill(false);
        }
        all
    }

    pub(crate) fn control(&self, topology: &Topology, step: i64, next: &[NodeIndex]) -> Control {
        let name = |node: &NodeIndex| topology.name(*node).clone();
        let mut control = Control::new(step, next.iter().map(name).collect());
        control.deferred.extend(self.deferred.iter().map(name));
        control.withheld.extend(self.withheld.iter().map(|(node, state)| (name(node), *state)));
        for (to, from) in &self.held {
            control.held.entry(name(to)).or_default().push(name(from));
        }
        for (join, arrived) in topology.joins.iter().zip(&self.arrived) {
            let arrived = join.sources.iter().zip(arrived).filter(|(_, arrived)| **arrived);
            let names: Vec<_> = arrived.map(|(source, _)| name(source)).collect();
            if !names.is_empty() {
                control.arrived.insert(join.name.clone(), names);
            }
        }
        control
    }
}

/// Collects the successors of the finished nodes into `next`. First come the nodes reached by an edge or a
/// complete join, each once, in name order; then one worker task per item, in sending order.
pub(crate) fn plan<'a>(
    topology: &Topology,
    finished: impl ExactSizeIterator<Item = (NodeIndex, &'a [Target])> + Clone,
    waiting: &mut Waiting,
    next: &mut Vec<NodeIndex>,
) {
    // Most supersteps have one task, which leads to one other.
    if finished.len() == 1
        && waiting.withheld.is_empty()
        && waiting.held.is_empty()
        && let Some(only) = finished.clone().next().and_then(|(node, targets)| topology.only(node, targets))
    {
        next.clear();
        return next.push(only);
    }
    plan_with(topology, &RunningTasks::default(), finished, waiting, next);
}

/// Tasks that run in any case.
#[derive(Default)]
struct RunningTasks {
    tasks: Vec<Target>,
    /// The nodes of those of the incomplete superstep.
    unfinished: Vec<NodeIndex>,
    /// The nodes of tasks that have started; these are not deferred again.
    begun: Vec<NodeIndex>,
}

impl Topology {
    /// Returns whether `to`, to which a finished task of `from` leads, waits for an unfinished one that may lead there as well. A
    /// new input waits for none.
    fn is_held(&self, to: NodeIndex, from: NodeIndex, still: &RunningTasks) -> bool {
        from != self.start() && still.unfinished.iter().any(|task| self.may_lead(*task, to))
    }
}

/// Returns the nodes whose arrival is withheld in this state.
fn withheld_as(withheld: &BTreeMap<NodeIndex, Withheld>, state: Withheld) -> impl Iterator<Item = NodeIndex> {
    withheld.iter().filter(move |(_, held)| **held == state).map(|(node, _)| *node)
}

/// Plans like [`plan`], with tasks that run in any case.
fn plan_with<'a>(
    topology: &Topology,
    still: &RunningTasks,
    finished: impl Iterator<Item = (NodeIndex, &'a [Target])> + Clone,
    waiting: &mut Waiting,
    next: &mut Vec<NodeIndex>,
) {
    next.clear();
    let mut sent = Vec::new();
    let mut lead = |targets: &[Target], to: &mut dyn FnMut(NodeIndex)| {
        for target in targets {
            match target {
                Target::Node(node) => to(*node),
                Target::Send(node) => sent.push(*node),
                Target::End => {}
            }
        }
    };
    lead(&still.tasks, &mut |node| next.push(node));
    let (mut empty, mut led) = (Vec::new(), mem::take(&mut waiting.held));
    for (node, targets) in finished.clone() {
        let from = &topology.nodes[node.position()];
        empty.extend(fanned_out(from, targets));
        led.extend(from.edges.iter().map(|to| (*to, node)));
        lead(targets, &mut |to| _ = led.insert((to, node)));
    }
    let earlier = mem::take(&mut waiting.withheld);
    let ended = || finished.clone().map(|(node, _)| node).chain(withheld_as(&earlier, Withheld::Reached));
    let open = OpenItems::of(topology, &still.tasks, ended(), &earlier, &sent);
    for (to, from) in led {
        // Sources that end in one superstep lead to a node once, which graphs rely on. Without the wait, an update
        // between them would run the node with a part of the results, and again with the rest. If several edges lie
        // between, only a join waits. To refuse such graphs would forbid some that are right without updates.
        if open.has(topology.worker_of(from)) || topology.is_held(to, from, still) {
            waiting.held.insert((to, from));
        } else {
            next.push(to);
        }
    }
    let mut reached = Vec::new();
    ended().for_each(|node| waiting.end(topology, node, &open, &mut reached));
    let has_items = withheld_as(&earlier, Withheld::Sent).chain(sent.iter().copied());
    let has_items = has_items.filter(|worker| open.may_send(*worker));
    has_items.for_each(|worker| waiting.withhold(worker, Withheld::Sent));
    empty.extend(withheld_as(&earlier, Withheld::Empty));
    // A worker without items is done with all of its items.
    // Nothing is left for its joins to wait for. Its plain edges are not followed, because no task ended: a loop of a
    // model and its tools ends because there were no calls.
    if !empty.is_empty() {
        let to_run: Vec<_> = sent.iter().chain(&*next).copied().collect();
        empty.retain(|worker| !to_run.contains(worker));
        waiting.pass_by(topology, (empty, &to_run), (&open, &earlier), &mut reached);
    }
    // Only after all have arrived: the tasks of one worker reach a join together, once.
    reached.sort_unstable();
    reached.dedup();
    reached.retain(|&join| waiting.passes(join));
    next.extend(reached.into_iter().map(|join| topology.joins[join].to));
    next.sort_unstable();
    next.dedup();
    let waits = |node: &NodeIndex| topology.nodes[node.position()].deferred && !still.begun.contains(node);
    if next.iter().any(waits) {
        waiting.deferred.extend(next.extract_if(.., |node| waits(node)));
        waiting.deferred.sort_unstable();
        waiting.deferred.dedup();
    }
    next.extend(sent);
    if next.is_empty() {
        mem::swap(next, &mut waiting.deferred);
    }
    if next.is_empty() {
        // The thread is finished: remaining arrivals would count for another turn's nodes.
        waiting.arrived.clear();
    }
}
