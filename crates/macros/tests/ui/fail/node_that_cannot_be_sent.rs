//! A node may be moved to another thread while it waits.

use std::rc::Rc;

use superstep_graph::{Cx, State, StateGraph};

#[derive(State, Clone, Debug, Default)]
struct Chat {
    turns: i64,
}

async fn answer(_: Chat, cx: Cx) -> ChatUpdate {
    let turns = Rc::new(1);
    cx.sleep(std::time::Duration::from_secs(1)).await;
    Chat::update().turns(*turns)
}

fn main() {
    let mut graph = StateGraph::<Chat>::new("chat");
    graph.add_node("answer", answer);
}
