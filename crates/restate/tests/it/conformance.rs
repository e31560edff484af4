//! The contract of checkpointers, each test with namespaces of its own.

use superstep_graph::{CompiledGraph, END, START, State, StateGraph};

use crate::{node::shared, service::Service};

#[derive(State, Clone, Debug, Default)]
struct Nothing {
    count: u32,
}

/// A graph for an endpoint that runs none.
fn nothing() -> CompiledGraph<Nothing> {
    let mut graph = StateGraph::<Nothing>::new("nothing");
    let node = graph.add_node("node", async |_, _| Nothing::update().count(1));
    graph.add_edge(START, node);
    graph.add_edge(node, END);
    graph.compile().unwrap()
}

superstep_testing::conformance!(
    checkpointer threads,
    place = shared().map(|node| Service::start(node, |endpoint| endpoint.graph(nothing()))),
    open = async |service: &Service| service.restate.checkpointer().unwrap(),
    // A request takes some milliseconds.
    sequences = 24,
);
