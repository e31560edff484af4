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
    let error = json!({ "code": -32602, "message": "only parts with `text` or `data` are supported" });
    assert_eq!(send(&server, "chat", file).await["error"], error);
    let unknown = server.post("/a2a/chat", json!({ "id": 1, "method": "tasks/list" })).await;
    assert_eq!(
        unknown["error"],
        json!({ "code": -32601, "message": "method `tasks/list` is not supported" })
    );
}

async fn call(server: &TestServer, method: &str, params: Value) -> Value {
    let call = json!({ "jsonrpc": "2.0", "id": "1", "method": method, "params": params });
    server.post("/a2a/approve", call).await
}

#[tokio::test]
async fn clients_of_the_newer_version_find_their_names() {
    let server = start().await;
    // The place where clients that have the address of the calls look.
    let card = server.get("/a2a/approve/.well-known/agent-card.json").await;
    assert_eq!(card, server.get("/.well-known/agent-card.json?assistant_id=approve").await);
    let interfaces = card["supportedInterfaces"].as_array().unwrap();
    let versions: Vec<_> = interfaces.iter().map(|interface| &interface["protocolVersion"]).collect();
    assert_eq!(versions, ["1.0", "0.3"]);

    // Its clients send an integer so.
    let sent = json!([{ "data": { "euros": 20.0 } }]);
    let parts = json!([{ "data": { "euros": 20 } }]);
    let message =
        json!({ "messageId": "m1", "contextId": "", "taskId": "", "role": "ROLE_USER", "parts": sent });
    let waits = call(&server, "SendMessage", json!({ "message": message })).await["result"]["task"].clone();
    let status = &waits["status"];
    assert_eq!(status["state"], "TASK_STATE_INPUT_REQUIRED", "{waits}");
    assert_eq!((&status["message"]["role"], &status["message"]["parts"]), (&json!("ROLE_AGENT"), &parts));
    let (task, context) = (&waits["id"], &waits["contextId"]);
    let seen = call(&server, "GetTask", json!({ "id": task })).await["result"].clone();
    assert_eq!((&seen["id"], &seen["status"]["state"]), (task, &status["state"]), "{seen}");

    let message =
        json!({ "messageId": "m2", "contextId": context, "taskId": task, "parts": [{ "text": "yes" }] });
    let done = call(&server, "SendMessage", json!({ "message": message })).await["result"]["task"].clone();
    let result = json!([{ "data": { "euros": 20, "sent": true, "verdict": "yes" } }]);
    assert_eq!(
        (&done["status"]["state"], &done["artifacts"][0]["parts"]),
        (&json!("TASK_STATE_COMPLETED"), &result)
    );
    let seen = call(&server, "GetTask", json!({ "id": task })).await["result"].clone();
    assert_eq!((seen.get("kind"), &seen["artifacts"]), (None, &done["artifacts"]));
    let ended = call(&server, "CancelTask", json!({ "id": task })).await["error"].clone();
    assert_eq!(ended["code"], -32002, "{ended}");
    assert_eq!(call(&server, "tasks/get", json!({ "id": "none" })).await["error"]["code"], -32001);
}

#[tokio::test]
async fn a_task_that_works_is_canceled() {
    let server = start().await;
    let thread = server.thread().await;
    let body = json!({ "assistant_id": "gate", "input": { "gate": "a2a" } });
    let run = server.post(&format!("/threads/{thread}/runs"), body).await["run_id"].clone();
    server.until(&thread, run.as_str().unwrap(), "running").await;
    let works = call(&server, "tasks/get", json!({ "id": run })).await["result"].clone();
    assert_eq!((&works["kind"], &works["status"]["state"]), (&json!("task"), &json!("working")), "{works}");
    for method in ["tasks/cancel", "tasks/get"] {
        let canceled = call(&server, method, json!({ "id": run })).await["result"].clone();
        assert_eq!(canceled["status"]["state"], "canceled", "{method}: {canceled}");
    }
}
