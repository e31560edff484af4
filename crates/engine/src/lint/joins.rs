//! Joins that wait forever.

use super::{EdgeCondition, EdgeMap};
use std::collections::BTreeMap;

use crate::{Problem, ProblemKind, WhyDead};

/// Returns joins with an unreachable source, or with two sources of which a run takes only one.
pub(super) fn find(ways: &EdgeMap<'_>) -> Vec<Problem> {
    let reached = ways.reached([ways.start], |_| false);
    let mut problems = Vec::new();
    for (sources, to, place) in &ways.joins {
        let name = || ways.name(*to);
        if let Some(source) = sources.iter().find(|source| !reached[**source]) {
            let kind = ProblemKind::DeadJoin { join: name(), why: WhyDead::Unreachable(ways.name(*source)) };
            problems.push(Problem { kind, place });
        } else if let Some(why) = exclusive(ways, sources) {
            problems.push(Problem { kind: ProblemKind::DeadJoin { join: name(), why }, place });
        }
    }
    problems
}

fn exclusive(ways: &EdgeMap<'_>, sources: &[usize]) -> Option<WhyDead> {
    for router in ways.nodes().filter(|node| runs_once(ways, *node)) {
        // The edges to each target, for each conditional edge of the node that takes one route.
        let mut targets: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for way in &ways.from[router] {
            if let (EdgeCondition::Router(position), Some(to)) = (way.when, way.to)
                && ways.builder.routers[position].one
            {
                targets.entry((position, to)).or_default().push(way.edge);
            }
        }
        let mut needs: Vec<(usize, (usize, usize))> = Vec::new();
        for (target, edges) in &targets {
            let otherwise = ways.reached([ways.start], |edge| edges.contains(&edge));
            needs.extend(
                sources.iter().filter(|source| !otherwise[**source]).map(|source| (*source, *target)),
            );
        }
        for (first, (position, to)) in &needs {
            let other = needs.iter().find(|(_, (other, other_to))| other == position && other_to != to);
            if let Some((second, _)) = other {
                return Some(WhyDead::Exclusive {
                    router: ways.name(router),
                    first: ways.name(*first),
                    second: ways.name(*second),
                });
            }
        }
    }
    None
}

/// Returns whether a run certainly reaches this node at most once: all paths to it have equal length, and
/// none contains a cycle or anything that may run several times or later.
fn runs_once(ways: &EdgeMap<'_>, node: usize) -> bool {
    let leads_here: Vec<bool> = ways.nodes().map(|from| ways.reached([from], |_| false)[node]).collect();
    let is_odd = |node: usize| ways.is_worker(node) || ways.is_deferred(node);
    if ways.nodes().any(|from| leads_here[from] && is_odd(from)) {
        return false;
    }
    let mut depths = vec![None; ways.start + 1];
    let mut left = vec![(ways.start, 0)];
    while let Some((at, depth)) = left.pop() {
        match depths[at] {
            None => depths[at] = Some(depth),
            Some(known) if known == depth => continue,
            Some(_) => return false,
        }
        if depth > ways.start {
            return false;
        }
        left.extend(ways.next(at).filter(|to| leads_here[*to]).map(|to| (to, depth + 1)));
    }
    depths[node].is_some()
}
