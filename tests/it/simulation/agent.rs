//! The agent graph: its model and tools are called again after a crash, without a trace in its state.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use futures::{StreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use superstep::{
    CompiledGraph, State,
    agent::{
        AgentState, ReactConfig, config::ToolMode, deps::AgentDeps, graph::react_graph,
        state::AgentStateUpdate,
    },
    llm::{
        Behaviour, ChatModel, Delta, FinishReason, Message, Request, ResponseStream, Role, ToolCx,
        ToolRegistry, ToolSpec, Usage, tool_fn,
    },
};
use superstep_testing::sim::{self, Sim};

use super::{crashed_everywhere, many};

/// Answers from its request only: two rounds of tool calls, then a text; thanks need no tools.
struct Oracle(Sim);

impl ChatModel for Oracle {
    fn name(&self) -> &str {
        "oracle"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let answer = async move {
            self.0.pause("model").await;
            stream::iter(answer(&request.messages)).map(Ok)
        };
        stream::once(answer).flatten().boxed()
    }
}

fn answer(messages: &[Message]) -> Vec<Delta> {
    let asked = messages.iter().rposition(|message| message.role == Role::User).unwrap();
    let results: Vec<_> = messages[asked..].iter().filter(|message| message.role == Role::Tool).collect();
    let usage = Delta::Usage(Usage { input_tokens: messages.len() as u64, output_tokens: 1 });
    let call = |index: usize, number: usize| Delta::ToolCall {
        index,
        id: Some(format!("call_{}_{number}", messages.len())),
        name: Some("note".to_owned()),
        arguments: format!(r#"{{"number":{number}}}"#),
    };
    let mut deltas = match results.len() {
        0 if messages[asked].content != "thanks" => vec![call(0, 1), call(1, 2), call(2, 3)],
        3 => vec![Delta::Text("more ".to_owned()), call(0, 4), call(1, 5)],
        _ => {
            let said: Vec<&str> = results.iter().map(|result| result.content.as_str()).collect();
            vec![Delta::Text(format!("{}: {}", messages[asked].content, said.join(", ")))]
        }
    };
    let calls = deltas.iter().any(|delta| matches!(delta, Delta::ToolCall { .. }));
    let finish = if calls { FinishReason::ToolCalls } else { FinishReason::Stop };
    deltas.extend([Delta::Finish(finish), usage]);
    deltas
}

#[derive(Deserialize, JsonSchema)]
struct Note {
    number: u32,
}

/// The number of effects of each call, by idempotency key, in each life of the thread.
type Effects = Arc<Mutex<BTreeMap<Option<u64>, BTreeMap<String, u64>>>>;

fn agent(sim: &Sim, effects: &Effects) -> CompiledGraph<AgentState> {
    let (pausing, effects) = (sim.clone(), effects.clone());
    let note = tool_fn(ToolSpec::of::<Note>("note", "Notes a number."), move |args: Note, cx: ToolCx| {
        let (sim, effects) = (pausing.clone(), effects.clone());
        async move {
            sim.pause(format!("tool, before {}", args.number)).await;
            let life = sim.seed();
            *effects.lock().unwrap().entry(life).or_default().entry(cx.idempotency_key).or_default() += 1;
            sim.pause(format!("tool, after {}", args.number)).await;
            Ok(format!("noted {}", args.number))
        }
    });
    let mut tools = ToolRegistry::new();
    // It is idempotent, so that a call interrupted by a crash is repeated.
    let note = note.with_behaviour(Behaviour { idempotent: true, ..Behaviour::default() });
    tools.insert(Arc::new(note)).unwrap();
    let config =
        ReactConfig { tool_mode: ToolMode::Parallel { max: 3 }, loops: Vec::new(), ..ReactConfig::graph(5) };
    react_graph(AgentDeps::new(Arc::new(Oracle(sim.clone())), tools, config)).compile().unwrap()
}

fn says(text: &str) -> AgentStateUpdate {
    AgentState::update().messages([Message::user(text)])
}

#[test]
fn an_agent_ends_alike_in_any_order_and_after_any_crash() {
    let effects = Effects::default();
    let report = sim::check(many(), |sim| agent(sim, &effects), [says("note it"), says("thanks")]);
    crashed_everywhere(&report);

    let mut lives = effects.lock().unwrap().clone();
    let plain = lives.remove(&None).unwrap();
    assert_eq!(plain.values().collect::<Vec<_>>(), [&1; 5]);
    assert_eq!(lives.len() as u64, report.seeds);
    let mut repeated = 0;
    for (seed, calls) in &lives {
        assert!(calls.keys().eq(plain.keys()), "{seed:?}: {calls:?}");
        repeated += calls.values().sum::<u64>() - 5;
    }
    // Only a call that was running when its process stopped takes effect again, under the same key.
    assert!(repeated <= 3 * report.crashes, "{repeated} of {report}");
    assert!(report.seeds == 1 || repeated > 0, "{report}");
}
