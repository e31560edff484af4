//! The nodes of guards in the agent's graph.
//!
//! ```text
//! memory_trigger ─▶ agent ┄┄▶ verdict ┄▶ tools, agent, finalize
//!        └────────▶ guard_… ┄▶ verdict ┄▶ guard_…
//! ```
//!
//! Start at [`guard`].

use superstep_graph::{END, NodeRef, StateGraph};

use super::{
    members::Members,
    react_graph::{Next, ReactNodes, should_continue},
};
use crate::{
    AgentState, HasAgent,
    deps::AgentDeps,
    guards::{Guard, GuardAt},
    nodes::guards,
    state::has_agent::add_node,
};

/// The label of an edge to guards, or to their verdicts.
const CHECK: &str = "Check";

/// The label of an edge from a guard that had no text to check.
const IDLE: &str = "Idle";

/// Adds the nodes of the guards with their edges, and the edges after a model call.
#[track_caller]
pub(super) fn guard<S: HasAgent>(graph: &mut StateGraph<S>, deps: &AgentDeps, members: &Members) {
    let verdict = add_node(graph, "verdict", deps.clone(), guards::verdict);
    let mut targets: Vec<(&str, NodeRef)> = Vec::new();
    for guard in deps.guards.nodes() {
        let name = format!("guard_{}", guard.name());
        let node = add_node(graph, &name, (deps.clone(), guard.clone()), guards::guard);
        let (guards, own) = (deps.guards.clone(), guard.clone());
        // Without a text to check, the response beside it does not wait, and its own edges lead on.
        graph.add_conditional_list(node, [(CHECK, verdict), (IDLE, END)], move |state: &S| {
            vec![if guards.has_run(&own, state.agent()) { 0 } else { 1 }]
        });
        if guard.at() == GuardAt::Input {
            // Beside the first model call.
            graph.add_edge(members.first().memory_trigger, node);
        }
        targets.push((CHECK, node));
    }
    let mut routes = Vec::new();
    for member in members.iter() {
        let mut own = vec![(CHECK, verdict)];
        let (guards, next) = (deps.guards.clone(), Positions::add(&mut own, member.nodes));
        graph.add_conditional_list(member.nodes.agent, own, move |state: &S| {
            let state = state.agent();
            vec![if guards.wait(state) { 0 } else { next.of(state) }]
        });
        routes.push((members.is_active(member), Positions::add(&mut targets, member.nodes)));
    }
    let guards = deps.guards.clone();
    graph.add_conditional_list(verdict, targets, move |state: &S| {
        let state = state.agent();
        let is_due = |(_, guard): &(usize, &Guard)| guards.is_due(guard, state);
        let due: Vec<usize> =
            guards.nodes().enumerate().filter(is_due).map(|(position, _)| position).collect();
        let active = routes.iter().find(|(is_active, _)| is_active(state));
        match active {
            Some((_, next)) if due.is_empty() => vec![next.of(state)],
            _ => due,
        }
    });
}

/// The positions of the routes after a model call in a list of targets.
#[derive(Clone, Copy)]
struct Positions {
    tools: usize,
    agent: usize,
    compact: usize,
    finalize: usize,
}

impl Positions {
    /// Appends the targets that are missing.
    fn add(targets: &mut Vec<(&str, NodeRef)>, nodes: ReactNodes) -> Self {
        let mut place = |label: &'static str, node: NodeRef| {
            let known = targets.iter().position(|(_, target)| *target == node);
            known.unwrap_or_else(|| {
                targets.push((label, node));
                targets.len() - 1
            })
        };
        let (tools, agent) = (place("Tools", nodes.tools), place("Agent", nodes.agent));
        let compact = nodes.compact.map_or(agent, |compact| place("Compact", compact));
        Self { tools, agent, compact, finalize: place("Finalize", nodes.finalize) }
    }

    fn of(self, state: &AgentState) -> usize {
        match should_continue(state) {
            Next::Tools => self.tools,
            Next::Agent => self.agent,
            Next::Compact => self.compact,
            Next::Finalize => self.finalize,
        }
    }
}
