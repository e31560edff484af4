//! The same work as a state graph.

use superstep::{CompiledGraph, Cx, END, Log, Route, START, State, StateGraph};

use crate::{Message, Stopwatch};

/// The state.
#[derive(State, Clone, Debug, Default)]
pub(crate) struct Work {
    pub(crate) count: i64,
    #[channel(append)]
    pub(crate) items: Log<i64>,
    #[channel(append)]
    pub(crate) messages: Log<Message>,
}

#[derive(Route, Clone, Copy)]
enum Next {
    Again,
    Enough,
}

async fn count(state: Work, _: Cx) -> WorkUpdate {
    Work::update().count(state.count + 1)
}

/// Builds one node that counts and leads to itself.
pub(crate) fn looped(steps: i64) -> CompiledGraph<Work> {
    let mut graph = StateGraph::new("loop");
    let node = graph.add_node("count", count);
    graph.add_edge(START, node);
    let route = move |state: &Work| {
        if state.count < steps { Next::Again } else { Next::Enough }
    };
    graph.add_conditional_edges(node, route, |route| match route {
        Next::Again => node,
        Next::Enough => END,
    });
    graph.compile().expect("the graph is whole")
}

/// Builds a chain of one node per step.
pub(crate) fn chain(steps: usize) -> CompiledGraph<Work> {
    let mut graph = StateGraph::new("chain");
    let mut last = START;
    for position in 0..steps {
        let node = graph.add_node(&format!("count-{position:04}"), count);
        graph.add_edge(last, node);
        last = node;
    }
    graph.add_edge(last, END);
    graph.compile().expect("the graph is whole")
}

/// Builds a node, then `width` parallel nodes, then a join.
pub(crate) fn fan_out(width: usize) -> CompiledGraph<Work> {
    let mut graph = StateGraph::new("fan-out");
    let source = graph.add_node("a-source", count);
    let sink = graph.add_node("z-sink", count);
    graph.add_edge(START, source);
    for item in 0..width {
        let branch = move |_: Work, _: Cx| async move { Work::update().items([item as i64]) };
        let branch = graph.add_node(&format!("branch-{item:04}"), branch);
        graph.add_edge(source, branch);
        graph.add_edge(branch, sink);
    }
    graph.add_edge(sink, END);
    graph.compile().expect("the graph is whole")
}

/// Builds a node that starts the stopwatch, then one that appends a message `steps` times.
pub(crate) fn appends(steps: i64, stopwatch: Stopwatch) -> CompiledGraph<Work> {
    let mut graph = StateGraph::new("appends");
    let begin = graph.add_node_with("begin", stopwatch, async |stopwatch: Stopwatch, _: Work, _: Cx| {
        stopwatch.start();
    });
    let say = graph.add_node("say", async |state: Work, _: Cx| {
        Work::update().count(state.count + 1).messages([Message::numbered(state.count)])
    });
    graph.add_edge(START, begin);
    graph.add_edge(begin, say);
    let route = move |state: &Work| {
        if state.count < steps { Next::Again } else { Next::Enough }
    };
    graph.add_conditional_edges(say, route, |route| match route {
        Next::Again => say,
        Next::Enough => END,
    });
    graph.compile().expect("the graph is whole")
}
