//! Joins that wait forever.

use super::{EdgeCondition, EdgeMap};
use std::collections::BTreeMap;

use crate::{Problem, ProblemKind, WhyDead};

/// Returns joins with an unreachable source, or with two sources of which a run takes only one.
pub(super) fn find(map: &EdgeMap<'_>) -> Vec<Problem> {
    let reached = map.reached([map.start], |_| false);
    let mut problems = Vec::new();
    for (sources, to, place) in &map.joins {
        let name = || map.name(*to);
        if let Some(source) = sources.iter().find(|source| !reached[**source]) {
            let kind = ProblemKind::DeadJoin { join: name(), why: WhyDead::Unreachable(map.name(*source)) };
            problems.push(Problem { kind, place });
        } else if let Some(why) = exclusive(map, sources) {
            problems.push(Problem { kind: ProblemKind::DeadJoin { join: name(), why }, place });
        }
    }
    problems
}

fn exclusive(map: &EdgeMap<'_>, sources: &[usize]) -> Option<WhyDead> {
    for router in map.nodes().filter(|node| runs_once(map, *node)) {
        // The edges to each target, for each conditional edge of the node that takes one route.
        let mut targets: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for edge in &map.from[router] {
            if let (EdgeCondition::Router(position), Some(to)) = (edge.when, edge.to)
                && map.builder.routers[position].one
            {
                targets.entry((position, to)).or_default().push(edge.edge);
            }
        }
        let mut needs: Vec<(usize, (usize, usize))> = Vec::new();
        for (target, edges) in &targets {
            let otherwise = map.reached([map.start], |edge| edges.contains(&edge));
            needs.extend(
                sources.iter().filter(|source| !otherwise[**source]).map(|source| (*source, *target)),
            );
        }
        for (first, (position, to)) in &needs {
            let other = needs.iter().find(|(_, (other, other_to))| other == position && other_to != to);
            if let Some((second, _)) = other {
                return Some(WhyDead::Exclusive {
                    router: map.name(router),
                    first: map.name(*first),
                    second: map.name(*second),
                });
            }
        }
    }
    None
}

/// Returns whether a run certainly reaches this node at most once: all paths to it have equal length, and
/// none contains a cycle or anything that may run several times or later.
fn runs_once(map: &EdgeMap<'_>, node: usize) -> bool {
    let leads_here: Vec<bool> = map.nodes().map(|from| map.reached([from], |_| false)[node]).collect();
    let is_odd = |node: usize| map.is_worker(node) || map.is_deferred(node);
    if map.nodes().any(|from| leads_here[from] && is_odd(from)) {
        return false;
    }
    let mut depths = vec![None; map.start + 1];
    let mut left = vec![(map.start, 0)];
    while let Some((at, depth)) = left.pop() {
        match depths[at] {
            None => depths[at] = Some(depth),
            Some(known) if known == depth => continue,
            Some(_) => return false,
        }
        if depth > map.start {
            return false;
        }
        left.extend(map.next(at).filter(|to| leads_here[*to]).map(|to| (to, depth + 1)));
    }
    depths[node].is_some()
}
