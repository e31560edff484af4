//! Cycles without an exit.

use petgraph::{algo::tarjan_scc, graph::DiGraph};

use super::{EdgeCondition, EdgeMap, LintEdge};
use crate::{Problem, ProblemKind, SourceLocation};

/// Returns the nodes from which a run is certain never to end, and the cycles they form.
///
/// A run never ends at a node that must continue to another such node: by a plain edge, or because every
/// route leads to one. The nodes are found by repeatedly removing those that need not continue.
pub(super) fn find(map: &EdgeMap<'_>) -> Vec<Problem> {
    let mut endless = map.reached([map.start], |_| false);
    loop {
        let ends: Vec<usize> =
            map.nodes().filter(|node| endless[*node] && !certainly_continues(map, *node, &endless)).collect();
        if ends.is_empty() {
            break;
        }
        ends.into_iter().for_each(|node| endless[node] = false);
    }
    let mut graph = DiGraph::<usize, ()>::new();
    let nodes: Vec<_> = map.nodes().map(|node| graph.add_node(node)).collect();
    for from in map.nodes().filter(|node| endless[*node]) {
        for to in map.from[from].iter().filter_map(|edge| edge.to).filter(|to| endless[*to]) {
            graph.add_edge(nodes[from], nodes[to], ());
        }
    }
    let circles = tarjan_scc(&graph).into_iter().filter(|circle| {
        endless[graph[circle[0]]] && (circle.len() > 1 || graph.contains_edge(circle[0], circle[0]))
    });
    let problems = circles.map(|circle| {
        let mut members: Vec<usize> = circle.into_iter().map(|node| graph[node]).collect();
        members.sort_unstable();
        let inside = |edge: &&LintEdge| edge.to.is_some_and(|to| members.contains(&to));
        let edges = members.iter().flat_map(|node| map.from[*node].iter().filter(inside));
        // The edge declared last closed the cycle.
        let last = edges.map(|edge| edge.edge).max().expect("a circle has edges");
        let place: SourceLocation = map.builder.edges[last].place;
        let mut names: Vec<_> = members.iter().map(|node| map.name(*node)).collect();
        names.sort();
        Problem { kind: ProblemKind::Endless(names), place }
    });
    let mut problems: Vec<Problem> = problems.collect();
    problems.sort_by_key(|problem| (problem.place.file(), problem.place.line()));
    problems
}

/// Returns whether a run at this node is certain to continue to one of these nodes.
fn certainly_continues(map: &EdgeMap<'_>, node: usize, to: &[bool]) -> bool {
    let from = &map.from[node];
    let leads_in = |edge: &LintEdge| edge.to.is_some_and(|next| to[next]);
    if from.iter().any(|edge| edge.when == EdgeCondition::Always && leads_in(edge)) {
        return true;
    }
    let routers = from.iter().map(|edge| edge.when).filter(|when| matches!(when, EdgeCondition::Router(_)));
    if routers.into_iter().any(|router| from.iter().filter(|edge| edge.when == router).all(leads_in)) {
        return true;
    }
    // A node with routes of its own must take one of them if no edge leads on.
    let joined = map.joins.iter().any(|(sources, ..)| sources.contains(&node));
    !joined && !from.is_empty() && from.iter().all(|edge| edge.when == EdgeCondition::Goto && leads_in(edge))
}
