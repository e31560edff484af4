//! Notifications of servers: progress, logs, and changes of their tools.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::json;
use superstep::{
    Event, MemoryCheckpointer, StreamMode,
    agent::{Agent, AgentState, ReactConfig},
    llm::{ToolCx, ToolRegistry, tool, toolset::ToolSource},
    mcp::McpServer,
};
use superstep_testing::{
    script::{Answer, Script, call as call_of, calls, txt},
    scripted::ScriptedModel,
};

use super::{Small, call, tool as tool_of};

/// Returns the result of a call, and its events.
pub(super) async fn told(server: &McpServer, name: &str) -> (String, Vec<String>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = told.clone();
    let cx = ToolCx::new("c1").with_output(move |chunk| tells.lock().unwrap().push(chunk.to_owned()));
    let reply = tool_of(server, name).call(json!({"what": "x"}), cx).await.unwrap();
    let told = told.lock().unwrap().clone();
    (reply.text, told)
}

fn agent(server: &Arc<McpServer>, answers: impl IntoIterator<Item = Answer>) -> (Agent, ScriptedModel) {
    let model = ScriptedModel::new(Script::new(answers));
    let agent = Agent::builder(Arc::new(model.clone())).tool_source(server.clone());
    let agent = agent.config(ReactConfig { permissions: allowed(), ..ReactConfig::graph(9) });
    (agent.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap(), model)
}

pub(super) fn allowed() -> Vec<superstep::agent::config::PermissionRule> {
    vec![superstep::agent::config::PermissionRule::new("*", superstep::agent::config::Permit::Allow)]
}

#[tokio::test]
async fn progress_and_logs_are_output_of_the_call_unless_late() {
    let small = Small::new();
    let server = small.connect().await;
    let (text, told) = told(&server, "small_count").await;
    assert_eq!((text.as_str(), told.join("").as_str()), ("counted", "[1/2] one\n[info] half of it\n[2/2]\n"));
}

#[tokio::test]
async fn logs_between_calls_belong_to_the_next_call_or_the_listener() {
    let small = Small::new();
    let server = McpServer::connect("small", small.with("LOGS", "1")).await.unwrap();
    assert_eq!(told(&server, "small_say").await.1, ["[warning] disk nearly full\n"]);
    assert_eq!(server.logged(), [""; 0]);
    let server = McpServer::connect("small", small.with("LOGS", "1")).await.unwrap();
    assert_eq!(server.logged(), ["[warning] disk nearly full\n"]);
    assert_eq!(told(&server, "small_say").await.1, [""; 0]);
}

#[tokio::test]
async fn an_agent_streams_the_progress_of_a_call_as_its_output() {
    let small = Small::new();
    let server = Arc::new(small.connect().await);
    let (agent, _) = agent(&server, [call_of("c1", "small_count", "{}"), txt("done")]);
    let mut stream = agent.thread("t").stream(agent.input("go"), StreamMode::Custom);
    let mut told = Vec::new();
    while let Some(event) = stream.next().await {
        if let Event::<AgentState>::Custom { name, data, .. } = event
            && name.starts_with("tool_")
        {
            told.push(format!("{name} {} {}", data["id"], data["chunk"]));
        }
    }
    let wanted = [
        r#"tool_start "c1" null"#,
        r#"tool_output "c1" "[1/2] one\n""#,
        r#"tool_output "c1" "[info] half of it\n""#,
        r#"tool_output "c1" "[2/2]\n""#,
        r#"tool_end "c1" null"#,
    ];
    assert_eq!(told, wanted);
}

#[tokio::test]
async fn the_next_superstep_has_added_tools_and_a_round_retains_its_list() {
    let small = Small::new();
    let server = Arc::new(small.connect().await);
    let (agent, model) = agent(
        &server,
        [
            calls([("c1", "small_grow", "{}"), ("c2", "small_extra", "{}")]),
            call_of("c3", "small_extra", "{}"),
            call_of("c4", "small_die", "{}"),
            call_of("c5", "small_say", r#"{"what":"x"}"#),
            txt("done"),
        ],
    );
    agent.thread("t").ask("go").await.unwrap();
    let state = agent.graph().thread("t").state().await.unwrap().values;
    let results: Vec<_> = state.tool_result_history.iter().map(String::as_str).collect();
    assert_eq!((results[0], results[2]), ("grown", "extra work"));
    assert!(results[1].starts_with("Error: unknown tool 'small_extra'"), "{}", results[1]);
    // After a restart it has its initial tools; that is known after a call has started it.
    let extra = |tools: &[superstep::llm::ToolSpec]| tools.iter().any(|tool| tool.name == "small_extra");
    let seen: Vec<_> = model.requests().iter().map(|request| extra(&request.tools)).collect();
    assert_eq!(seen, [false, true, true, true, false]);
}

#[tokio::test]
async fn a_server_retains_its_tools_if_the_new_list_is_unusable() {
    let small = Small::new();
    let wanted = Some(vec!["grow".to_owned(), "say".to_owned()]);
    let config = superstep::mcp::McpConfig { tools: wanted, ..small.config() };
    let server = McpServer::connect("small", config).await.unwrap();
    call(&server, "small_grow", json!({})).await.unwrap();
    server.refresh().await;
    let names: Vec<_> = server.tools().iter().map(|tool| tool.spec().name.clone()).collect();
    assert_eq!(names, ["small_grow", "small_say"]);
    // There is no server to request from, and none is started for that.
    server.close().await;
    server.refresh().await;
    assert_eq!(server.tools().len(), 2);
    assert_eq!(small.seen().matches("started").count(), 1);
}

#[tokio::test]
async fn a_list_that_cannot_be_read_is_requested_again() {
    let small = Small::new();
    let server = small.connect().await;
    call(&server, "small_grow", json!({})).await.unwrap();
    std::fs::write(small.seen_file().with_extension("unlisted"), "").unwrap();
    server.refresh().await;
    let has = |name: &str| server.tools().iter().any(|tool| tool.spec().name == name);
    assert!(!has("small_extra"));
    server.refresh().await;
    assert!(has("small_extra"));
}

#[tokio::test]
async fn a_tool_that_cannot_be_used_is_left_out_unless_it_is_wanted() {
    let small = Small::new();
    let good = json!({"name": "good", "inputSchema": {"type": "object"}});
    let bad = json!({"name": "bad", "inputSchema": {"type": 7}});
    let large =
        json!({"name": "large", "inputSchema": {"type": "object", "description": "x".repeat(70_000)}});
    let listed = json!({"tools": [bad, good, large]}).to_string();
    let config = small.with("ODD", &listed);
    let server = McpServer::connect("small", config.clone()).await.unwrap();
    let names: Vec<_> = server.tools().iter().map(|tool| tool.spec().name.clone()).collect();
    assert_eq!(names, ["small_good"]);
    let told = server.logged();
    assert!(told[0].starts_with("[warning] tool `bad` cannot be used: "), "{told:?}");
    assert!(told[1].starts_with("[warning] tool `large` cannot be used: its schema has 70"), "{told:?}");
    let config = superstep::mcp::McpConfig { tools: Some(vec!["bad".to_owned()]), ..config };
    let error = McpServer::connect("small", config).await.unwrap_err().to_string();
    assert!(error.contains("does not list its tools: tool `bad` cannot be used"), "{error}");
}

#[tokio::test]
async fn a_server_with_too_many_tools_is_refused_on_its_only_page_too() {
    let small = Small::new();
    let tools: Vec<_> = (0..1_001).map(|n| json!({"name": format!("t{n}"), "inputSchema": {}})).collect();
    let config = small.with("ODD", &json!({ "tools": tools }).to_string());
    let error = McpServer::connect("small", config).await.unwrap_err().to_string();
    assert_eq!(error, "MCP server `small` does not list its tools: it has more than 1000");
}

/// A source that has a tool only after the first superstep.
#[derive(Default)]
struct Late(Mutex<Arc<ToolRegistry>>);

impl ToolSource for Late {
    fn tools(&self) -> Arc<ToolRegistry> {
        self.0.lock().unwrap().clone()
    }

    fn refresh(&self) -> superstep::llm::toolset::RefreshFuture<'_> {
        let mut tools = ToolRegistry::new();
        tools.insert(say()).unwrap();
        *self.0.lock().unwrap() = Arc::new(tools);
        Box::pin(async {})
    }
}

#[tokio::test]
async fn a_name_stays_with_its_source_when_another_source_gains_it() {
    let small = Small::new();
    let server = Arc::new(small.connect().await);
    let script = Script::new([call_of("c1", "small_say", r#"{"what":"x"}"#), txt("done")]);
    let agent = Agent::builder(Arc::new(ScriptedModel::new(script))).tool_source(Arc::new(Late::default()));
    let agent =
        agent.tool_source(server).config(ReactConfig { permissions: allowed(), ..ReactConfig::graph(9) });
    let agent = agent.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
    agent.thread("t").ask("go").await.unwrap();
    let state = agent.graph().thread("t").state().await.unwrap().values;
    let results: Vec<_> = state.tool_result_history.iter().map(String::as_str).collect();
    assert_eq!(results, ["x no key no greeting"]);
}

/// Says it differently.
#[tool(name = "small_say")]
async fn say() -> &'static str {
    "mine"
}

#[tokio::test]
async fn two_tools_of_one_name_are_rejected_for_any_sources() {
    let small = Small::new();
    let server = Arc::new(small.connect().await);
    let model = Arc::new(ScriptedModel::new(Script::new([])));
    let error = Agent::builder(model).tools([say()]).tool_source(server).build().map(drop).unwrap_err();
    assert!(error.to_string().starts_with("two tools are named `small_say`"), "{error}");
}
