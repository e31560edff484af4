//! Nodes that run more than once although one run was intended.

use super::{EdgeCondition, EdgeMap};
use crate::{Problem, ProblemKind};

/// The distance of a node from another one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Distance {
    /// The number of plain edges, which is the same on every path.
    One(usize),
    /// Paths of different lengths lead there.
    Several,
}

/// Returns nodes with plain edges from two nodes that are both certain successors of one node, in different
/// supersteps.
///
/// Only plain edges count, and only without a deferred node in between: these nodes run under any condition.
/// A node that runs twice because its predecessor does is not reported again.
pub(super) fn find(map: &EdgeMap<'_>) -> Vec<Problem> {
    let mut blamed = std::collections::BTreeSet::new();
    let mut problems = Vec::new();
    for origin in std::iter::once(map.start).chain(0..map.start) {
        let depths = depths(map, origin);
        for node in 0..map.start {
            if blamed.contains(&node) || map.is_deferred(node) {
                continue;
            }
            let mut before: Vec<(usize, usize, usize)> = Vec::new();
            let mut certain = true;
            for source in map.nodes() {
                let edge = map.from[source]
                    .iter()
                    .find(|edge| edge.when == EdgeCondition::Always && edge.to == Some(node));
                match (edge, depths[source]) {
                    (Some(edge), Some(Distance::One(depth))) => before.push((depth, source, edge.edge)),
                    (Some(_), Some(Distance::Several)) => certain = false,
                    _ => {}
                }
            }
            before.sort_unstable();
            if let (true, [(first, early, _), .., (last, late, edge)]) = (certain, &before[..])
                && first < last
            {
                blamed.insert(node);
                let (early, late) = (map.name(*early), map.name(*late));
                let kind = ProblemKind::RunsTwice { node: map.name(node), early, late };
                problems.push(Problem { kind, place: map.builder.edges[*edge].place });
            }
        }
    }
    problems
}

fn depths(map: &EdgeMap<'_>, origin: usize) -> Vec<Option<Distance>> {
    let mut depths = vec![None; map.start + 1];
    let mut left = vec![(origin, Distance::One(0))];
    while let Some((node, depth)) = left.pop() {
        let known = &mut depths[node];
        *known = match *known {
            None => Some(depth),
            Some(same) if same == depth => continue,
            Some(Distance::Several) => continue,
            Some(Distance::One(_)) => Some(Distance::Several),
        };
        let next = match *known {
            // Longer than any path without a cycle.
            Some(Distance::One(depth)) if depth <= map.start => Distance::One(depth + 1),
            _ => Distance::Several,
        };
        let plain = map.from[node]
            .iter()
            .filter(|edge| edge.when == EdgeCondition::Always)
            .filter_map(|edge| edge.to);
        left.extend(plain.filter(|to| !map.is_deferred(*to)).map(|to| (to, next)));
    }
    depths
}
