//! Supersteps that do nothing, and supersteps that add one.

use serde::{Deserialize, Serialize};
use superstep::{
    Cx, END, NodeRef, Route, START, State, StateGraph,
    state::{ById, HasId},
};

use super::{Run, streamed};
use crate::saver::Saver;

/// A message with an id.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) role: String,
    pub(crate) content: String,
}

impl HasId for Message {
    fn id(&self) -> &str {
        &self.id
    }

    fn set_id(&mut self, id: String) {
        self.id = id;
    }
}

/// The messages of a conversation, merged by their ids.
#[derive(State, Clone, Debug, Default)]
pub(crate) struct Messages {
    #[channel(merge_by_id)]
    pub(crate) messages: ById<Message>,
}

#[derive(State, Clone, Debug, Default)]
struct Counter {
    n: i64,
}

#[derive(Route, Clone, Copy)]
enum Next {
    Again,
    Enough,
}

/// Builds a chain of nodes without writes.
pub(crate) fn sequential(nodes: usize, saver: Saver) -> Run {
    let mut graph = StateGraph::new("sequential");
    let mut last: NodeRef = START;
    for number in 0..nodes {
        let node = graph.add_node(&format!("node_{number}"), async |_: Messages, _: Cx| {});
        graph.add_edge(last, node);
        last = node;
    }
    graph.add_edge(last, END);
    let graph = graph.compile().expect("the graph is whole");
    streamed(graph, saver, Messages::update().messages(Vec::<Message>::new()), |state| {
        state.messages.is_empty()
    })
}

/// Builds a node that adds one to a number, and a conditional edge back to it.
pub(crate) fn looped(times: i64, saver: Saver) -> Run {
    let mut graph = StateGraph::new("loop");
    let step = graph.add_node("step", async |state: Counter, _: Cx| Counter::update().n(state.n + 1));
    graph.add_edge(START, step);
    let route = move |state: &Counter| if state.n >= times { Next::Enough } else { Next::Again };
    graph.add_conditional_edges(step, route, |route| match route {
        Next::Again => step,
        Next::Enough => END,
    });
    let graph = graph.compile().expect("the graph is whole");
    streamed(graph, saver, Counter::update().n(0), |state| state.n > 0)
}
