//! A node with routes of its own is declared as a routing node.

use superstep_graph::{Command, Cx, Route, State, StateGraph};

#[derive(State, Clone, Debug, Default)]
struct Chat {
    turns: i64,
}

#[derive(Route, Clone, Copy)]
enum Next {
    Done,
}

async fn answer(chat: Chat, _: Cx) -> Command<Chat, Next> {
    Command::update(Chat::update().turns(chat.turns + 1)).goto(Next::Done)
}

fn main() {
    let mut graph = StateGraph::<Chat>::new("chat");
    graph.add_node("answer", answer);
}
