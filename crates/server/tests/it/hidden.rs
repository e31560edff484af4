//! Channels that clients do not see.

use reqwest::Method;
use serde_json::json;
use superstep_server::{Server, ServerError};
use tokio::net::TcpListener;

use crate::{graphs, support::serve};

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
            "the server has no graph `other` whose channels could be hidden; add it with `Server::graph`",
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let refused = graphs::all(Server::new()).hide(graph, [channel]).serve(listener).await.unwrap_err();
        assert!(matches!(refused, ServerError::UnknownChannel { .. } | ServerError::UnknownGraph { .. }));
        assert_eq!(refused.to_string(), expected);
    }
}
