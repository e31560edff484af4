//! The endpoints of A2A.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{TestServer, start};

async fn send(server: &TestServer, assistant: &str, message: Value) -> Value {
    let call =
        json!({ "jsonrpc": "2.0", "id": 7, "method": "message/send", "params": { "message": message } });
    let answer = server.post(&format!("/a2a/{assistant}"), call).await;
    assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(7)));
    answer
}

fn words(text: &str) -> Value {
    json!({ "role": "user", "kind": "message", "messageId": "m1", "parts": [{ "kind": "text", "text": text }] })
}

#[tokio::test]
async fn a_card_leads_to_a_graph_that_replies() {
    let server = start().await;
    let (status, detail) = server.refused(Method::GET, "/.well-known/agent-card.json", Value::Null).await;
    assert_eq!((status, &*detail), (422, "assistant_id: this server has several graphs, name one"));
    let card = server.get("/.well-known/agent-card.json?assistant_id=chat").await;
    assert_eq!((&card["name"], &card["skills"][0]["id"]), (&json!("chat"), &json!("chat")));
    let place = card["url"].as_str().unwrap().strip_prefix(&server.url).unwrap().to_owned();
    let replied = send(&server, place.strip_prefix("/a2a/").unwrap(), words("2+40?")).await;
    let task = &replied["result"];
    assert_eq!((&task["kind"], &task["status"]["state"]), (&json!("task"), &json!("completed")), "{task}");
    assert_eq!(task["artifacts"][0]["parts"], json!([{ "kind": "text", "text": "Let me add." }]));

    // The context is a thread, on which the next message continues.
    let mut next = words("again");
    (next["contextId"], next["messageId"]) = (task["contextId"].clone(), json!("m2"));
    send(&server, "chat", next).await;
    let state = server.get(&format!("/threads/{}/state", task["contextId"].as_str().unwrap())).await;
    let said: Vec<_> =
        state["values"]["messages"].as_array().unwrap().iter().map(|message| &message["type"]).collect();
    assert_eq!(said, ["human", "ai", "tool", "human", "ai", "tool"]);
}

#[tokio::test]
async fn a_task_that_waits_is_answered_by_its_id() {
    let server = start().await;
    let mut begin = words("");
    begin["parts"] = json!([{ "kind": "data", "data": { "euros": 20 } }]);
    let waits = send(&server, "approve", begin).await["result"].clone();
    assert_eq!(waits["status"]["state"], "input-required", "{waits}");
    let asked = json!([{ "kind": "data", "data": { "euros": 20 } }]);
    assert_eq!(waits["status"]["message"]["parts"], asked);
    let mut answer = words("yes");
    (answer["contextId"], answer["taskId"]) = (waits["contextId"].clone(), waits["id"].clone());
    let done = send(&server, "approve", answer).await["result"].clone();
    assert_eq!((&done["id"], &done["status"]["state"]), (&waits["id"], &json!("completed")), "{done}");
    let result = json!({ "euros": 20, "sent": true, "verdict": "yes" });
    assert_eq!(done["artifacts"][0]["parts"], json!([{ "kind": "data", "data": result }]));
}

#[tokio::test]
async fn what_fails_or_is_not_supported_is_reported() {
    let server = start().await;
    let mut begin = words("");
    begin["parts"] = json!([{ "kind": "data", "data": { "n": 1 } }]);
    let failed = send(&server, "fail", begin).await["result"].clone();
    assert_eq!(failed["status"]["state"], "failed", "{failed}");
    let mut file = words("");
    file["parts"] = json!([{ "kind": "file", "file": {} }]);
    let error = json!({ "code": -32602, "message": "parts of the kind `file` are not supported" });
    assert_eq!(send(&server, "chat", file).await["error"], error);
    let unknown = server.post("/a2a/chat", json!({ "id": 1, "method": "tasks/get" })).await;
    assert_eq!(unknown["error"], json!({ "code": -32601, "message": "method `tasks/get` is not supported" }));
}
