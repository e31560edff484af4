//! A node must return the update of its graph's state.

use superstep_graph::{Cx, State, StateGraph};

#[derive(State, Clone, Debug, Default)]
struct Chat {
    turns: i64,
}

#[derive(State, Clone, Debug, Default)]
struct Other {
    turns: i64,
}

async fn answer(_: Chat, _: Cx) -> OtherUpdate {
    Other::update().turns(1)
}

fn main() {
    let mut graph = StateGraph::<Chat>::new("chat");
    graph.add_node("answer", answer);
}
