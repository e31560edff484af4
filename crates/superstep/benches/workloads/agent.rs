//! The agent of this library, with a model that answers immediately.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use superstep::{
    State as _,
    agent::{AgentState, ReactConfig, deps::AgentDeps, graph::react_graph},
    llm::{
        ChatModel, Delta, FinishReason, Message, Request, ResponseStream, Role, ToolCx, ToolRegistry,
        ToolSpec, tool_fn,
    },
};

use super::{Run, streamed};
use crate::saver::Saver;

/// Calls its tool a number of times, then answers.
struct Scripted {
    calls: usize,
    /// The length of a call's argument.
    characters: usize,
}

impl ChatModel for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let done = request.messages.iter().filter(|message| message.role == Role::Tool).count();
        let deltas = if done < self.calls {
            let query = format!("{done:08}").repeat(self.characters / 8);
            let call = Delta::ToolCall {
                index: 0,
                id: Some(format!("call-{done}")),
                name: Some("search".into()),
                arguments: format!(r#"{{"query":"{query}"}}"#),
            };
            [call, Delta::Finish(FinishReason::ToolCalls)]
        } else {
            [Delta::Text("answer".repeat(100)), Delta::Finish(FinishReason::Stop)]
        };
        stream::iter(deltas).map(Ok).boxed()
    }
}

/// Builds `calls` rounds of one call each, with an argument of `characters` characters and a result of ten
/// times as many.
pub(crate) fn run(calls: usize, characters: usize, saver: Saver) -> Run {
    let spec = ToolSpec {
        name: "search".into(),
        description: "Searches.".into(),
        parameters: json!({"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}),
    };
    let search = tool_fn(spec, |args: Value, _: ToolCx| async move {
        Ok(format!("result for query: {}", args["query"].as_str().unwrap_or_default()).repeat(10))
    });
    let mut tools = ToolRegistry::new();
    tools.insert(Arc::new(search)).expect("it is the only tool");
    let deps = AgentDeps::new(Arc::new(Scripted { calls, characters }), tools, ReactConfig::graph(1_000));
    let graph = react_graph(deps).compile().expect("the graph is whole");
    let input = AgentState::update().messages([Message::user("hi?")]);
    streamed(graph, saver, input, |state| {
        state.final_reply.len() == 600 && state.current_step as usize * 2 + 2 == state.messages.len()
    })
}
