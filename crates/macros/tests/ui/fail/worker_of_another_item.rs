//! The items of a fan-out must have the worker's item type.

use superstep_graph::{Cx, START, State, StateGraph};

#[derive(State, Clone, Debug, Default)]
struct Chat {
    turns: i64,
}

async fn look_up(_: String, _: Chat, _: Cx) {}

fn main() {
    let mut graph = StateGraph::<Chat>::new("chat");
    let look_up = graph.add_worker("look_up", look_up);
    graph.add_fan_out(START, |chat: &Chat| [chat.turns], look_up);
}
