//! Nodes that write the same channel in the same superstep.

use std::collections::{BTreeMap, BTreeSet};

use super::{EdgeCondition, EdgeMap, LintEdge};
use crate::{Problem, ProblemKind, SourceLocation};

/// Returns pairs of nodes that can run in the same superstep and both declare writes to a channel that takes
/// one write.
pub(super) fn find(map: &EdgeMap<'_>) -> Vec<Problem> {
    let takes_one =
        |name: &&String| map.builder.channels.iter().any(|(channel, one)| channel == *name && *one);
    let mut writes: BTreeMap<usize, (BTreeSet<&String>, SourceLocation)> = BTreeMap::new();
    for said in &map.builder.writes {
        if let crate::Endpoint::Node(node) = said.node {
            let entry = writes.entry(node).or_insert_with(|| (BTreeSet::new(), said.place));
            entry.0.extend(said.channels.iter().filter(takes_one));
        }
    }
    if writes.values().all(|(channels, _)| channels.is_empty()) {
        return Vec::new();
    }
    let together = together(map);
    let mut problems = Vec::new();
    for (one, other) in together {
        let (Some((first, _)), Some((second, place))) = (writes.get(&one), writes.get(&other)) else {
            continue;
        };
        if let Some(channel) = first.intersection(second).next() {
            let (mut nodes, channel) = ([map.name(one), map.name(other)], (*channel).clone());
            nodes.sort();
            let [first, second] = nodes;
            problems.push(Problem { kind: ProblemKind::ConcurrentWrites { first, second, channel }, place });
        }
    }
    problems
}

/// Returns the pairs of tasks that can be in one superstep, the lesser node first; a worker can be paired
/// with itself.
fn together(map: &EdgeMap<'_>) -> BTreeSet<(usize, usize)> {
    let leads_to: Vec<Vec<bool>> = map.nodes().map(|node| map.reached([node], |_| false)).collect();
    let mut pairs = BTreeSet::new();
    // A task alone is a pair of `None` and a node.
    let mut seen = BTreeSet::new();
    let mut left: Vec<(Option<usize>, usize)> = vec![(None, map.start)];
    while let Some((one, other)) = left.pop() {
        if !seen.insert((one, other)) {
            continue;
        }
        if let Some(one) = one {
            pairs.insert((one, other));
        }
        let mut next = |a: usize, b: usize| {
            if a != b || map.is_worker(a) {
                // Deferred nodes run when no other task is left.
                if map.is_deferred(a) == map.is_deferred(b) {
                    left.push((Some(a.min(b)), a.max(b)));
                }
            }
        };
        match one {
            None => {
                for (position, first) in map.from[other].iter().enumerate() {
                    let Some(a) = first.to else { continue };
                    if first.when == EdgeCondition::Items {
                        next(a, a);
                    }
                    for second in &map.from[other][position + 1..] {
                        if let Some(b) = second.to
                            && both(map, first, second)
                        {
                            next(a, b);
                        }
                    }
                }
            }
            Some(one) => {
                let ends = |node: usize| map.from[node].iter().filter_map(|edge| edge.to);
                for a in ends(one) {
                    for b in ends(other) {
                        next(a, b);
                    }
                }
                // A join runs with the successors of the others, unless it still waits for what they lead to.
                for (sources, to, _) in &map.joins {
                    for (source, sibling) in [(one, other), (other, one)] {
                        if !sources.contains(&source) {
                            continue;
                        }
                        for b in ends(sibling) {
                            if !sources.iter().any(|source| leads_to[b][*source]) {
                                next(*to, b);
                            }
                        }
                    }
                }
            }
        }
        left.extend(one.into_iter().chain([other]).flat_map(|node| map.next(node)).map(|to| (None, to)));
    }
    pairs
}

/// Returns whether one task can take both edges.
fn both(map: &EdgeMap<'_>, first: &LintEdge, second: &LintEdge) -> bool {
    match (first.when, second.when) {
        (EdgeCondition::Router(a), EdgeCondition::Router(b)) => a != b || !map.builder.routers[a].one,
        _ => true,
    }
}
