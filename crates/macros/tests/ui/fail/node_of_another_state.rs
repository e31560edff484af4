//! A node must take the state of its graph.

use superstep_graph::{Cx, State, StateGraph};

#[derive(State, Clone, Debug, Default)]
struct Chat {
    turns: i64,
}

#[derive(State, Clone, Debug, Default)]
struct Other {
    turns: i64,
}

async fn answer(_: Other, _: Cx) -> OtherUpdate {
    Other::update().turns(1)
}

fn main() {
    let mut graph = StateGraph::<Chat>::new("chat");
    graph.add_node("answer", answer);
}
