//! The graph of the agent on journals.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use superstep_agent::{
    AgentState, ReactConfig, deps::AgentDeps, graph::react_graph, state::AgentStateUpdate,
};
use superstep_graph::{CompiledGraph, State as _};
use superstep_llm::{
    Behaviour, ChatModel, Delta, FinishReason, Message, ModelRetry, Request, ResponseStream, Role, ToolCx,
    ToolError, ToolRegistry, ToolSpec, retries::Retrying, tool_fn,
};
use superstep_testing::sim::{self, Sim};

use super::on_journals;

/// Calls a tool twice, then replies with the results.
struct Oracle;

impl ChatModel for Oracle {
    fn name(&self) -> &str {
        "oracle"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let asked = request.messages.iter().rposition(|message| message.role == Role::User).unwrap();
        let results = request.messages[asked..].iter().filter(|message| message.role == Role::Tool);
        let results: Vec<&str> = results.map(|message| message.content.as_str()).collect();
        let call = |index: usize| Delta::ToolCall {
            index,
            id: Some(format!("call_{}_{index}", request.messages.len())),
            name: Some("note".to_owned()),
            arguments: format!(r#"{{"number":{index}}}"#),
        };
        let deltas = if results.is_empty() {
            vec![call(0), call(1), Delta::Finish(FinishReason::ToolCalls)]
        } else {
            vec![Delta::Text(results.join(", ")), Delta::Finish(FinishReason::Stop)]
        };
        stream::iter(deltas).map(Ok).boxed()
    }
}

#[derive(Deserialize, JsonSchema)]
struct Note {
    number: u32,
}

/// Repeats the calls that the simulator lets fail.
fn retried(model: Arc<dyn ChatModel>) -> Arc<dyn ChatModel> {
    Arc::new(Retrying::new(model, ModelRetry::default()))
}

fn agent(sim: &Sim) -> CompiledGraph<AgentState> {
    let note = tool_fn(ToolSpec::of::<Note>("note", "Notes a number."), async |note: Note, _: ToolCx| {
        Ok::<_, ToolError>(format!("noted {}", note.number))
    });
    let mut tools = ToolRegistry::new();
    // A call that a crash interrupts is repeated.
    tools.insert(note.with_behaviour(Behaviour { idempotent: true, ..Behaviour::default() })).unwrap();
    let config = ReactConfig { loops: Vec::new(), ..ReactConfig::graph(5) };
    react_graph(AgentDeps::new(retried(sim.model(Oracle)), tools, config)).compile().unwrap()
}

fn says(text: &str) -> AgentStateUpdate {
    AgentState::update().messages([Message::user(text)])
}

#[test]
fn an_agent_ends_alike_from_the_journal_after_any_crash() {
    let report = sim::check(on_journals(40), agent, [says("note it"), says("again")]);
    assert!(report.crashes > 0);
}
