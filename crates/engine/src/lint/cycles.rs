//! Circles that nothing leads out of.

use petgraph::{algo::tarjan_scc, graph::DiGraph};

use super::{Way, Ways, When};
use crate::{Place, Problem, ProblemKind};

/// The nodes from which a run is sure to go on for ever, and the circles they go in.
///
/// A run goes on for ever at a node if it has to go on to one where it does: by a plain edge, or because every route leads to
/// such a node. That there are such nodes at all is found by taking away, again and again, those that need not go on.
pub(super) fn look(ways: &Ways<'_>) -> Vec<Problem> {
    let mut endless = ways.reached([ways.start], |_| false);
    loop {
        let ends: Vec<usize> =
            ways.nodes().filter(|node| endless[*node] && !has_to_go_on(ways, *node, &endless)).collect();
        if ends.is_empty() {
            break;
        }
        ends.into_iter().for_each(|node| endless[node] = false);
    }
    let mut graph = DiGraph::<usize, ()>::new();
    let nodes: Vec<_> = ways.nodes().map(|node| graph.add_node(node)).collect();
    for from in ways.nodes().filter(|node| endless[*node]) {
        for to in ways.from[from].iter().filter_map(|way| way.to).filter(|to| endless[*to]) {
            graph.add_edge(nodes[from], nodes[to], ());
        }
    }
    let circles = tarjan_scc(&graph).into_iter().filter(|circle| {
        endless[graph[circle[0]]] && (circle.len() > 1 || graph.contains_edge(circle[0], circle[0]))
    });
    let problems = circles.map(|circle| {
        let mut members: Vec<usize> = circle.into_iter().map(|node| graph[node]).collect();
        members.sort_unstable();
        let inside = |way: &&Way| way.to.is_some_and(|to| members.contains(&to));
        let edges = members.iter().flat_map(|node| ways.from[*node].iter().filter(inside));
        // What closed the circle was said last.
        let last = edges.map(|way| way.edge).max().expect("a circle has edges");
        let place: Place = ways.builder.edges[last].place;
        let mut names: Vec<_> = members.iter().map(|node| ways.name(*node)).collect();
        names.sort();
        Problem { kind: ProblemKind::Endless(names), place }
    });
    let mut problems: Vec<Problem> = problems.collect();
    problems.sort_by_key(|problem| (problem.place.file(), problem.place.line()));
    problems
}

/// Whether a run that is here is sure to go on to one of these.
fn has_to_go_on(ways: &Ways<'_>, node: usize, to: &[bool]) -> bool {
    let from = &ways.from[node];
    let leads_in = |way: &Way| way.to.is_some_and(|next| to[next]);
    if from.iter().any(|way| way.when == When::Always && leads_in(way)) {
        return true;
    }
    let routers = from.iter().map(|way| way.when).filter(|when| matches!(when, When::Router(_)));
    if routers.into_iter().any(|router| from.iter().filter(|way| way.when == router).all(leads_in)) {
        return true;
    }
    // A node that goes where it likes has to go somewhere if nothing else leads on.
    let joined = ways.joins.iter().any(|(sources, ..)| sources.contains(&node));
    !joined && !from.is_empty() && from.iter().all(|way| way.when == When::Goto && leads_in(way))
}
