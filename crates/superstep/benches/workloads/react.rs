//! An agent with one tool and a scripted model.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use superstep::{Cx, END, Log, Route, START, State, StateGraph};

use super::{Run, streamed};
use crate::saver::Saver;

/// Shared by all owners, like Python's strings.
type Text = Arc<String>;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Message {
    Human { content: Text },
    Ai { content: Text, tool_calls: Vec<Call> },
    Tool { tool_call_id: Text, content: Text },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Call {
    id: Text,
    query: Text,
}

#[derive(State, Clone, Debug, Default)]
struct Conversation {
    #[channel(append)]
    messages: Log<Message>,
}

#[derive(Route, Clone, Copy)]
enum Next {
    Tools,
    End,
}

/// Returns an id of the length of a UUID.
fn id(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-000000000000")
}

async fn agent(calls: Arc<[Call]>, state: Conversation, _: Cx) -> ConversationUpdate {
    let done = state.messages.iter().filter(|message| matches!(message, Message::Tool { .. })).count();
    Conversation::update().messages([match calls.get(done) {
        Some(call) => Message::Ai { content: Text::default(), tool_calls: vec![call.clone()] },
        None => Message::Ai { content: Text::new("answer".repeat(100)), tool_calls: Vec::new() },
    }])
}

async fn tools(state: Conversation, _: Cx) -> ConversationUpdate {
    let Some(Message::Ai { tool_calls, .. }) = state.messages.last() else {
        panic!("the agent comes before its tools");
    };
    let Call { id, query } = &tool_calls[0];
    let content = Text::new(format!("result for query: {query}").repeat(10));
    Conversation::update().messages([Message::Tool { tool_call_id: id.clone(), content }])
}

fn next(state: &Conversation) -> Next {
    match state.messages.last() {
        Some(Message::Ai { tool_calls, .. }) if !tool_calls.is_empty() => Next::Tools,
        _ => Next::End,
    }
}

/// Builds `calls` calls, each with an argument of 3,600 characters and a result of 36,180; then an answer of
/// 600.
pub(crate) fn run(calls: usize, saver: Saver) -> Run {
    let script: Vec<_> = (0..calls)
        .map(|call| Call { id: id(call).into(), query: id(call + calls).repeat(100).into() })
        .collect();
    let mut graph = StateGraph::new("react");
    let agent = graph.add_node_with("agent", Arc::<[Call]>::from(script), agent);
    let tools = graph.add_node("tools", tools);
    graph.add_edge(START, agent);
    graph.add_conditional_edges(agent, next, |route| match route {
        Next::Tools => tools,
        Next::End => END,
    });
    graph.add_edge(tools, agent);
    let graph = graph.compile().expect("the graph is whole");
    let input = Conversation::update().messages([Message::Human { content: Text::new("hi?".into()) }]);
    streamed(graph, saver, input, |state| {
        let characters = |message: &Message| match message {
            Message::Human { content } | Message::Ai { content, .. } | Message::Tool { content, .. } => {
                content.len()
            }
        };
        let told: usize = state.messages.iter().map(characters).sum();
        told == 3 + 600 + (state.messages.len() - 2) / 2 * 36_180
    })
}
