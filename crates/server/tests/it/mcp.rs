//! The endpoint of the Model Context Protocol.

use std::sync::Arc;

use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use superstep_graph::{
    CompiledGraph, Cx, END, JsonChannels, JsonState, JsonUpdate, START, StateGraph,
    erased::{JsonGraph, of_inputs},
    state::JsonReducer,
};
use superstep_server::{Role, Server, User};

use crate::{
    graphs,
    support::{TestServer, events, serve, start},
};

async fn call(server: &TestServer, name: &str, arguments: Value) -> Value {
    let params = json!({ "name": name, "arguments": arguments });
    let call = json!({ "jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params });
    let answers = events(server.send(Method::POST, "/mcp", call).await).await;
    let [answer] = &*answers else { panic!("{answers:?}") };
    assert_eq!((&*answer.name, &answer.data["id"]), ("message", &json!("c")));
    answer.data["result"].clone()
}

#[tokio::test]
async fn a_client_initializes_and_calls_a_graph_on_a_thread_of_its_own() {
    let server = serve(graphs::all(Server::new()).hide("counter", ["log"])).await;
    let initialize = |version: &str| json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": version } });
    for (given, answered) in [("2025-06-18", "2025-06-18"), ("2999-01-01", "2025-11-25")] {
        let answer = server.post("/mcp", initialize(given)).await;
        assert_eq!((&answer["id"], &answer["result"]["protocolVersion"]), (&json!(0), &json!(answered)));
    }
    let notice = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(server.send(Method::POST, "/mcp", notice).await.status(), StatusCode::ACCEPTED);
    assert_eq!(
        server.request(Method::GET, "/mcp").send().await.unwrap().status(),
        StatusCode::METHOD_NOT_ALLOWED
    );
    let result = call(&server, "counter", json!({ "n": 5 })).await;
    // Hidden channels stay hidden.
    assert_eq!(result["structuredContent"], json!({ "n": 7 }));
    assert_eq!(server.post("/threads/count", json!({})).await, 0);
    let unknown = server.post("/mcp", json!({ "id": 1, "method": "resources/list" })).await;
    assert_eq!(
        unknown["error"],
        json!({ "code": -32601, "message": "method `resources/list` is not supported" })
    );
    let unknown = json!({ "id": 1, "method": "tools/call", "params": { "name": "none" } });
    assert_eq!(server.post("/mcp", unknown).await["error"]["message"], "unknown tool `none`");
}

#[derive(Deserialize)]
struct Conversation {
    messages: Vec<Value>,
}

#[tokio::test]
async fn an_agent_says_that_it_wants_messages() {
    let channels = JsonChannels::new().with("messages", JsonReducer::MergeById);
    let mut graph = StateGraph::with_initial("agent", JsonState::new(&channels).unwrap());
    let node = graph.add_node("node", async |_: JsonState, _: Cx| {
        JsonUpdate::new().write("messages", json!([{ "id": "a", "role": "assistant", "content": "Hello." }]))
    });
    graph.add_edge(START, node);
    graph.add_edge(node, END);
    let graph: CompiledGraph<JsonState> = graph.compile().unwrap();
    let agent: Arc<dyn JsonGraph> =
        of_inputs(graph, |input: Conversation| JsonUpdate::new().write("messages", json!(input.messages)));
    let server = serve(Server::new().graph("agent", agent)).await;
    let tools = server.post("/mcp", json!({ "id": 1, "method": "tools/list" })).await;
    let tool = &tools["result"]["tools"][0];
    assert_eq!(tool["inputSchema"]["properties"]["messages"]["type"], "array", "{tools}");
    assert_eq!(
        (&tool["name"], &tool["inputSchema"]["required"]),
        (&json!("agent"), &json!(["messages"])),
        "{tools}"
    );
    let words = json!({ "messages": [{ "role": "user", "content": "Hi" }] });
    assert_eq!(call(&server, "agent", words).await["content"], json!([{ "type": "text", "text": "Hello." }]));
    let refused = server
        .post(
            "/mcp",
            json!({ "id": 1, "method": "tools/call", "params": { "name": "agent", "arguments": {} } }),
        )
        .await;
    let text = refused["result"]["content"][0]["text"].as_str().unwrap();
    assert!(refused["result"]["isError"] == true && text.contains("messages"), "{refused}");
}

#[tokio::test]
async fn a_client_that_hangs_up_cancels_its_call() {
    let server = start().await;
    let params = json!({ "name": "gate", "arguments": { "gate": "mcp" } });
    let begin = json!({ "id": 1, "method": "tools/call", "params": params });
    let running = server.send(Method::POST, "/mcp", begin).await;
    let count = async || {
        let metrics = server.request(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
        metrics.contains("superstep_runs_running 1")
    };
    while !count().await {
        tokio::task::yield_now().await;
    }
    drop(running);
    while count().await {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_door_and_roles_apply() {
    let keys = superstep_server::Keys::new().user(User::new("carol").role(Role::Read), "carol");
    let server = serve(graphs::all(Server::new()).authenticate(keys)).await;
    let ping = json!({ "id": 1, "method": "ping" });
    assert_eq!(server.send(Method::POST, "/mcp", ping.clone()).await.status(), StatusCode::UNAUTHORIZED);
    let reads = server.request(Method::POST, "/mcp").header("x-api-key", "carol").json(&ping).send().await;
    assert_eq!(reads.unwrap().status(), StatusCode::FORBIDDEN);
    let server = start().await;
    let foreign =
        server.request(Method::POST, "/mcp").header("origin", "https://evil.example.org").json(&ping);
    assert_eq!(foreign.send().await.unwrap().status(), StatusCode::FORBIDDEN);
}
