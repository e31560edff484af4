//! A graph is of a state.

use superstep_graph::StateGraph;

#[derive(Clone, Debug, Default)]
struct Chat {
    turns: i64,
}

fn main() {
    StateGraph::<Chat>::new("chat");
}
