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
        Behaviour, ChatModel, Delta, FinishReason, Message, ModelRetry, Request, ResponseStream, Role, Tool,
        ToolCx, ToolError, ToolRegistry, ToolSpec, Usage, retries::Retrying, tool_fn,
    },
};
use superstep_testing::sim::{self, CrashPoint, Options, Sim};

use super::{crashed_everywhere, seeds};

/// Answers from its request only: two rounds of tool calls, then a text; thanks need no tools.
struct Oracle;

impl ChatModel for Oracle {
    fn name(&self) -> &str {
        "oracle"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        stream::iter(answer(&request.messages)).map(Ok).boxed()
    }
}

fn answer(messages: &[Message]) -> Vec<Delta> {
    let asked = messages.iter().rposition(|message| message.role == Role::User).unwrap();
    let results: Vec<_> = messages[asked..].iter().filter(|message| message.role == Role::Tool).collect();
    let usage = Delta::Usage(Usage::new(messages.len() as u64, 1));
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

fn retried(model: Arc<dyn ChatModel>) -> Arc<dyn ChatModel> {
    Arc::new(Retrying::new(model, ModelRetry::default()))
}

/// Returns an agent whose model fails under seeds, and whose tool does if `tool_fails`.
fn agent(sim: &Sim, effects: &Effects, tool_fails: bool) -> CompiledGraph<AgentState> {
    let (life, effects) = (sim.seed(), effects.clone());
    let note = tool_fn(ToolSpec::of::<Note>("note", "Notes a number."), move |args: Note, cx: ToolCx| {
        let effects = effects.clone();
        async move {
            *effects.lock().unwrap().entry(life).or_default().entry(cx.idempotency_key).or_default() += 1;
            Ok(format!("noted {}", args.number))
        }
    });
    let mut tools = ToolRegistry::new();
    // It is idempotent, so that a call interrupted by a crash is repeated.
    let note = note.with_behaviour(Behaviour { idempotent: true, ..Behaviour::default() });
    let note: Arc<dyn Tool> = Arc::new(note);
    tools.insert(if tool_fails { sim.tool(note) } else { note }).unwrap();
    let config =
        ReactConfig { tool_mode: ToolMode::Parallel { max: 3 }, loops: Vec::new(), ..ReactConfig::graph(5) };
    react_graph(AgentDeps::new(retried(sim.model(Oracle)), tools, config)).compile().unwrap()
}

fn says(text: &str) -> AgentStateUpdate {
    AgentState::update().messages([Message::user(text)])
}

#[test]
fn an_agent_ends_alike_in_any_order_and_after_any_crash() {
    let effects = Effects::default();
    let report = sim::check(seeds(500), |sim| agent(sim, &effects, false), [says("note it"), says("thanks")]);
    crashed_everywhere(&report);

    let mut lives = effects.lock().unwrap().clone();
    let plain = lives.remove(&None).unwrap();
    // Once in the plain run, and once in each run that has the faults of a seed and no crashes.
    assert_eq!(plain.values().collect::<Vec<_>>(), [&(1 + report.seeds); 5]);
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

#[test]
fn an_agent_whose_tool_fails_after_its_effect_ends_alike_after_any_crash() {
    let effects = Effects::default();
    let failing = |sim: &Sim| agent(sim, &effects, true);
    let report = sim::check(seeds(100), failing, [says("note it"), says("thanks")]);
    let crashed = |place: &CrashPoint| report.places.get(place).is_some_and(|passes| passes.crashed > 0);
    assert!(report.seeds == 1 || crashed(&CrashPoint::AfterTool("note".to_owned())), "{report}");
    // A failed call took effect, and the model sees other results than in the plain run.
    let lives = effects.lock().unwrap();
    assert!(lives.values().all(|calls| calls.values().all(|count| *count > 0)), "{lives:?}");
}

/// Records the texts of tool results that a model saw.
struct Watched(Arc<Mutex<Vec<String>>>);

impl ChatModel for Watched {
    fn name(&self) -> &str {
        "watched"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let results = request.messages.iter().filter(|message| message.role == Role::Tool);
        self.0.lock().unwrap().extend(results.map(|result| result.content.clone()));
        Oracle.stream(request)
    }
}

#[test]
fn faults_of_models_and_tools_happen_under_seeds_and_not_in_the_plain_run() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let make = |sim: &Sim| {
        let note = tool_fn(ToolSpec::of::<Note>("note", "Notes a number."), async |_: Note, _: ToolCx| {
            Ok::<_, ToolError>("noted".to_owned())
        });
        let note = note.with_behaviour(Behaviour { idempotent: true, ..Behaviour::default() });
        let mut tools = ToolRegistry::new();
        tools.insert(sim.tool(note)).unwrap();
        let config = ReactConfig { loops: Vec::new(), ..ReactConfig::graph(5) };
        let model = retried(sim.model(Watched(seen.clone())));
        react_graph(AgentDeps::new(model, tools, config)).compile().unwrap()
    };
    sim::check(Options::seeds(0..0), make, [says("note it")]);
    let plain = std::mem::take(&mut *seen.lock().unwrap());
    assert!(!plain.is_empty() && plain.iter().all(|result| result == "noted"), "{plain:?}");
    sim::check(Options::seeds(0..40), make, [says("note it")]);
    let failed = seen.lock().unwrap().iter().filter(|result| result.contains("as simulated")).count();
    assert!(failed > 0, "no tool failed");
}
