//! The context of tools, their updates of the state, and their events.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::{Value, json};
use superstep::{
    Event, Log, MemoryCheckpointer, MemoryStore, State, StateGraph, Store, StreamMode,
    agent::{
        Agent, AgentState, HasAgent, ReactConfig,
        config::{PermissionRule, Permit, ToolMode},
        deps::AgentDeps,
        graph::ReactNodes,
    },
    llm::{Tool, ToolCx, ToolError, ToolReply, ToolSpec, tool_fn},
    store::Namespace,
};
use superstep_testing::{
    script::{Answer, Script, call, calls, txt},
    scripted::ScriptedModel,
};
use tokio::time::{Duration, sleep};

use super::{check, paused, show, usual_edges};

#[derive(State, Clone, Debug, Default)]
struct Research {
    #[channel(flatten)]
    agent: AgentState,
    #[channel(append)]
    sources: Log<String>,
    best: Option<String>,
}

#[derive(schemars::JsonSchema, serde::Deserialize)]
struct Args {
    x: String,
}

fn spec(name: &str) -> ToolSpec {
    ToolSpec::of::<Args>(name, name)
}

/// Creates a tool that calls `run` with its argument.
fn tool<F, R>(name: &str, run: F) -> Arc<dyn Tool>
where
    F: Fn(&str, &ToolCx) -> R + Clone + Send + Sync + 'static,
    R: Into<Result<ToolReply, ToolError>> + Send + 'static,
{
    Arc::new(tool_fn(spec(name), move |args: Args, cx: ToolCx| {
        let answer = run(&args.x, &cx).into();
        async { answer }
    }))
}

/// Records a source, the slower the shorter its name, so that the first call ends last.
fn cites() -> Arc<dyn Tool> {
    Arc::new(tool_fn(spec("cite"), |args: Args, _: ToolCx| async move {
        sleep(Duration::from_millis(100 / args.x.len() as u64)).await;
        let update = Research::update().sources([args.x.clone()]).best(Some(args.x.clone()));
        Ok(ToolReply::text(format!("noted {}", args.x)).with_update(update))
    }))
}

fn model(answers: impl IntoIterator<Item = Answer>) -> ScriptedModel {
    ScriptedModel::new(Script::new(answers))
}

/// Runs a turn of an agent whose graph has additional channels.
async fn research(answers: Vec<Answer>, tools: Vec<Arc<dyn Tool>>) -> Research {
    let mut registry = superstep::llm::ToolRegistry::new();
    for tool in tools {
        registry.insert(tool).unwrap();
    }
    let config = ReactConfig { tool_mode: ToolMode::Parallel { max: 8 }, ..ReactConfig::graph(5) };
    let deps =
        AgentDeps::new(Arc::new(model(answers)) as Arc<dyn superstep::llm::ChatModel>, registry, config);
    let mut graph = StateGraph::<Research>::new("research");
    let nodes = ReactNodes::add(&mut graph, &deps);
    usual_edges(&mut graph, nodes);
    let graph = graph.compile().unwrap();
    let input = Research::agent_update(AgentState::update().messages([superstep::llm::Message::user("go")]));
    let state = graph.run(input).await.unwrap().state;
    check::calls_are_answered(state.agent.messages.iter());
    state
}

fn round(tool: &str, xs: &[&str]) -> Answer {
    let named: Vec<_> = xs.iter().map(|x| (format!("c_{x}"), json!({ "x": x }).to_string())).collect();
    calls(named.iter().map(|(id, args)| (id.as_str(), tool, args.as_str())))
}

#[test]
fn tool_updates_are_folded_in_call_order_and_messages_are_generated() {
    let state = paused(research(vec![round("cite", &["a", "bb", "ccc"]), txt("ok")], vec![cites()]));
    assert!(state.sources.iter().eq(["a", "bb", "ccc"]), "{:?}", state.sources);
    assert_eq!(state.best.as_deref(), Some("ccc"), "the last write of a round stands");
    let results: Vec<_> = state.agent.tool_result_history.iter().map(String::as_str).collect();
    assert_eq!(results, ["noted a", "noted bb", "noted ccc"]);
}

#[test]
fn a_tool_reads_the_state_before_the_round_and_its_schema_omits_it() {
    let counts = tool("count", |_, cx| {
        let state = cx.extension::<Research>()?;
        let agent = cx.extension::<AgentState>()?;
        assert_eq!(agent.messages.len(), state.agent.messages.len());
        let text = format!("{} of {}", state.sources.len(), cx.call_id);
        Ok(ToolReply::text(text).with_update(Research::update().sources(["one more".to_owned()])))
    });
    assert_eq!(counts.spec().parameters["properties"], json!({ "x": { "type": "string" } }));
    let answers = vec![round("count", &["a", "b"]), call("c9", "count", r#"{"x":"z"}"#), txt("ok")];
    let state = paused(research(answers, vec![counts]));
    let results: Vec<_> = state.agent.tool_result_history.iter().map(String::as_str).collect();
    assert_eq!(results, ["0 of c_a", "0 of c_b", "2 of c9"]);
}

#[test]
fn a_write_that_does_not_fit_is_a_result_and_nothing_is_written() {
    let writes = |name: &str, update: Value| {
        tool(name, move |_, _| Ok(ToolReply::text("done").with_update(update.clone())))
    };
    let tools = vec![
        writes("unknown", json!({ "sauces": ["x"] })),
        writes("wrong", json!({ "sources": 1 })),
        writes("own", json!({ "messages": [] })),
        writes("own_too", json!({ "sources": ["x"], "stop": true })),
        writes("fine", json!({ "sources": ["x"], "user_id": "ada" })),
    ];
    let names = ["unknown", "wrong", "own", "own_too", "fine"];
    let all = calls(names.map(|name| (name, name, r#"{"x":""}"#)));
    let state = paused(research(vec![all, txt("ok")], tools));
    let results: Vec<_> = state.agent.tool_result_history.iter().map(String::as_str).collect();
    let invalid = "the tool's state update is invalid: ";
    let starts = [invalid, invalid, "the tool writes ", "the tool writes "];
    for ((name, start), result) in names.iter().zip(starts).zip(&results) {
        assert!(result.starts_with(&format!("Error executing '{name}': {start}")), "{result}");
    }
    assert!(results[0].contains("sauces"), "{}", results[0]);
    assert!(results[2].ends_with("channel `messages`, which is the agent's own"), "{}", results[2]);
    assert!(results[3].ends_with("channel `stop`, which is the agent's own"), "{}", results[3]);
    assert_eq!(results[4], "done");
    assert!(state.sources.iter().eq(["x"]) && state.agent.user_id == "ada");
    assert_eq!((state.agent.final_reply.as_str(), state.agent.current_step), ("ok", 1));
}

#[test]
fn a_tool_that_fails_or_is_too_late_writes_nothing() {
    let fails = tool("fails", |_, _| Err(ToolError::failed("no luck")));
    let state = paused(research(vec![call("c1", "fails", r#"{"x":""}"#), txt("ok")], vec![fails]));
    assert!(state.sources.is_empty());
    let late = Arc::new(tool_fn(spec("late"), |_: Args, cx: ToolCx| async move {
        cx.cancel.cancelled().await;
        Ok(ToolReply::text("late").with_update(AgentState::update().user_id("late")))
    }));
    let state = paused(async {
        let config = ReactConfig { tool_timeout: Some(Duration::from_millis(10)), ..ReactConfig::graph(5) };
        let model = Arc::new(model([call("c1", "late", r#"{"x":""}"#), txt("ok")]));
        let agent = Agent::builder(model).tools([late as Arc<dyn Tool>]).config(config);
        let agent = agent.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
        agent.thread("t").ask("go").await.unwrap();
        agent.graph().thread("t").state().await.unwrap().values
    });
    assert_eq!(state.tool_result_history[0], "Error: tool 'late' timed out after 10 ms");
    assert_eq!(state.user_id, "");
}

#[test]
fn a_tool_may_permit_and_has_the_store_if_there_is_one() {
    let remembers = Arc::new(tool_fn(spec("remember"), |args: Args, cx: ToolCx| async move {
        let store = cx.extension::<Arc<dyn Store>>()?;
        let place = Namespace::new(["facts"]).map_err(|error| ToolError::failed(error.to_string()))?;
        let put = store.put(&place, &args.x, json!({ "of": cx.call_id })).await;
        put.map_err(|error| ToolError::failed(error.to_string()))?;
        let rule = PermissionRule::new("send", Permit::Allow);
        Ok(ToolReply::text("kept").with_update(AgentState::update().permissions([rule])))
    })) as Arc<dyn Tool>;
    paused(async {
        let run = async |store: Option<Arc<dyn Store>>| {
            let model = Arc::new(model([call("c1", "remember", r#"{"x":"tea"}"#), txt("ok")]));
            let agent = Agent::builder(model).tools([remembers.clone()]).config(ReactConfig::graph(5));
            let agent = match store {
                Some(store) => agent.store(store),
                None => agent,
            };
            let agent = agent.build().unwrap();
            agent.without_thread().run(agent.input("go")).await.unwrap().state
        };
        let store = Arc::new(MemoryStore::new());
        let state = run(Some(store.clone())).await;
        assert_eq!((state.tool_result_history[0].as_str(), state.permissions.len()), ("kept", 1));
        let item = store.get(&Namespace::new(["facts"]).unwrap(), "tea").await.unwrap().unwrap();
        assert_eq!(item.value, json!({ "of": "c1" }));
        let state = run(None).await;
        let result = state.tool_result_history[0].as_str();
        assert!(result.starts_with("Error executing 'remember': the agent gives its tools no "), "{result}");
    });
}

/// Returns the events of a turn with one call of `tool`.
fn told(tool: Arc<dyn Tool>, config: ReactConfig) -> Vec<show::Told> {
    paused(async {
        let name = tool.spec().name.clone();
        let model = Arc::new(model([call("c1", &name, r#"{"x":""}"#), txt("ok")]));
        let agent = Agent::builder(model).tools([tool]).config(config).build().unwrap();
        let mut stream = agent.without_thread().stream(agent.input("go"), StreamMode::Custom);
        let mut told = Vec::new();
        while let Some(event) = stream.next().await {
            if let Event::Custom { name, data, .. } = event {
                told.push(show::Told { at: 0, name, data });
            }
        }
        told
    })
}

#[test]
fn a_tool_reports_partial_output() {
    let counts = Arc::new(tool_fn(spec("count"), |_: Args, cx: ToolCx| async move {
        for n in 1..=2 {
            cx.output(&format!("{n}\n"));
            sleep(Duration::from_millis(10)).await;
        }
        cx.output("");
        Ok("1 and 2")
    }));
    assert_eq!(
        show::events(&told(counts, ReactConfig::graph(5))),
        concat!(
            r#"a▸ ◂a tool_start{count,{"x":""},c1} +tool_output{c1,"1\n"} +tool_output{c1,"2\n"} "#,
            r#"tool_end{count,c1,"1 and 2"} a▸ tok(ok) ◂a"#
        )
    );
}

#[test]
fn output_is_bounded_and_ends_with_its_call() {
    let cxs = Arc::new(Mutex::new(Vec::new()));
    let left = cxs.clone();
    let floods = Arc::new(tool_fn(spec("flood"), move |_: Args, cx: ToolCx| {
        left.lock().unwrap().push(cx.clone());
        async move {
            for _ in 0..300 {
                cx.output(&"é".repeat(1_000));
            }
            // Continues after its time limit; its output is ignored.
            cx.cancel.cancelled().await;
            sleep(Duration::from_secs(60)).await;
            Ok("never")
        }
    }));
    let config = ReactConfig { tool_timeout: Some(Duration::from_millis(10)), ..ReactConfig::graph(5) };
    let told = told(floods, config);
    let chunks: Vec<_> = told.iter().filter(|told| told.name == "tool_output").collect();
    let bytes: usize = chunks.iter().map(|told| told.text("chunk").len()).sum();
    assert_eq!((bytes, chunks.len()), (256 << 10, 132));
    assert_eq!(chunks.last().unwrap().data["truncated"], true);
    assert!(chunks[..131].iter().all(|told| told.data.get("truncated").is_none()));
    assert_eq!(told.iter().rposition(|told| told.name == "tool_end"), Some(told.len() - 4));
    cxs.lock().unwrap()[0].output("is anybody there?");
}
