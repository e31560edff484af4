//! Every route of a routing node needs a target.

use superstep_graph::{Command, Cx, END, Route, State, StateGraph};

#[derive(State, Clone, Debug, Default)]
struct Chat {
    turns: i64,
}

#[derive(Route, Clone, Copy)]
enum Next {
    Again,
    Done,
}

async fn answer(_: Chat, _: Cx) -> Command<Chat, Next> {
    Command::new().goto(Next::Again)
}

fn main() {
    let mut graph = StateGraph::<Chat>::new("chat");
    let answer = graph.add_routing_node("answer", answer);
    graph.add_routes(answer, |next| match next {
        Next::Done => END,
    });
}
