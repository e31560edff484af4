//! Replays of recorded turns with changed agents.

use std::sync::Arc;

use serde_json::{Value, json};
use superstep::{
    Answers, CompiledGraph, END, MemoryCheckpointer, START, State, StateGraph,
    agent::{
        Agent, AgentState, Approval, ReactConfig,
        approval::{ApprovalFuture, ApprovalRequest, Approver},
        config::{Budget, Finish, FinishBy, Limit, PermissionRule, Permit, ResultOrder, ToolMode},
        deps::AgentDeps,
        graph::{Next, ReactNodes, should_continue},
        hooks::{Acting, HookError, Hooks},
    },
    llm::{ChatModel, Tool, ToolCx, ToolRegistry, tool_fn},
    replay::{At, Divergence},
    tools::{Workspace, write_file},
};
use superstep_testing::{
    script::{Script, calls, txt},
    scripted::ScriptedModel,
};

use super::{Scenario, check, kit::Kit, paused, usual_edges};

/// Creates two calls and a reply.
fn scenario() -> Scenario {
    let both = calls([("c1", "add", r#"{"a":2,"b":3}"#), ("c2", "echo", r#"{"x":"five"}"#)]);
    Scenario::new([both, txt("It is five, which is the sum of two and three.")])
}

fn agent(scenario: &Scenario, kit: &Kit, store: &Arc<MemoryCheckpointer>) -> Agent {
    let model = Arc::new(ScriptedModel::new(scenario.script.clone()));
    scenario.agent(model, kit).checkpointer(store.clone()).build().unwrap()
}

async fn recorded() -> Arc<MemoryCheckpointer> {
    let (kit, store) = (Kit::default(), Arc::new(MemoryCheckpointer::new()));
    let agent = agent(&scenario(), &kit, &store);
    agent.thread("t").ask("go").await.unwrap();
    check::replays(agent.graph(), &kit).await;
    store
}

async fn found<S: State>(graph: &CompiledGraph<S>) -> Divergence {
    let replayed = graph.thread("t").replay().run().await.unwrap();
    replayed.divergence.expect("the agent is another one")
}

fn channel(name: &str) -> At {
    At::Channel(name.to_owned())
}

fn effect(name: &str) -> At {
    At::Effect(name.to_owned())
}

fn deny(tool: &str) -> PermissionRule {
    PermissionRule { tool: tool.to_owned(), arguments: Default::default(), then: Permit::Deny }
}

#[test]
fn each_change_of_a_configuration_is_reported_at_its_node() {
    type Change = fn(ReactConfig) -> ReactConfig;
    let changes: [(&str, Change, &str, At, &str); 12] = [
        (
            "prompt",
            |config| ReactConfig { system_prompt: "Be brief.".into(), ..config },
            "agent",
            effect("model"),
            "",
        ),
        (
            "limit",
            |config| ReactConfig { limit: Limit { max: 4, ..config.limit.clone() }, ..config },
            "init_state",
            channel("max_steps"),
            "",
        ),
        (
            "hint",
            |config| ReactConfig { remaining_hint: Some("{left} left".into()), ..config },
            "agent",
            effect("model"),
            "",
        ),
        (
            "a tool that is forbidden",
            |config| ReactConfig { permissions: vec![deny("echo")], ..config },
            "tools",
            effect("call.1"),
            "/verdict",
        ),
        (
            "a tool that is asked about",
            |config| ReactConfig {
                permissions: vec![PermissionRule { then: Permit::Ask, ..deny("add") }],
                ..config
            },
            "tools",
            effect("call.0"),
            "/verdict",
        ),
        (
            "budget of calls",
            |config| ReactConfig { budget: Budget { tool_calls: Some(1), ..config.budget }, ..config },
            "tools",
            channel("messages"),
            "/1",
        ),
        (
            "budget of tokens",
            |config| ReactConfig { budget: Budget { tokens: Some(1), ..config.budget }, ..config },
            "agent",
            channel("answer"),
            "",
        ),
        ("parts", |config| ReactConfig { parts: true, ..config }, "agent", channel("parts"), ""),
        (
            "finish",
            |config| ReactConfig { finish: Finish { by: FinishBy::Tool, ..config.finish.clone() }, ..config },
            "agent",
            effect("model"),
            "/tools",
        ),
        (
            "schema",
            |config| ReactConfig {
                finish: Finish { schema: Some(json!({"type": "integer"})), ..config.finish.clone() },
                ..config
            },
            "agent",
            effect("model"),
            "/tools",
        ),
        (
            "no rounds",
            |config| ReactConfig { limit: Limit { max: 0, ..config.limit.clone() }, ..config },
            "init_state",
            channel("max_steps"),
            "",
        ),
        (
            "a word after the tools",
            |config| ReactConfig { synthetic_after_tools: Some("And now?".into()), ..config },
            "agent",
            effect("model"),
            "",
        ),
    ];
    paused(async {
        let store = recorded().await;
        for (what, change, node, at, place) in changes {
            let changed = agent(&scenario().config(change), &Kit::default(), &store);
            let found = found(changed.graph()).await;
            assert_eq!((found.node.as_str(), &found.at), (node, &at), "{what}: {found}");
            assert_eq!(found.place, place, "{what}: {found}");
        }
    });
}

#[test]
fn a_tool_more_and_a_tool_less_are_seen_by_the_model() {
    paused(async {
        let store = recorded().await;
        for tools in [&["add", "echo", "ping"][..], &["add"]] {
            let changed = agent(&scenario().tools(tools), &Kit::default(), &store);
            let found = found(changed.graph()).await;
            assert_eq!((found.node.as_str(), &found.at), ("agent", &effect("model")), "{found}");
            assert_eq!((found.place.as_str(), found.step), ("/tools", 3), "{found}");
        }
    });
}

/// Connects the agent's nodes with a change.
fn wired(
    store: &Arc<MemoryCheckpointer>,
    wire: fn(&mut StateGraph<AgentState>, ReactNodes),
) -> CompiledGraph<AgentState> {
    let (scenario, kit) = (scenario(), Kit::default());
    let model = ScriptedModel::new(scenario.script.clone());
    let mut tools = ToolRegistry::new();
    for tool in kit.tools(&scenario.tools) {
        tools.insert(tool).unwrap();
    }
    let model: Arc<dyn ChatModel> = Arc::new(model);
    let deps = AgentDeps::new(model, tools, scenario.config);
    let mut graph = StateGraph::<AgentState>::new("react");
    let nodes = ReactNodes::add(&mut graph, &deps);
    wire(&mut graph, nodes);
    graph.compile().unwrap().with_checkpointer(store.clone())
}

#[test]
fn other_edges_other_routes_and_another_order_are_reported_at_the_node_before() {
    type Wire = fn(&mut StateGraph<AgentState>, ReactNodes);
    let order: Wire = |graph, nodes| {
        graph.add_edge(START, nodes.memory_trigger);
        graph.add_edge(nodes.memory_trigger, nodes.init_state);
        graph.add_edge(nodes.init_state, nodes.agent);
        graph.add_conditional_edges(nodes.agent, should_continue, |next| nodes.target(next));
        graph.add_edge(nodes.tools, nodes.agent);
        graph.add_edge(nodes.finalize, END);
    };
    let route: Wire = |graph, nodes| {
        graph.add_edge(START, nodes.init_state);
        graph.add_edge(nodes.init_state, nodes.memory_trigger);
        graph.add_edge(nodes.memory_trigger, nodes.agent);
        let ends = |state: &AgentState| match should_continue(state) {
            Next::Tools => Next::Finalize,
            next => next,
        };
        graph.add_conditional_edges(nodes.agent, ends, |next| nodes.target(next));
        graph.add_edge(nodes.tools, nodes.agent);
        graph.add_edge(nodes.finalize, END);
    };
    let after: Wire = |graph, nodes| {
        graph.add_edge(START, nodes.init_state);
        graph.add_edge(nodes.init_state, nodes.memory_trigger);
        graph.add_edge(nodes.memory_trigger, nodes.agent);
        graph.add_conditional_edges(nodes.agent, should_continue, |next| nodes.target(next));
        graph.add_edge(nodes.tools, nodes.finalize);
        graph.add_edge(nodes.finalize, END);
    };
    paused(async {
        let store = recorded().await;
        wired(&store, usual_edges).thread("t").replay().run().await.unwrap().assert_same();
        for (wire, node, expected, got) in [
            (order, "__start__", "init_state", "memory_trigger"),
            (route, "agent", "tools", "finalize"),
            (after, "tools", "agent", "finalize"),
        ] {
            let found = found(&wired(&store, wire)).await;
            assert_eq!((found.node.as_str(), &found.at), (node, &At::Route), "{found}");
            assert_eq!((found.expected, found.got), (json!(expected), json!(got)));
        }
    });
}

#[test]
fn a_changed_tool_result_is_reported_by_a_live_replay() {
    paused(async {
        let store = recorded().await;
        let kit = Kit::default();
        let spec = kit.tools(&["echo"])[0].spec().clone();
        let echo = tool_fn(spec, |_: Value, _: ToolCx| async { Ok("six".to_owned()) });
        let model = Arc::new(ScriptedModel::new(Script::default()));
        let tools = kit.tools(&["add"]).into_iter().chain([Arc::new(echo) as Arc<dyn Tool>]);
        let changed = Agent::builder(model).tools(tools).config(scenario().config).checkpointer(store);
        let changed = changed.build().unwrap();
        changed.graph().thread("t").replay().run().await.unwrap().assert_same();
        let replay = changed.graph().thread("t").replay().live(["tools"]);
        let found = replay.run().await.unwrap().divergence.unwrap();
        assert_eq!((found.node.as_str(), &found.at), ("tools", &channel("messages")), "{found}");
        assert_eq!(
            (found.place.as_str(), found.expected, found.got),
            ("/1/content", json!("r:five"), json!("six"))
        );
    });
}

#[test]
fn live_tools_and_a_live_model_are_compared_on_a_fork() {
    paused(async {
        let store = recorded().await;
        let kit = Kit::default();
        let same = agent(&scenario(), &kit, &store);
        let replayed = same.graph().thread("t").replay().live(["tools"]).run().await.unwrap();
        assert_eq!((replayed.divergence.as_ref(), kit.n("add"), kit.n("echo")), (None, 1, 1));
        assert!(replayed.fork.is_some());

        let other = Scenario { script: Script::new([txt("No idea.")]), ..scenario() };
        let other = agent(&other, &kit, &store);
        let replayed = other.graph().thread("t").replay().live(["agent"]).run().await.unwrap();
        let found = replayed.divergence.unwrap();
        assert_eq!((found.node.as_str(), &found.at), ("agent", &channel("messages")), "{found}");
        assert_eq!((kit.n("add"), kit.n("echo")), (1, 1), "no tool runs for real");
    });
}

/// A person who approves.
struct Agrees;

impl Approver for Agrees {
    fn ask<'a>(&'a self, _: &'a ApprovalRequest) -> ApprovalFuture<'a> {
        Box::pin(async { Approval::Approve })
    }
}

#[tokio::test]
async fn an_edited_call_is_replayed() {
    for outside in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.txt"), "old\n").unwrap();
        let write = calls([("c1", "write_file", r#"{"path":"a.txt","content":"new\n"}"#)]);
        let model = Arc::new(ScriptedModel::new(Script::new([write, txt("done")])));
        let tool = Arc::new(write_file(&Workspace::open(folder.path()).unwrap())) as Arc<dyn Tool>;
        let agent = Agent::builder(model).config(super::preset()).tools([tool]);
        let agent = if outside { agent.approve_by_interrupt() } else { agent.approver(Arc::new(Agrees)) };
        let agent = agent.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
        let mut end = agent.thread("t").ask("go").await.unwrap();
        if outside {
            let answers = Answers::new().answer("c1", json!("approve"));
            end = agent.thread("t").answers(answers).resume().await.unwrap();
        }
        assert_eq!(end.text, "done");
        assert_eq!(std::fs::read_to_string(folder.path().join("a.txt")).unwrap(), "new\n");
        agent.graph().thread("t").replay().run().await.unwrap().assert_same();
        assert_eq!(std::fs::read_to_string(folder.path().join("a.txt")).unwrap(), "new\n");
    }
}

/// Creates three concurrent calls, which end in the reverse order.
fn at_once(config: ReactConfig) -> Scenario {
    let round =
        [("c0", "slow", r#"{"x":"a"}"#), ("c1", "slow", r#"{"x":"b"}"#), ("c2", "slow", r#"{"x":"c"}"#)];
    let config = ReactConfig { tool_mode: ToolMode::Parallel { max: 3 }, ..config };
    Scenario { config, ..Scenario::new([calls(round), txt("ok")]) }.tools(&["slow"])
}

#[test]
fn results_in_completion_order_are_replayed_in_that_order() {
    paused(async {
        let config = ReactConfig { result_order: ResultOrder::Completion, ..super::preset() };
        let (kit, store) = (Kit::default(), Arc::new(MemoryCheckpointer::new()));
        let agent = agent(&at_once(config), &kit, &store);
        let end = agent.thread("t").run(agent.input("go")).await.unwrap();
        let ids = end.state.messages.iter().map(|message| message.tool_call_id.as_str());
        assert_eq!(ids.filter(|id| !id.is_empty()).collect::<Vec<_>>(), ["c2", "c1", "c0"]);
        check::replays(agent.graph(), &kit).await;
    });
}

#[test]
fn of_hooks_that_failed_in_one_round_the_first_is_replayed() {
    let hooks = |_: &Kit| {
        let mut hooks = Hooks::default();
        let fail = |acting: Acting, _| std::future::ready(Err(HookError::from(acting.call_id().to_owned())));
        hooks.acting.post(fail);
        hooks
    };
    paused(async {
        let (kit, store) = (Kit::default(), Arc::new(MemoryCheckpointer::new()));
        let agent = agent(&Scenario { hooks, ..at_once(super::preset()) }, &kit, &store);
        let end = agent.thread("t").run(agent.input("go")).await.unwrap();
        assert!(end.state.hook_error.as_ref().unwrap().message.contains("c2"), "{:?}", end.state.hook_error);
        check::replays(agent.graph(), &kit).await;
    });
}
