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
pub(super) fn find(ways: &EdgeMap<'_>) -> Vec<Problem> {
    let mut blamed = std::collections::BTreeSet::new();
    let mut problems = Vec::new();
    for origin in std::iter::once(ways.start).chain(0..ways.start) {
        let depths = depths(ways, origin);
        for node in 0..ways.start {
            if blamed.contains(&node) || ways.is_deferred(node) {
                continue;
            }
            let mut before: Vec<(usize, usize, usize)> = Vec::new();
            let mut certain = true;
            for source in ways.nodes() {
                let edge = ways.from[source]
                    .iter()
                    .find(|way| way.when == EdgeCondition::Always && way.to == Some(node));
                match (edge, depths[source]) {
                    (Some(way), Some(Distance::One(depth))) => before.push((depth, source, way.edge)),
                    (Some(_), Some(Distance::Several)) => certain = false,
                    _ => {}
                }
            }
            before.sort_unstable();
            if let (true, [(first, early, _), .., (last, late, edge)]) = (certain, &before[..])
                && first < last
            {
                blamed.insert(node);
                let (early, late) = (ways.name(*early), ways.name(*late));
                let kind = ProblemKind::RunsTwice { node: ways.name(node), early, late };
                problems.push(Problem { kind, place: ways.builder.edges[*edge].place });
            }
        }
    }
    problems
}

fn depths(ways: &EdgeMap<'_>, origin: usize) -> Vec<Option<Distance>> {
    let mut depths = vec![None; ways.start + 1];
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
            Some(Distance::One(depth)) if depth <= ways.start => Distance::One(depth + 1),
            _ => Distance::Several,
        };
        let plain =
            ways.from[node].iter().filter(|way| way.when == EdgeCondition::Always).filter_map(|way| way.to);
        left.extend(plain.filter(|to| !ways.is_deferred(*to)).map(|to| (to, next)));
    }
    depths
}
