//! Custom channels next to the agent's, custom nodes around and instead of its nodes, custom routes; the
//! agent in another graph.

use std::sync::Arc;

use futures::StreamExt;
use serde_json::json;
use superstep::{
    Answers, Command, CompiledGraph, Cx, END, Event, Log, MemoryCheckpointer, NodeRef, Route, START, State,
    StateGraph, Status, StreamMode, Streaming,
    agent::{
        Agent, AgentOutcome, AgentState, Approval, HasAgent, ReactConfig, Reply,
        deps::AgentDeps,
        graph::{Next, ReactNodes, add_agent, add_init_state, add_tools, react_graph_as, should_continue},
    },
    llm::{ChatModel, Message, Role, Tool, ToolCx, ToolReply, ToolSpec, tool_fn},
};
use superstep_testing::{
    script::{Answer, Script, call, calls, txt},
    scripted::ScriptedModel,
};

use super::{Kit, check, preset};
use crate::support::{on_every_store, t};

/// An agent's channels, and two of the user.
#[derive(State, Clone, Debug, Default)]
struct Desk {
    topic: String,
    #[channel(flatten)]
    agent: AgentState,
    #[channel(append)]
    notes: Log<String>,
}

fn deps(model: &ScriptedModel, kit: &Kit, tools: &[&'static str], config: ReactConfig) -> AgentDeps {
    let model: Arc<dyn ChatModel> = Arc::new(model.clone());
    Agent::builder(model).tools(kit.tools(tools)).config(config).approve_by_interrupt().deps().unwrap()
}

fn model(answers: impl IntoIterator<Item = Answer>) -> ScriptedModel {
    ScriptedModel::new(Script::new(answers))
}

fn note(text: impl Into<String>) -> DeskUpdate {
    Desk::update().notes([text.into()])
}

/// Adds the usual edges, except those into and out of `agent` and out of `tools`.
fn begin(graph: &mut StateGraph<Desk>, nodes: ReactNodes, first: NodeRef) {
    graph.add_edge(START, nodes.init_state);
    graph.add_edge(nodes.init_state, nodes.memory_trigger);
    graph.add_edge(nodes.memory_trigger, first);
    graph.add_edge(nodes.finalize, END);
}

fn messages(state: &AgentState) -> Vec<String> {
    let shown = state.messages.iter().map(|message| format!("{:?}: {}", message.role, message.content));
    shown.collect()
}

fn valid(state: &AgentState) {
    let messages: Vec<Message> = state.messages.iter().cloned().collect();
    check::calls_are_answered(&messages);
}

#[tokio::test]
async fn own_channels_live_beside_the_agents_under_their_own_names() {
    let (kit, model) =
        (Kit::default(), model([call("c1", "echo", r#"{"x":"1"}"#), txt("done"), txt("again")]));
    let store = Arc::new(MemoryCheckpointer::new());
    let builder = Agent::builder(Arc::new(model.clone())).tools(kit.tools(&["echo"])).config(preset());
    let agent: Agent<Desk> = builder.checkpointer(store.clone()).build_as().unwrap();
    let input = agent.input("go").topic("tea");
    assert_eq!(serde_json::to_value(&input).unwrap()["topic"], "tea");
    let end = agent.thread("t").run(input).await.unwrap();
    assert_eq!((end.state.topic.as_str(), end.state.agent.current_step), ("tea", 1));
    let reply = Reply::from(end);
    assert_eq!((reply.text.as_str(), reply.outcome), ("done", AgentOutcome::Completed));
    // Another turn keeps them; the facade and its streams are those of every agent.
    let mut stream = agent.thread("t").stream(agent.input("more"), [StreamMode::Custom]);
    let mut names = Vec::new();
    while let Some(event) = stream.next().await {
        if let Event::Custom { name, .. } = event {
            names.push(name.to_string());
        }
    }
    assert_eq!(names, ["node_start", "llm_token", "node_end"]);
    let end = stream.outcome().await.unwrap();
    assert_eq!((end.state.topic.as_str(), end.state.agent.final_reply.as_str()), ("tea", "again"));
    model.check().unwrap();

    // The plain agent continues the thread, and reports the unknown channels.
    let plain = Agent::builder(Arc::new(super::extension::model([txt("plain")]))).config(preset());
    let plain = plain.checkpointer(store).build().unwrap();
    assert_eq!(plain.thread("t").ask("hi").await.unwrap().text, "plain");
    let known = plain.graph().thread("t").state().await.unwrap();
    assert_eq!(known.unknown, ["topic"]);
    let back = agent.graph().thread("t").state().await.unwrap().values;
    assert_eq!((back.topic.as_str(), back.agent.final_reply.as_str()), ("tea", "plain"));
}

#[tokio::test]
async fn an_agent_on_a_state_of_its_own_gives_a_value_of_a_type() {
    let model = model([call("c1", "generate_response", r#"{"result":[1,2]}"#)]);
    let agent = Agent::builder(Arc::new(model)).config(preset()).build_as::<Desk>().unwrap();
    assert_eq!(agent.without_thread().extract::<Vec<u32>>("numbers").await.unwrap(), [1, 2]);
}

/// Builds a guard before `agent`, a review after `tools`, and a node that reads and writes channels of both.
fn guarded(deps: &AgentDeps) -> CompiledGraph<Desk> {
    let mut graph = StateGraph::<Desk>::new("guarded");
    let nodes = ReactNodes::add(&mut graph, deps);
    let guard = graph.add_node("guard", async |desk: Desk, _: Cx| {
        let rude = desk.agent.messages.iter().any(|message| message.content.contains("rude"));
        let seen = note(format!("{} messages about {}", desk.agent.messages.len(), desk.topic));
        if rude { seen.agent(AgentState::update().stop(true).stop_reason("refused")) } else { seen }
    });
    let review = graph.add_node("review", async |desk: Desk, cx: Cx| {
        let result = desk.agent.messages.last().expect("a tool answered").content.clone();
        let reviewed = Message::user(format!("Reviewed: {result}")).with_id(cx.id("review"));
        note(result).agent(AgentState::update().messages([reviewed]))
    });
    begin(&mut graph, nodes, guard);
    graph.add_edge(guard, nodes.agent);
    graph.add_conditional_edges(nodes.agent, should_continue, |next| match next {
        Next::Agent => guard,
        next => nodes.target(next),
    });
    graph.add_edge(nodes.tools, review);
    graph.add_edge(review, guard);
    graph.compile().unwrap()
}

#[tokio::test]
async fn own_nodes_stand_before_the_agent_and_after_the_tools() {
    let (kit, model) = (Kit::default(), model([call("c1", "echo", r#"{"x":"1"}"#), txt("done")]));
    let deps = deps(&model, &kit, &["echo"], preset());
    let agent = Agent::of(guarded(&deps), &deps.config);
    let input = agent.input("go").topic("tea");
    let state = agent.without_thread().run(input).await.unwrap().state;
    let notes: Vec<_> = state.notes.iter().map(String::as_str).collect();
    assert_eq!(notes, ["1 messages about tea", "r:1", "4 messages about tea"]);
    assert_eq!(
        messages(&state.agent),
        ["User: go", "Assistant: ", "Tool: r:1", "User: Reviewed: r:1", "Assistant: done"]
    );
    valid(&state.agent);
    // The model received the node's text, and a turn that the guard ended costs no request.
    assert_eq!(model.requests()[1].messages.last().unwrap().content, "Reviewed: r:1");
    let reply = agent.ask("rude").await.unwrap();
    assert_eq!((model.requests().len(), reply.metadata.stop_reason.as_str()), (2, "refused"));
}

#[tokio::test]
async fn a_question_of_a_custom_node_is_not_an_approval() {
    let (kit, model) = (Kit::default(), model([txt("done")]));
    let deps = deps(&model, &kit, &[], preset());
    let mut graph = StateGraph::<Desk>::new("asking");
    let nodes = ReactNodes::add(&mut graph, &deps);
    let ask = graph.add_node("ask", async |_: Desk, cx: Cx| {
        let topic: String = cx.interrupt("topic", "what is it about?").await;
        Desk::update().topic(topic)
    });
    begin(&mut graph, nodes, ask);
    graph.add_edge(ask, nodes.agent);
    graph.add_conditional_edges(nodes.agent, should_continue, |next| nodes.target(next));
    graph.add_edge(nodes.tools, nodes.agent);
    let graph = graph.compile().unwrap().with_checkpointer(Arc::new(MemoryCheckpointer::new()));
    let agent = Agent::of(graph, &deps.config);

    let reply = agent.thread("t").ask("go").await.unwrap();
    assert_eq!(
        (reply.outcome, reply.interrupts[0].question.clone()),
        (AgentOutcome::AwaitingAnswer, json!("what is it about?"))
    );
    let answers = Answers::new().answer(&reply.interrupts[0].id, "tea");
    let reply = agent.thread("t").answers(answers).resume().await.unwrap();
    assert_eq!((reply.outcome, reply.text.as_str()), (AgentOutcome::Completed, "done"));
}

#[tokio::test]
async fn graphs_and_agents_are_shown_by_their_names() {
    let (kit, model) = (Kit::default(), model([]));
    let deps = deps(&model, &kit, &[], preset());
    let graph = guarded(&deps);
    assert_eq!(format!("{graph:?}"), r#"CompiledGraph { name: "guarded", .. }"#);
    assert_eq!(
        format!("{:?}", Agent::of(graph, &deps.config)),
        r#"Agent { graph: CompiledGraph { name: "guarded", .. }, .. }"#
    );
    assert_eq!(format!("{:?}", Agent::builder(Arc::new(model))), r#"AgentBuilder { model: "scripted", .. }"#);
    let empty = StateGraph::<Desk>::new("empty");
    assert_eq!(format!("{empty:?}"), r#"StateGraph { name: "empty", .. }"#);
    // So that this compiles.
    drop(empty.compile().unwrap_err());
}

#[derive(Route, Clone, Copy)]
enum Own {
    Tools,
    Again,
    Escalate,
    End,
}

/// Builds custom routes out of `agent`, a custom node in place of `finalize`, and no `memory_trigger`.
fn escalating(deps: &AgentDeps) -> CompiledGraph<Desk> {
    let mut graph = StateGraph::<Desk>::new("escalating");
    let (init, model, tools) =
        (add_init_state(&mut graph, deps), add_agent(&mut graph, deps), add_tools(&mut graph, deps));
    let human = graph.add_node("human", async |_: Desk, _: Cx| note("a human, please"));
    let end = graph.add_node("finalize", async |desk: Desk, _: Cx| {
        let said = desk.agent.messages.last().map(|last| last.content.clone()).unwrap_or_default();
        Desk::update().agent(AgentState::update().final_reply(format!("{said}, says {}", desk.topic)))
    });
    graph.add_edge(START, init);
    graph.add_edge(init, model);
    let route = |desk: &Desk| match should_continue(desk) {
        Next::Tools if desk.agent.current_step >= 2 => Own::Escalate,
        Next::Tools => Own::Tools,
        Next::Agent | Next::Compact => Own::Again,
        Next::Finalize => Own::End,
    };
    graph.add_conditional_edges(model, route, |own| match own {
        Own::Tools => tools,
        Own::Again => model,
        Own::Escalate => human,
        Own::End => end,
    });
    graph.add_edge(tools, model);
    graph.add_edge(human, tools);
    graph.add_edge(end, END);
    graph.compile().unwrap()
}

#[tokio::test]
async fn own_routes_and_an_own_finalize_take_the_place_of_the_agents() {
    let (kit, echo) = (Kit::default(), |id: &str| call(id, "echo", &format!(r#"{{"x":"{id}"}}"#)));
    let model = model([echo("c1"), echo("c2"), echo("c3"), txt("done")]);
    let deps = deps(&model, &kit, &["echo"], preset());
    let graph = escalating(&deps);
    assert!(graph.topology().find("memory_trigger").is_none(), "what is left out is not there");
    let agent = Agent::of(graph, &deps.config);
    let state = agent.without_thread().run(agent.input("go").topic("tea")).await.unwrap().state;
    assert_eq!(state.notes, ["a human, please".to_owned()]);
    assert_eq!(state.agent.final_reply, "done, says tea");
    assert_eq!(kit.n("echo"), 3);
    valid(&state.agent);
}

on_every_store! {
    async fn approvals_and_resumes_know_a_graph_that_was_wired_by_hand(backend: Backend) {
        let kit = Kit::default();
        let open = |answers: Vec<Answer>| {
            let model = model(answers);
            let deps = deps(&model, &kit, &["echo", "send"], preset());
            (Agent::of(guarded(&deps).with_checkpointer(backend.open()), &deps.config), model)
        };
        let (agent, _) = open(vec![calls([("c1", "send", r#"{"to":"a"}"#), ("c2", "echo", r#"{"x":"1"}"#)])]);
        let asked = agent.thread("t").ask("go").await.unwrap();
        assert_eq!((asked.outcome, asked.interrupts[0].key.as_str()), (AgentOutcome::AwaitingApproval, "c1"));
        drop(agent);
        let (agent, _) = open(vec![superstep_testing::script::http(401, &[], "{}")]);
        let answers = Answers::new().answer("c1", Approval::Approve);
        let reply = agent.thread("t").answers(answers).resume().await.unwrap();
        assert_eq!((reply.outcome, kit.n("send"), kit.n("echo")), (AgentOutcome::LlmError, 1, 1));
        drop(agent);
        // From its last model call, not from the beginning, nor from the tools.
        let (agent, model) = open(vec![txt("ok")]);
        let reply = agent.thread("t").resume().await.unwrap();
        assert_eq!((reply.text.as_str(), kit.n("send"), model.requests().len()), ("ok", 1, 1));
        let state = agent.graph().thread("t").state().await.unwrap().values;
        assert_eq!(state.notes.len(), 3);
        valid(&state.agent);
    }
}

#[tokio::test]
async fn the_limit_of_a_turn_is_its_own_in_a_graph_with_more_nodes() {
    let (kit, echo) = (Kit::default(), |n: u32| call(&format!("c{n}"), "echo", &format!(r#"{{"x":"{n}"}}"#)));
    let model = model((0..5).map(echo).chain([txt("enough")]));
    let deps = deps(&model, &kit, &["echo"], preset());
    let agent = Agent::of(guarded(&deps), &deps.config);
    let reply = agent.without_thread().step_limit(3).ask("go").await.unwrap();
    assert_eq!((reply.outcome, reply.text.as_str()), (AgentOutcome::Limit, "enough"));
}

/// Builds a user's graph with the agent in it, on the state that it flattens.
fn inside(deps: AgentDeps) -> CompiledGraph<Desk> {
    let agent = react_graph_as::<Desk>(deps).compile().unwrap();
    let mut graph = StateGraph::<Desk>::new("office");
    let open = graph.add_node("open", async |desk: Desk, _: Cx| note(format!("open: {}", desk.topic)));
    let agent = graph.add_subgraph("assistant", &agent);
    let close = graph
        .add_node("close", async |desk: Desk, _: Cx| note(format!("closed: {}", desk.agent.final_reply)));
    graph.add_edge(START, open);
    graph.add_edge(open, agent);
    graph.add_edge(agent, close);
    graph.add_edge(close, END);
    graph.compile().unwrap()
}

/// The same with a state of its own.
#[derive(State, Clone, Debug, Default)]
struct Office {
    question: String,
    answer: String,
    steps: u32,
}

fn mapped(deps: AgentDeps) -> CompiledGraph<Office> {
    let agent = react_graph_as::<AgentState>(deps).compile().unwrap();
    let mut graph = StateGraph::<Office>::new("office");
    let agent = graph.add_subgraph_with(
        "assistant",
        &agent,
        |office: &Office| AgentState::update().messages([Message::user(&office.question)]),
        |agent: &AgentState| Office::update().answer(agent.final_reply.clone()).steps(agent.current_step),
    );
    graph.add_edge(START, agent);
    graph.add_edge(agent, END);
    graph.compile().unwrap()
}

fn asked(topic: &str) -> DeskUpdate {
    Desk::agent_update(AgentState::update().messages([Message::user("go")])).topic(topic)
}

on_every_store! {
    async fn an_agent_in_another_graph_asks_for_approval_through_it(backend: Backend) {
        let kit = Kit::default();
        let open = |answers: Vec<Answer>| {
            inside(deps(&model(answers), &kit, &["echo", "send"], preset())).with_checkpointer(backend.open())
        };
        let two = calls([("c1", "send", r#"{"to":"a"}"#), ("c2", "echo", r#"{"x":"1"}"#)]);
        let end = open(vec![two]).thread("t").run(asked("tea")).await.unwrap();
        assert_eq!(end.status, Status::Interrupted);
        let interrupt = &end.interrupts[0];
        assert_eq!(interrupt.key, "c1");
        assert!(interrupt.id.starts_with("assistant:") && interrupt.id.contains("/tools:"), "{}", interrupt.id);
        let graph = open(vec![txt("sent it")]);
        // One can look inside while it waits.
        let within = graph.thread("t").subgraph::<Desk>(["assistant"]).state().await.unwrap();
        assert_eq!((within.values.agent.llm_calls, within.next[0].as_str()), (1, "tools"));
        let answers = Answers::new().answer(interrupt.id.as_str(), Approval::Approve);
        let end = graph.thread("t").answers(answers).resume().await.unwrap();
        assert_eq!((end.status, kit.n("send"), kit.n("echo")), (Status::Completed, 1, 1));
        assert_eq!(end.state.notes, ["open: tea", "closed: sent it"].map(str::to_owned));
        assert_eq!(messages(&end.state.agent), ["User: go", "Assistant: ", "Tool: sent", "Tool: r:1", "Assistant: sent it"]);
        valid(&end.state.agent);
    }

    async fn an_agent_with_a_state_of_its_own_is_a_node_of_another_graph(backend: Backend) {
        let kit = Kit::default();
        let open = |answers: Vec<Answer>| {
            mapped(deps(&model(answers), &kit, &["send"], preset())).with_checkpointer(backend.open())
        };
        let question = Office::update().question("go");
        let end = open(vec![call("c1", "send", r#"{"to":"a"}"#)]).thread("t").run(question).await.unwrap();
        let answers = Answers::new().answer(end.interrupts[0].key.as_str(), Approval::Deny("no mail".into()));
        let end = open(vec![txt("as you like")]).thread("t").answers(answers).resume().await.unwrap();
        assert_eq!((end.state.answer.as_str(), end.state.steps, kit.n("send")), ("as you like", 1, 0));
    }
}

#[tokio::test]
async fn the_events_of_an_agent_in_another_graph_are_nested_and_its_steps_counted_by_themselves() {
    let (kit, echo) = (Kit::default(), |n: u32| call(&format!("c{n}"), "echo", &format!(r#"{{"x":"{n}"}}"#)));
    let model = model((0..4).map(echo).chain([txt("done")]));
    let graph = inside(deps(&model, &kit, &["echo"], preset()));
    let streaming = Streaming::from([StreamMode::Custom]).subgraphs();
    // Three supersteps outside, a dozen inside.
    let mut stream = graph.without_thread().step_limit(14).stream(asked("tea"), streaming);
    let mut starts = 0;
    while let Some(event) = stream.next().await {
        let json = serde_json::to_value(&event).unwrap();
        let nested = matches!(event, Event::Subgraph { .. });
        assert!(nested || json["type"] != "custom", "{json}");
        starts += usize::from(json.to_string().contains("tool_start"));
    }
    assert_eq!((starts, stream.outcome().await.unwrap().state.agent.final_reply.as_str()), (4, "done"));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_reaches_an_agent_in_another_graph_and_leaves_its_conversation_whole() {
    let (kit, model) =
        (Kit::default(), model([calls([("c1", "hang", "{}"), ("c2", "echo", r#"{"x":"1"}"#)])]));
    let graph = inside(deps(&model, &kit, &["hang", "echo"], preset()));
    let graph = graph.with_checkpointer(Arc::new(MemoryCheckpointer::new()));
    let config = t();
    let token = config.get_cancel().clone();
    let cancel = async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        token.cancel();
    };
    let (end, ()) = tokio::join!(graph.configured(config).run(asked("tea")), cancel);
    let end = end.unwrap();
    assert_eq!(end.status, Status::Cancelled);
    let end = graph.thread("t").resume().await.unwrap();
    assert_eq!(end.state.agent.outcome, Some(AgentOutcome::Cancelled));
    assert!(end.state.agent.messages.iter().any(|message| message.role == Role::Tool));
    valid(&end.state.agent);
    assert_eq!(end.state.notes.len(), 2);
}

#[tokio::test]
async fn a_node_of_ones_own_can_leave_the_agents_graph() {
    // The guard hands the conversation to a human of the outer graph, regardless of the agent's answer.
    #[derive(Route, Clone, Copy)]
    enum Out {
        Human,
    }
    let (kit, model) = (Kit::default(), model([]));
    let deps = deps(&model, &kit, &[], preset());
    let mut graph = StateGraph::<Desk>::new("react");
    let nodes = ReactNodes::add(&mut graph, &deps);
    let guard = graph.add_node("guard", async |_: Desk, cx: Cx| -> DeskUpdate {
        cx.leave(Command::<Desk, Out>::update(note("left")).goto(Out::Human)).await
    });
    begin(&mut graph, nodes, guard);
    graph.add_edge(guard, nodes.agent);
    graph.add_conditional_edges(nodes.agent, should_continue, |next| nodes.target(next));
    graph.add_edge(nodes.tools, nodes.agent);
    let react = graph.compile().unwrap();

    let mut graph = StateGraph::<Desk>::new("office");
    let assistant = graph.add_routing_subgraph::<Out>("assistant", &react);
    let human = graph.add_node("human", async |_: Desk, _: Cx| note("a human"));
    graph.add_edge(START, assistant);
    graph.add_routes(assistant, |Out::Human| human);
    let end = graph.compile().unwrap().run(asked("tea")).await.unwrap();
    assert_eq!(end.state.notes, ["left", "a human"].map(str::to_owned));
    assert_eq!(json!(end.state.agent.llm_calls), json!(0));
}

#[tokio::test]
async fn a_tool_reads_and_writes_the_channels_of_ones_own_state() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Note {
        text: String,
    }
    let jot = tool_fn(ToolSpec::of::<Note>("jot", "Notes something."), |args: Note, cx: ToolCx| async move {
        let topic = cx.extension::<Desk>()?.topic.clone();
        let known = cx.extension::<AgentState>()?.messages.len();
        Ok(ToolReply::text(format!("{known} messages")).with_update(note(format!("{topic}: {}", args.text))))
    });
    let meddle = tool_fn(ToolSpec::of::<Note>("meddle", "Ends the turn."), |_: Note, _: ToolCx| async move {
        Ok(ToolReply::text("done").with_update(Desk::update().agent(AgentState::update().stop(true))))
    });
    let note = r#"{"text":"x"}"#;
    let model = model([calls([("c1", "jot", note), ("c2", "meddle", note), ("c3", "jot", note)]), txt("ok")]);
    let tools: [Arc<dyn Tool>; 2] = [Arc::new(jot), Arc::new(meddle)];
    let agent = Agent::builder(Arc::new(model)).tools(tools).config(preset()).build_as::<Desk>().unwrap();
    let state = agent.without_thread().run(agent.input("go").topic("tea")).await.unwrap().state;
    assert_eq!(state.notes, ["tea: x", "tea: x"].map(str::to_owned));
    let results: Vec<_> = state.agent.tool_result_history.iter().cloned().collect();
    assert_eq!((results[0].as_str(), results[2].as_str()), ("2 messages", "2 messages"));
    assert!(
        results[1].contains("the tool writes channel `stop`, which is the agent's own"),
        "{}",
        results[1]
    );
    assert_eq!(state.agent.final_reply, "ok");
}
