//! A routing node declares its routes with an enum that derives `Route`.

use superstep_graph::{Command, Cx, State, StateGraph};

#[derive(State, Clone, Debug, Default)]
struct Chat {
    turns: i64,
}

#[derive(Clone, Copy)]
enum Next {
    Done,
}

async fn answer(chat: Chat, _: Cx) -> ChatUpdate {
    Chat::update().turns(chat.turns + 1)
}

async fn decide(_: Chat, _: Cx) -> Command<Chat, Next> {
    Command::new().goto(Next::Done)
}

fn main() {
    let mut graph = StateGraph::<Chat>::new("chat");
    graph.add_routing_node("answer", answer);
    graph.add_routing_node("decide", decide);
}
