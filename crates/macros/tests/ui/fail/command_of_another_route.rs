//! A routing node has routes of its own enum, and its routes are bound to nodes.

use superstep_graph::{Command, Cx, END, Route, State, StateGraph};

#[derive(State, Clone, Debug, Default)]
struct Chat {
    turns: i64,
}

#[derive(Route, Clone, Copy)]
enum Next {
    Done,
}

#[derive(Route, Clone, Copy)]
enum Other {
    Way,
}

async fn answer(_: Chat, _: Cx) -> Command<Chat, Next> {
    Command::new().goto(Next::Done)
}

async fn lost(_: Chat, _: Cx) -> Command<Chat, Next> {
    Command::new().goto(Other::Way)
}

fn main() {
    let mut graph = StateGraph::<Chat>::new("chat");
    let answer = graph.add_routing_node("answer", answer);
    graph.add_routes(answer, |next: Other| match next {
        Other::Way => END,
    });
    graph.add_routing_node("lost", lost);
}
