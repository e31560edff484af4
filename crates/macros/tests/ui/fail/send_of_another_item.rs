//! The items of a command's sends must have the worker's item type.

use superstep_graph::{Command, Cx, State, StateGraph, WorkerRef, error::NoRoute};

#[derive(State, Clone, Debug, Default)]
struct Chat {
    turns: i64,
}

async fn look_up(_: String, _: Chat, _: Cx) {}

async fn plan(look_up: WorkerRef<String>, chat: Chat, _: Cx) -> Command<Chat, NoRoute> {
    Command::new().send(look_up, chat.turns)
}

fn main() {
    let mut graph = StateGraph::<Chat>::new("chat");
    let look_up = graph.add_worker("look_up", look_up);
    graph.add_routing_node_with("plan", look_up, plan);
}
