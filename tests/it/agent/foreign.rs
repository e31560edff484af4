//! External conversations, with calls without results and results without calls.

use std::sync::Arc;

use superstep::{
    MemoryCheckpointer, State,
    agent::AgentState,
    llm::{Message, ToolCall},
};
use superstep_testing::script::{call, txt};

use super::{
    facades::{Asked, both},
    preset,
};
use crate::support::head;

const LOST: &str = "tool: [Tool result unavailable — call was interrupted or lost]";

fn calling(ids: &[&str]) -> Message {
    let call = |id: &&str| ToolCall::new(*id, "echo", r#"{"x":"1"}"#);
    Message::assistant("").with_tool_calls(ids.iter().map(call))
}

/// Returns the model's view of a history that ends with `u2`, in a turn with one round and in the next turn.
fn read(history: &[Message]) -> Vec<String> {
    let script = [call("n1", "echo", r#"{"x":"1"}"#), txt("ok"), txt("bye")];
    let history = [history, &[Message::user("u2")]].concat();
    let (stored, sent) = both(&script, async |asked: Asked| {
        let agent = asked.agent.config(preset()).checkpointer(Arc::new(MemoryCheckpointer::new()));
        let agent = agent.build().unwrap();
        let input = AgentState::update().messages(history.clone());
        agent.thread("t").run(input).await.unwrap();
        agent.thread("t").ask("u3").await.unwrap();
        let messages = head(agent.graph()).await.values.messages;
        let without_id = |message: &Message| message.clone().with_id("");
        messages.iter().take(history.len()).map(without_id).collect::<Vec<_>>()
    });
    // The stored conversation is unchanged.
    assert!(stored.into_iter().eq(history.iter().map(|said| said.clone().with_id(""))));
    let after = ["user: u2", "assistant: ", "tool: r:1", "assistant: ok", "user: u3"];
    assert!(sent.last.ends_with(&after.map(str::to_owned)), "{:?}", sent.last);
    sent.last[..sent.last.len() - after.len()].to_vec()
}

#[test]
fn a_call_without_a_result_gets_a_lost_result() {
    let (user, answer) = (Message::user("u"), Message::tool("c2", "2"));
    let lost = ["user: u", "assistant: ", LOST].map(str::to_owned).to_vec();
    assert_eq!(read(&[user.clone(), calling(&["c1"])]), lost);
    let half = [&lost[..], &["tool: 2".to_owned()]].concat();
    assert_eq!(read(&[user.clone(), calling(&["c1", "c2"]), answer.clone()]), half);
    let late = [user.clone(), calling(&["c2"]), Message::user("u1"), answer];
    assert_eq!(
        read(&late),
        [&lost[..], &["user: u1".to_owned()]].concat(),
        "a result belongs right behind its call"
    );
}

#[test]
fn a_result_without_a_call_is_left_out() {
    let (user, nobodys) = (Message::user("u"), Message::tool("zz", "?"));
    assert_eq!(read(&[user.clone(), nobodys.clone()]), ["user: u"]);
    assert_eq!(read(&[nobodys.clone(), user.clone()]), ["user: u"]);
    let twice = [user, calling(&["c1"]), Message::tool("c1", "1"), Message::tool("c1", "one"), nobodys];
    assert_eq!(read(&twice), ["user: u", "assistant: ", "tool: 1"]);
}

#[test]
fn results_are_put_in_the_order_of_their_calls() {
    let results = ["c2", "c1"].map(|id| Message::tool(id, id));
    let mixed = [&[Message::user("u"), calling(&["c1", "c2"])], &results[..]].concat();
    assert_eq!(read(&mixed), ["user: u", "assistant: ", "tool: c1", "tool: c2"]);
}
