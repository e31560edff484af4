//! Lints: suspicions about a graph that could run.
//!
//! Start at [`look`]. Each lint reports only certain or almost certain mistakes; it stays silent where it
//! would have to guess.

mod concurrent;
mod cycles;

mod joins;
mod twice;

use crate::{EdgeKind, Endpoint, Problem, SourceLocation, topology::TopologyBuilder};
use std::collections::BTreeMap;

/// Runs all lints. The edges have been checked before.
pub(crate) fn find(builder: &TopologyBuilder) -> Vec<Problem> {
    let map = EdgeMap::new(builder);
    let mut problems = twice::find(&map);
    problems.extend(joins::find(&map));
    problems.extend(cycles::find(&map));
    problems.extend(concurrent::find(&map));
    problems
}

/// The edges of a graph with numbered nodes; [`START`](crate::START) is the last.
struct EdgeMap<'b> {
    builder: &'b TopologyBuilder,
    start: usize,
    /// The outgoing edges of each node.
    from: Vec<Vec<LintEdge>>,
    /// The joins, each with its sources and its target.
    joins: Vec<(Vec<usize>, usize, SourceLocation)>,
}

/// An edge.
#[derive(Clone, Copy, Debug)]
struct LintEdge {
    /// The target node; `None` for the end.
    to: Option<usize>,
    when: EdgeCondition,
    /// The position of the edge in the builder.
    edge: usize,
}

/// The condition under which an edge is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EdgeCondition {
    Always,
    /// Taken if the conditional edge at this position chooses it.
    Router(usize),
    /// Taken if the node itself chooses it.
    Goto,
    /// Taken once for each item: zero or more times.
    Items,
}

impl<'b> EdgeMap<'b> {
    fn new(builder: &'b TopologyBuilder) -> Self {
        let start = builder.nodes.len();
        let number = |end| match end {
            Endpoint::Node(declared) => Some(declared),
            Endpoint::Start => Some(start),
            Endpoint::End | Endpoint::Foreign => None,
        };
        let mut from = vec![Vec::new(); start + 1];
        let mut router_of = BTreeMap::new();
        for (router, spec) in builder.routers.iter().enumerate() {
            router_of.extend(spec.edges.clone().map(|edge| (edge, router)));
        }
        for (position, edge) in builder.edges.iter().enumerate() {
            let when = match (&edge.kind, router_of.get(&position)) {
                (EdgeKind::Plain, _) => EdgeCondition::Always,
                (EdgeKind::FanOut | EdgeKind::Sends, _) => EdgeCondition::Items,
                (EdgeKind::Route(_), Some(router)) => EdgeCondition::Router(*router),
                _ => EdgeCondition::Goto,
            };
            if let Some(node) = number(edge.from) {
                from[node].push(LintEdge { to: number(edge.to), when, edge: position });
            }
        }
        let joins = builder.joins.iter().filter_map(|join| {
            let sources = join.sources.iter().copied().filter_map(number).collect();
            Some((sources, number(join.to)?, join.place))
        });
        Self { builder, start, from, joins: joins.collect() }
    }

    /// Returns all nodes, with the start.
    fn nodes(&self) -> std::ops::RangeInclusive<usize> {
        0..=self.start
    }

    fn name(&self, node: usize) -> crate::NodeName {
        self.builder.nodes.get(node).map_or_else(|| crate::START.into(), |node| node.name.clone())
    }

    fn is_deferred(&self, node: usize) -> bool {
        self.builder.nodes.get(node).is_some_and(|node| node.deferred)
    }

    fn is_worker(&self, node: usize) -> bool {
        self.builder.nodes.get(node).is_some_and(|node| node.worker)
    }

    /// Returns the successors of a node under any condition; each source of a join leads to the join's node.
    fn next(&self, node: usize) -> impl Iterator<Item = usize> {
        let joined =
            self.joins.iter().filter(move |(sources, ..)| sources.contains(&node)).map(|(_, to, _)| *to);
        self.from[node].iter().filter_map(|edge| edge.to).chain(joined)
    }

    /// Returns the nodes reachable from these, including themselves, over edges that are not `without`.
    fn reached(&self, from: impl IntoIterator<Item = usize>, without: impl Fn(usize) -> bool) -> Vec<bool> {
        let mut reached = vec![false; self.start + 1];
        let mut left: Vec<usize> = from.into_iter().collect();
        while let Some(node) = left.pop() {
            if std::mem::replace(&mut reached[node], true) {
                continue;
            }
            left.extend(self.from[node].iter().filter(|edge| !without(edge.edge)).filter_map(|edge| edge.to));
            let joined = self.joins.iter().filter(|(sources, ..)| sources.contains(&node));
            left.extend(joined.map(|(_, to, _)| *to));
        }
        reached
    }
}
