//! A conversation: a run for each turn, on one thread.

use std::sync::Arc;

use superstep::{Cx, END, START, State, StateGraph};

use super::{
    Run,
    chain::{Message, Messages, MessagesUpdate},
};
use crate::saver::Saver;

fn message(cx: &str, role: &str, letter: &str) -> MessagesUpdate {
    let id = format!("{role:.1}{cx:0>35}");
    Messages::update().messages([Message { id, role: role.into(), content: letter.repeat(1_000) }])
}

/// Builds `turns` turns of a message of 1,000 characters and a reply of the same length.
pub(crate) fn run(turns: usize, saver: Saver) -> Run {
    let mut graph = StateGraph::new("chat");
    let reply = graph.add_node("reply", async |_: Messages, cx: Cx| message(&cx.id("reply"), "ai", "r"));
    graph.add_edge(START, reply);
    graph.add_edge(reply, END);
    let graph = graph.compile().expect("the graph is whole");
    // Without a saver each turn starts with an empty thread.
    let kept = if saver.checkpointer.is_some() { 2 * turns } else { 2 };
    let graph = saver.keep(graph);
    Arc::new(move |thread| {
        let (graph, options) = (graph.clone(), saver.options(thread));
        Box::pin(async move {
            let mut messages = 0;
            for turn in 0..turns {
                let said = message(&turn.to_string(), "human", "h");
                let outcome = graph.configured(options.clone()).run(said).await;
                messages = outcome.expect("the run does not fail").state.messages.len();
            }
            assert_eq!(messages, kept);
        })
    })
}
