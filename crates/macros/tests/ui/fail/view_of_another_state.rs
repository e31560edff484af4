//! A node takes a view of its graph's state.

use superstep_graph::{Cx, State, StateGraph, View};

#[derive(State, Clone, Debug, Default)]
struct Chat {
    turns: i64,
}

#[derive(State, Clone, Debug, Default)]
struct Other {
    turns: i64,
}

#[derive(View)]
#[view(of = Other)]
struct Turns {
    turns: i64,
}

async fn answer(_: Turns, _: Cx) -> ChatUpdate {
    Chat::update()
}

fn main() {
    let mut graph = StateGraph::<Chat>::new("chat");
    graph.add_view_node("answer", answer);
}
