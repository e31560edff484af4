//! The items of a fan-out that an external update has separated.
//!
//! ```text
//! update: some items ended ─▶ w is open ─▶ its last item ends ─▶ w reaches its joins
//!                                  └─ fans out to v, which is open until its last item ends
//! ```
//!
//! Start at [`OpenItems`].

// If the ended items reached a join alone, it would run before the results of the others, or twice. If only the last
// item reached it, an error handler that ends that item would lose the join.
use std::collections::{BTreeMap, BTreeSet};

use super::withheld_as;
use crate::{NodeIndex, Target, Topology, Withheld};

/// The workers with open items at the end of a superstep: some of their items have ended, and others are to
/// run. Items that end in an error handler count as well.
#[derive(Debug, Default)]
pub(super) struct OpenItems {
    workers: BTreeSet<NodeIndex>,
    /// The workers that open items may still send items to.
    behind: BTreeSet<NodeIndex>,
}

impl OpenItems {
    /// Finds the workers with open items.
    ///
    /// `still` are the tasks that remain pending, `ended` the nodes that have run, in this superstep or, if
    /// their arrival was withheld, in an `earlier` one, and `sent` the workers that receive items.
    pub(super) fn of(
        topology: &Topology,
        still: &[Target],
        ended: impl Iterator<Item = NodeIndex>,
        earlier: &BTreeMap<NodeIndex, Withheld>,
        sent: &[NodeIndex],
    ) -> Self {
        let mut open = Self::default();
        let is_item = |target: &Target| matches!(target, Target::Send(_));
        if earlier.is_empty() && !still.iter().any(is_item) {
            return open;
        }
        let ended: BTreeSet<_> = ended.map(|node| topology.worker_of(node)).collect();
        let senders: BTreeSet<_> =
            withheld_as(earlier, Withheld::Reached).map(|node| topology.worker_of(node)).collect();
        let (busy, mut found) = (|worker| still.contains(&Target::Send(worker)), true);
        while std::mem::take(&mut found) {
            for &worker in &ended {
                let sends = |from: &NodeIndex| {
                    *from != worker && topology.receivers(*from).any(|receiver| receiver == worker)
                };
                let gets_more = |from: &NodeIndex| open.has(*from) || sent.contains(&worker);
                if busy(worker) || senders.iter().any(|from| sends(from) && gets_more(from)) {
                    found |= open.workers.insert(worker);
                }
            }
        }
        let mut left: Vec<_> = open.workers.iter().copied().collect();
        while let Some(worker) = left.pop() {
            left.extend(topology.receivers(worker).filter(|receiver| open.behind.insert(*receiver)));
        }
        open
    }

    /// Returns whether some items of a worker are to run, while others have ended.
    pub(super) fn has(&self, worker: NodeIndex) -> bool {
        self.workers.contains(&worker)
    }

    /// Returns whether open items may still send items to a worker.
    pub(super) fn may_send(&self, worker: NodeIndex) -> bool {
        self.behind.contains(&worker)
    }
}

impl Topology {
    /// Returns the node whose task a node runs: itself, or the one whose failures it handles.
    pub(super) fn worker_of(&self, node: NodeIndex) -> NodeIndex {
        let handled = |node: &NodeIndex| self.nodes[node.position()].handles;
        std::iter::successors(Some(node), handled).last().unwrap_or(node)
    }

    /// Returns the workers that a worker or its error handlers fan out to.
    fn receivers(&self, worker: NodeIndex) -> impl Iterator<Item = NodeIndex> {
        let handlers = std::iter::successors(Some(worker), |node| self.handler(*node));
        handlers.flat_map(|node| self.nodes[node.position()].fan_outs.iter().copied())
    }
}
