//! Marks for the nodes and arrows that a run has used.

use super::{ArrowKind, Drawing, DrawnKind};
use crate::{NodeName, START};

impl Drawing {
    /// Counts a superstep: the tasks that ran, and the tasks that were planned after it.
    ///
    /// An arrow counts as taken if its node ran and it always leads on, or if its target came next. This is a
    /// guess only if two nodes of one superstep could both have led to the same node by a route. If the
    /// target of no route came next, the route to the end was taken.
    pub fn superstep(&mut self, ran: &[NodeName], next: &[NodeName]) {
        self.marked = true;
        let count = |names: &[NodeName], wanted: &dyn Fn(&NodeName) -> bool| {
            names.iter().filter(|name| wanted(name)).count() as u64
        };
        let of = |names: &[NodeName], leaving: bool| -> Vec<u64> {
            let of = |node: &super::DrawnNode| match &node.kind {
                DrawnKind::Start => count(names, &|name| name.as_str() == START),
                DrawnKind::Node(node) => count(names, &|name| name == node),
                // Exits of a subgraph are taken when its node has run.
                DrawnKind::Leaves(node) if leaving => count(names, &|name| name == node),
                DrawnKind::End | DrawnKind::Leaves(_) | DrawnKind::Inside => 0,
            };
            self.nodes.iter().map(of).collect()
        };
        let (ran, next) = (of(ran, true), of(next, false));
        for (node, runs) in self.nodes.iter_mut().zip(&ran) {
            node.runs += runs;
        }
        let is_end: Vec<bool> = self.nodes.iter().map(|node| node.kind == DrawnKind::End).collect();
        let chose: Vec<bool> = (0..self.nodes.len())
            .map(|node| {
                let routes = |arrow: &&super::DrawnArrow| {
                    arrow.from == node && matches!(arrow.kind, ArrowKind::Route(_))
                };
                self.arrows.iter().filter(routes).any(|arrow| next[arrow.to] > 0)
            })
            .collect();
        let mut taken = std::collections::BTreeSet::new();
        // A failed node is not among those that ran: its error handler is.
        let used = |arrow: &&mut super::DrawnArrow| ran[arrow.from] > 0 || arrow.kind == ArrowKind::Error;
        for arrow in self.arrows.iter_mut().filter(used) {
            let times = match &arrow.kind {
                ArrowKind::Error => ran[arrow.to],
                ArrowKind::Plain | ArrowKind::Join => 1,
                ArrowKind::Items => next[arrow.to],
                // Of two routes to one node, the first is counted: they cannot be distinguished.
                ArrowKind::Route(_) if !taken.insert((arrow.from, arrow.to)) => 0,
                ArrowKind::Route(_) if is_end[arrow.to] => u64::from(!chose[arrow.from]),
                ArrowKind::Route(_) => u64::from(next[arrow.to] > 0),
            };
            arrow.runs += times;
            if is_end[arrow.to] {
                self.nodes[arrow.to].runs += times;
            }
        }
    }

    /// Marks the pending nodes.
    pub fn pending(&mut self, next: &[NodeName]) {
        self.marked = true;
        for node in &mut self.nodes {
            node.pending = matches!(&node.kind, DrawnKind::Node(name) if next.contains(name));
        }
    }
}
