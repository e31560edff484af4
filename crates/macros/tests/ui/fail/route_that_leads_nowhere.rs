//! Every route needs a target.

use superstep_graph::{Cx, END, Route, State, StateGraph};

#[derive(State, Clone, Debug, Default)]
struct Chat {
    turns: i64,
}

#[derive(Route, Clone, Copy)]
enum Next {
    Again,
    Done,
}

async fn answer(chat: Chat, _: Cx) -> ChatUpdate {
    Chat::update().turns(chat.turns + 1)
}

fn main() {
    let mut graph = StateGraph::<Chat>::new("chat");
    let answer = graph.add_node("answer", answer);
    graph.add_conditional_edges(
        answer,
        |chat: &Chat| if chat.turns < 3 { Next::Again } else { Next::Done },
        |next| match next {
            Next::Done => END,
        },
    );
}
