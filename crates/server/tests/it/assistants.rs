//! Assistants, and the shapes of graphs.

use insta::assert_snapshot;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::start;

#[tokio::test]
async fn each_graph_has_an_assistant_from_the_start() {
    let server = start().await;
    let found = server.post("/assistants/search", json!({ "graph_id": "counter", "limit": 1 })).await;
    let assistant = &found[0];
    assert_eq!(assistant["assistant_id"], "09d6caf4-2ef3-5a8b-b1a7-114690ed5d45");
    assert_eq!(
        (&assistant["name"], &assistant["metadata"]),
        (&json!("counter"), &json!({ "created_by": "system" }))
    );
    assert_eq!(server.get("/assistants/counter").await, *assistant);
    assert_eq!(server.get("/assistants/09d6caf4-2ef3-5a8b-b1a7-114690ed5d45").await, *assistant);
    assert_eq!(server.delete("/assistants/counter").await, 409);
    assert_eq!(server.post("/assistants/count", json!({})).await, 11);
}

#[tokio::test]
async fn an_assistant_has_versions() {
    let server = start().await;
    let new = json!({ "graph_id": "counter", "name": "Careful", "config": { "recursion_limit": 1 }, "context": { "tone": "dry" } });
    let first = server.post("/assistants", new).await;
    let id = first["assistant_id"].as_str().unwrap();
    assert_eq!((&first["version"], &first["config"]["configurable"]), (&json!(1), &json!({ "tone": "dry" })));
    // Its configuration is that of its runs.
    let failed = server.post("/runs/wait", json!({ "assistant_id": id, "input": {} })).await;
    assert_eq!(failed["__error__"]["error"], "GraphRecursionError");
    let changes = json!({ "config": { "recursion_limit": 9 }, "metadata": { "by": "ada" } });
    let second: Value =
        server.send(Method::PATCH, &format!("/assistants/{id}"), changes).await.json().await.unwrap();
    assert_eq!((&second["version"], &second["name"]), (&json!(2), &json!("Careful")));
    assert_eq!(server.post("/runs/wait", json!({ "assistant_id": id, "input": {} })).await["n"], 2);
    let versions = server.post(&format!("/assistants/{id}/versions"), json!({})).await;
    assert_eq!((&versions[0]["version"], &versions[1]["version"]), (&json!(2), &json!(1)));
    let back = server.post(&format!("/assistants/{id}/latest"), json!({ "version": 1 })).await;
    assert_eq!((&back["version"], &back["context"]), (&json!(1), &json!({ "tone": "dry" })));
    assert_eq!(server.post("/assistants/search", json!({ "name": "care" })).await[0]["assistant_id"], id);
    assert_eq!(server.delete(&format!("/assistants/{id}")).await, 204);
    assert_eq!(server.refused(Method::GET, &format!("/assistants/{id}"), json!({})).await.0, 404);
    let (status, detail) =
        server.refused(Method::POST, "/assistants", json!({ "graph_id": "nothing" })).await;
    assert!(status == 404 && detail.contains("`counter`"), "{detail}");
    assert_eq!(
        server
            .refused(Method::POST, "/assistants", json!({ "graph_id": "counter", "assistant_id": "x" }))
            .await
            .0,
        422
    );
}

#[tokio::test]
async fn a_graph_is_drawn_and_described() {
    let server = start().await;
    let graph = server.get("/assistants/parent/graph").await;
    let expanded = server.get("/assistants/parent/graph?xray=true").await;
    let schemas = server.get("/assistants/counter/schemas").await;
    assert_eq!(schemas["graph_id"], "counter");
    assert_eq!(schemas["input_schema"]["properties"]["n"]["type"], "integer");
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    assert_snapshot!(format!("{}\n{}", pretty(&graph), pretty(&expanded)));
    assert_eq!(server.get("/assistants/parent/subgraphs").await, json!({}));
    assert_eq!(server.get("/assistants/parent/subgraphs/child?recurse=true").await, json!({}));
}
