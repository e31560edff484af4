//! Channels that clients do not see.

use std::sync::Arc;

use reqwest::{
    Method,
    header::{HeaderMap, HeaderName},
};
use serde::Deserialize;
use serde_json::{Value, json};
use superstep_graph::{
    Checkpointer, Cx, END, JsonChannels, JsonState, JsonUpdate, MemoryCheckpointer, START, StateGraph,
    erased::{JsonGraph, of_inputs},
    state::JsonReducer,
};
use superstep_llm::http::client_builder;
use superstep_server::{Server, ServerError};
use tokio::net::TcpListener;

use crate::{
    graphs,
    studio::{API, begun, settled},
    support::{TestServer, serve},
};

#[tokio::test]
async fn a_hidden_channel_is_in_no_answer() {
    let change = |options: superstep_graph::RunOptions| options.metadata("settings", "private");
    let server = serve(graphs::all(Server::new()).hide("counter", ["log"]).options(change)).await;
    let thread = server.thread().await;
    let modes = ["values", "updates", "tasks", "checkpoints", "debug"];
    let body = json!({
        "assistant_id": "counter", "input": { "n": 1 }, "stream_mode": modes, "stream_subgraphs": true, "metadata": { "mine": 1 },
    });
    let mut seen = vec![
        server
            .send(Method::POST, &format!("/threads/{thread}/runs/stream"), body.clone())
            .await
            .text()
            .await
            .unwrap(),
        server.post(&format!("/threads/{thread}/runs/wait"), body.clone()).await.to_string(),
    ];
    let input = json!({ "threadId": thread, "runId": "r", "messages": [], "state": {} });
    seen.push(server.send(Method::POST, "/agui/counter", input).await.text().await.unwrap());
    for path in ["state", "history"] {
        seen.push(server.get(&format!("/threads/{thread}/{path}")).await.to_string());
    }
    seen.push(server.get(&format!("/threads/{thread}")).await.to_string());
    seen.push(server.get("/assistants/counter/schemas").await["output_schema"].to_string());
    let run = server.get(&format!("/threads/{thread}/runs")).await[0]["run_id"].as_str().unwrap().to_owned();
    seen.push(server.get(&format!("/threads/{thread}/runs/{run}/join")).await.to_string());
    for (at, text) in seen.iter().enumerate() {
        assert!(text.contains("\"n\"") && !text.contains("\"log\""), "{at}: {text}");
        assert!(!text.contains("private"), "{at}: {text}");
    }
    // Nor can its value be found by a search.
    let search = json!({ "values": { "log": ["one", "two"] } });
    assert_eq!(server.post("/threads/search", search).await, json!([]));
    let oldest =
        server.get(&format!("/threads/{thread}/history")).await.as_array().unwrap().last().unwrap().clone();
    assert_eq!(oldest["metadata"]["mine"], 1, "{oldest}");
    // Other graphs are as they were.
    let body = json!({ "assistant_id": "two", "input": {} });
    assert_eq!(
        server.post(&format!("/threads/{}/runs/wait", server.thread().await), body).await["log"],
        json!([])
    );
}

#[tokio::test]
async fn a_channel_that_cannot_be_hidden_is_an_error_of_the_start() {
    for (graph, channel, expected) in [
        ("counter", "logs", "graph `counter` has no channel `logs` to hide; its channels are `log`, `n`"),
        (
            "other",
            "log",
            "the server has no graph `other` whose channels could be hidden, or which could have actions; add it with `Server::graph`",
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let refused = graphs::all(Server::new()).hide(graph, [channel]).serve(listener).await.unwrap_err();
        assert!(matches!(refused, ServerError::UnknownChannel { .. } | ServerError::UnknownGraph { .. }));
        assert_eq!(refused.to_string(), expected);
    }
}

/// The input of [`guarded`].
#[derive(Deserialize)]
struct Conversation {
    messages: Vec<Value>,
}

/// A graph like the served agent: clients write messages, and its rules are hidden.
fn guarded(prompt: &'static str) -> Arc<dyn JsonGraph> {
    let channels =
        JsonChannels::new().with("messages", JsonReducer::MergeById).with("rules", JsonReducer::LastValue);
    let mut graph = StateGraph::with_initial("guarded", JsonState::new(&channels).unwrap());
    let agent = graph.add_node("agent", move |state: JsonState, cx: Cx| async move {
        cx.compared("prompt", move || json!({ "system": prompt })).await;
        let id = format!("answer-{}", state.items("messages").count());
        let update = JsonUpdate::new()
            .write("messages", json!([{ "id": id, "role": "assistant", "content": "Yes." }]));
        match state.get("rules") {
            None | Some(Value::Null) => update.write("rules", json!(["ask private"])),
            Some(_) => update,
        }
    });
    graph.add_edge(START, agent);
    graph.add_edge(agent, END);
    of_inputs(graph.compile().unwrap(), |input: Conversation| {
        JsonUpdate::new().write("messages", json!(input.messages))
    })
}

/// Serves behind a key, which the client sends.
async fn locked(server: Server) -> TestServer {
    let mut server = serve(server.token("secret")).await;
    let headers = HeaderMap::from_iter([(HeaderName::from_static("x-api-key"), "secret".parse().unwrap())]);
    server.client = client_builder().unwrap().no_proxy().default_headers(headers).build().unwrap();
    server
}

fn hello() -> Value {
    json!({ "messages": [{ "id": "m", "role": "user", "content": "Hello." }], "rules": ["allow all"] })
}

#[tokio::test]
async fn the_studio_shows_hidden_channels_to_administrators_with_a_key_only() {
    let store = Arc::new(MemoryCheckpointer::new());
    let server = |prompt| {
        graphs::all(Server::new())
            .graph("guarded", guarded(prompt))
            .hide("guarded", ["rules"])
            .hide("counter", ["log"])
            .options(|options| options.metadata("settings", "private settings"))
            .checkpointer(store.clone() as Arc<dyn Checkpointer>)
    };
    let first = serve(server("private prompt")).await;
    begun(&first, "talk", "guarded", hello()).await;
    begun(&first, "count", "counter", json!({ "n": 1, "log": ["private log"] })).await;
    first.stop().await;
    // With another prompt, replays differ.
    let open = serve(server("another private prompt")).await;
    for (at, text) in studio(&open).await.iter().enumerate() {
        assert!(!text.contains("private"), "{at}: {text}");
    }
    for path in ["talk/at/3/value?channel=rules", "count/at/4/value?channel=log"] {
        let (status, _) = open.refused(Method::GET, &format!("{API}/threads/{path}"), Value::Null).await;
        assert_eq!(status, 404, "{path}");
    }
    let (status, _) = open.refused(Method::GET, &format!("{API}/threads/talk/case"), Value::Null).await;
    assert_eq!(status, 403);
    for (graph, channels) in [("guarded", json!(["messages"])), ("counter", json!(["n"]))] {
        let view = open.get(&format!("{API}/graphs/{graph}")).await;
        let names = view["channels"].as_array().unwrap().iter().map(|channel| channel["name"].clone());
        assert_eq!(Value::from_iter(names), channels);
    }
    let rows = open.get(&format!("{API}/threads/count/checkpoints?from=1&to=9")).await;
    assert_eq!((&rows["rows"][0]["title"], &rows["rows"][2]["wrote"]), (&json!("{\"n\":1}"), &json!(["n"])));
    // What another program stored is not shown, because its channels are unknown here.
    open.stop().await;
    let other = graphs::all(Server::new()).hide("approve", ["euros"]);
    let other = serve(other.checkpointer(store.clone() as Arc<dyn Checkpointer>)).await;
    assert_eq!(other.get(&format!("{API}/threads/talk")).await["line"]["title"], "{}");
    other.stop().await;
    let seen = studio(&locked(server("another private prompt")).await).await.join("\n");
    for hidden in ["ask private", "private log", "private settings", "another private prompt"] {
        assert!(seen.contains(hidden), "{hidden}: {seen}");
    }
}

#[tokio::test]
async fn a_case_of_a_graph_with_hidden_channels_is_for_administrators_with_a_key() {
    let graph = || Server::new().graph("guarded", guarded("private prompt")).hide("guarded", ["rules"]);
    let with_key = locked(graph()).await;
    begun(&with_key, "talk", "guarded", hello()).await;
    let case = with_key.get(&format!("{API}/threads/talk/case")).await;
    let accepted = with_key.post(&format!("{API}/cases/accept"), json!({ "text": case["text"] })).await;
    assert!(accepted["text"].as_str().unwrap().contains("private prompt"), "{accepted}");

    let open = serve(graph()).await;
    begun(&open, "talk", "guarded", hello()).await;
    for (path, body) in [("cases/accept", json!({ "text": case["text"] })), ("threads/talk/case", json!({}))]
    {
        let (status, detail) = open.refused(Method::POST, &format!("{API}/{path}"), body).await;
        assert_eq!(status, 403, "{path}: {detail}");
        assert!(detail.contains("a case has all channels of a thread"), "{path}: {detail}");
    }
}

/// Reads two threads by all requests of the studio.
async fn studio(server: &TestServer) -> Vec<String> {
    let mut seen = Vec::new();
    for path in ["/threads", "/inbox", "/threads?q=private", "/graphs/guarded"] {
        seen.push(server.get(&format!("{API}{path}")).await["threads"].to_string());
    }
    for (thread, values) in [("talk", json!({ "messages": [] })), ("count", json!({ "n": 1 }))] {
        let thread = format!("{API}/threads/{thread}");
        let view = server.get(&thread).await;
        let head = view["line"]["head"].as_u64().unwrap();
        seen.push(view.to_string());
        for path in ["overview", "checkpoints?from=1&to=9"] {
            seen.push(server.get(&format!("{thread}/{path}")).await.to_string());
        }
        for at in 1..=head {
            for part in ["", "/changes", "/messages"] {
                seen.push(server.get(&format!("{thread}/at/{at}{part}")).await.to_string());
            }
        }
        let update = json!({ "values": values, "at": 2, "dry_run": true });
        seen.push(server.post(&format!("{thread}/update"), update).await.to_string());
        seen.push(server.post(&format!("{thread}/replay"), json!({})).await.to_string());
    }
    seen.push(server.get(&format!("{API}/compare?a=talk@1&b=talk@3")).await.to_string());
    seen
}

#[tokio::test]
async fn writes_of_the_studio_have_the_inputs_of_the_graph_and_widen_no_rules() {
    let server = Server::new().graph("guarded", guarded("A prompt.")).hide("guarded", ["rules"]);
    let server = locked(server).await;
    let rules = async |at: u64| {
        let part = server.request(Method::GET, &format!("{API}/threads/talk/at/{at}/value?channel=rules"));
        part.send().await.unwrap().json::<Value>().await.unwrap()["value"]["preview"].clone()
    };
    let head = async || settled(&server, "talk").await["line"]["head"].as_u64().unwrap();
    begun(&server, "talk", "guarded", hello()).await;
    let asks = json!("[\"ask private\"]");
    assert_eq!((head().await, rules(2).await, rules(3).await), (3, json!("null"), asks.clone()));
    let path = |action: &str| format!("{API}/threads/talk/{action}");
    let mut update = json!({ "values": hello(), "as_node": "agent", "dry_run": true });
    let dry = server.post(&path("update"), update.clone()).await;
    assert_eq!(dry["changes"]["unchanged"], json!(["messages", "rules"]), "{dry}");
    update["dry_run"] = false.into();
    server.post(&path("update"), update.clone()).await;
    assert_eq!((head().await, rules(4).await), (4, asks.clone()));
    update["values"] = json!({ "rules": ["allow all"] });
    let (status, detail) = server.refused(Method::POST, &path("update"), update).await;
    assert_eq!(status, 422, "{detail}");
    // From a fork before the rules were written, and from an input.
    server.post(&path("fork"), json!({ "at": 2 })).await;
    assert_eq!((head().await, rules(5).await), (5, json!("null")));
    server.post(&path("run"), json!({ "input": null })).await;
    assert_eq!((head().await, rules(6).await), (6, asks.clone()));
    server.post(&path("run"), json!({ "input": hello() })).await;
    let last = head().await;
    assert_eq!((last > 6, rules(last).await), (true, asks));
    let (status, _) =
        server.refused(Method::POST, &path("run"), json!({ "input": { "rules": ["allow all"] } })).await;
    assert_eq!(status, 422);
}
