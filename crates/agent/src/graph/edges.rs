//! The edges of the agent graph.
//!
//! Start at [`react_graph`].

use superstep_graph::{END, START, StateGraph};

use super::{
    guarded::guard,
    members::{Members, route},
    react_graph::{NextUncompacted, ReactNodes, should_continue},
};
use crate::{AgentState, HasAgent, deps::AgentDeps};

// Nothing in a generic `react_graph(deps).compile()` would name the state, and a function has no default for a type.
/// Returns the agent graph: `init_state → memory_trigger → agent ⇄ tools → finalize`, and the optional nodes
/// that are configured.
#[track_caller]
pub fn react_graph(deps: AgentDeps) -> StateGraph<AgentState> {
    react_graph_as(deps)
}

/// Returns the same graph on a state with additional channels. It has all edges; for other edges, see
/// [`ReactNodes`], whose nodes have no guards and no handoffs.
#[track_caller]
pub fn react_graph_as<S: HasAgent>(deps: AgentDeps) -> StateGraph<S> {
    let deps = deps.with_wired_guards();
    let mut graph = StateGraph::new("react");
    let nodes = ReactNodes::add(&mut graph, &deps);
    let members = Members::add(&mut graph, &deps, nodes);
    graph.add_edge(START, nodes.init_state);
    match nodes.retrieve {
        // Before the message is stored; otherwise it would be retrieved as an earlier one.
        Some(retrieve) => {
            graph.add_edge(nodes.init_state, retrieve);
            graph.add_edge(retrieve, nodes.memory_trigger);
        }
        None => graph.add_edge(nodes.init_state, nodes.memory_trigger),
    }
    route(&mut graph, nodes.memory_trigger, &members, None);
    for member in members.iter() {
        route(&mut graph, member.nodes.tools, &members, Some(member));
    }
    if deps.guards.are_nodes() {
        guard(&mut graph, &deps, &members);
    }
    for member in members.iter() {
        if !deps.guards.are_nodes() {
            continue_from(&mut graph, member.nodes);
        }
        if let Some(compact) = member.nodes.compact {
            graph.add_edge(compact, member.nodes.agent);
        }
    }
    match nodes.record {
        Some(record) => {
            graph.add_edge(nodes.finalize, record);
            graph.add_edge(record, END);
        }
        None => graph.add_edge(nodes.finalize, END),
    }
    graph
}

/// Adds the edges by which a turn continues after a model call.
fn continue_from<S: HasAgent>(graph: &mut StateGraph<S>, nodes: ReactNodes) {
    match nodes.compact {
        Some(_) => graph.add_conditional_edges(nodes.agent, should_continue, |next| nodes.target(next)),
        // A route that cannot be chosen is not drawn.
        None => graph.add_conditional_edges(
            nodes.agent,
            |state: &S| NextUncompacted::from(should_continue(state)),
            |next| nodes.target(next.into()),
        ),
    }
}
