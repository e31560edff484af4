//! The endpoints of A2A.

use std::{sync::Arc, time::Duration};

use reqwest::Method;
use serde_json::{Value, json};
use superstep_graph::{
    CompiledGraph, Cx, END, MemoryStore, START, State, StateGraph, Store, store::Namespace,
};
use superstep_server::{Keys, Limits, Server, User};
use tokio::sync::Semaphore;

use crate::{
    graphs,
    support::{TestServer, serve, start},
};

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

/// Waits until a task has this state.
async fn until(server: &TestServer, task: &Value, state: &str) {
    let mut seen = Value::Null;
    for _ in 0..1_000 {
        seen = call(server, "tasks/get", json!({ "id": task })).await;
        if seen["result"]["status"]["state"] == state {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the task is never {state}: {seen}");
}

fn data(context: &str, data: Value) -> Value {
    json!({ "messageId": "m", "contextId": context, "parts": [{ "data": data }] })
}

fn answer(task: &Value) -> Value {
    json!({ "messageId": "m", "taskId": task["id"], "parts": [{ "text": "yes" }] })
}

fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap_or_default()
}

#[derive(State, Clone, Debug, Default)]
struct Verdict {
    verdict: String,
}

/// A node that asks, and works with the answer until it may pass.
fn ask(gate: Arc<Semaphore>) -> CompiledGraph<Verdict> {
    let mut graph = StateGraph::<Verdict>::new("ask");
    let node = graph.add_node("ask", move |_: Verdict, cx: Cx| {
        let gate = gate.clone();
        async move {
            let verdict: String = cx.interrupt("ask", "Go?").await;
            gate.acquire().await.unwrap().forget();
            Verdict::update().verdict(verdict)
        }
    });
    graph.add_edge(START, node);
    graph.add_edge(node, END);
    graph.compile().unwrap()
}

#[tokio::test]
async fn a_task_is_the_run_that_answers_it() {
    let gate = Arc::new(Semaphore::new(0));
    let server = serve(Server::new().graph("ask", ask(gate.clone()))).await;
    let ask = async || send(&server, "ask", data("c", json!({}))).await["result"].clone();
    let seen =
        async |task: &Value| call(&server, "tasks/get", json!({ "id": task["id"] })).await["result"].clone();

    // Without the context, which the task has.
    let first = ask().await;
    let pass = async {
        until(&server, &first["id"], "working").await;
        gate.add_permits(1);
    };
    let (done, ()) = tokio::join!(send(&server, "ask", answer(&first)), pass);
    let done = &done["result"];
    assert_eq!((state(done), &done["id"], &done["contextId"]), ("completed", &first["id"], &json!("c")));

    // The question of a later task is not that of the first.
    let second = ask().await;
    assert_eq!((state(&seen(&first).await), state(&seen(&second).await)), ("completed", "input-required"));
    let cancel = async {
        until(&server, &second["id"], "working").await;
        call(&server, "tasks/cancel", json!({ "id": second["id"] })).await["result"].clone()
    };
    let (answered, canceled) = tokio::join!(send(&server, "ask", answer(&second)), cancel);
    for task in [&answered["result"], &canceled, &seen(&second).await] {
        assert_eq!((state(task), &task["id"]), ("canceled", &second["id"]), "{task}");
    }
}

#[tokio::test]
async fn a_task_fails_with_the_run_that_answers_it() {
    let server = start().await;
    let waits = send(&server, "two", data("c", json!({}))).await["result"].clone();
    assert_eq!(state(&waits), "input-required");
    // An answer to two questions at once.
    let failed = send(&server, "two", answer(&waits)).await["result"].clone();
    assert_eq!(state(&failed), "failed", "{failed}");
    let seen = call(&server, "tasks/get", json!({ "id": waits["id"] })).await["result"].clone();
    assert_eq!((state(&seen), &seen["status"]["message"]), ("failed", &failed["status"]["message"]));
}

#[tokio::test]
async fn an_answer_belongs_to_the_context_of_its_task() {
    let keys = Keys::new().user(User::new("alice"), "alice").user(User::new("bob"), "bob");
    let server = serve(graphs::all(Server::new()).authenticate(keys)).await;
    let send = async |key: &str, message: Value| {
        let call = json!({ "id": 1, "method": "message/send", "params": { "message": message } });
        let request = server.request(Method::POST, "/a2a/approve").header("x-api-key", key).json(&call);
        request.send().await.unwrap().json::<Value>().await.unwrap()
    };
    let waits = send("alice", data("c", json!({ "euros": 20 }))).await["result"].clone();
    let mut elsewhere = answer(&waits);
    elsewhere["contextId"] = json!("d");
    let of = |error: &Value| error["error"]["code"].clone();
    assert_eq!(of(&send("alice", elsewhere).await), -32602);
    assert_eq!(of(&send("alice", answer(&json!({ "id": "none" }))).await), -32001);
    assert_eq!(of(&send("bob", answer(&waits)).await), -32001);
    let done = send("alice", answer(&waits)).await["result"].clone();
    assert_eq!((state(&done), &done["contextId"]), ("completed", &json!("c")), "{done}");
}

/// Returns the run that a message began, once it has this status.
async fn run_of(server: &TestServer, context: &str, status: &str) -> Value {
    for _ in 0..1_000 {
        let answer = server.request(Method::GET, &format!("/threads/{context}/runs")).send().await.unwrap();
        let runs: Value = answer.json().await.unwrap();
        if runs[0]["status"] == status {
            return runs[0]["run_id"].clone();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no run of {context} is ever {status}");
}

#[tokio::test]
async fn who_waits_for_a_canceled_task_is_answered_so() {
    let server = start().await;
    let cancel = async {
        let run = run_of(&server, "c", "running").await;
        call(&server, "tasks/cancel", json!({ "id": run })).await["result"].clone()
    };
    let begin = send(&server, "gate", data("c", json!({ "gate": "a2a-cancel" })));
    let (answered, canceled) = tokio::join!(begin, cancel);
    assert_eq!((state(&answered["result"]), state(&canceled)), ("canceled", "canceled"), "{answered}");
}

#[tokio::test]
async fn a_cancellation_that_comes_too_late_is_answered_with_the_end() {
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let refuse = move |_, _| {
        let held = held.clone();
        async move {
            held.acquire().await.unwrap().forget();
            Err("not today".to_owned())
        }
    };
    let server = serve(graphs::all(Server::new()).admit(refuse)).await;
    let cancel = async {
        let run = run_of(&server, "c", "running").await;
        let until_ordered = async {
            let path = format!("/threads/c/runs/{}", run.as_str().unwrap());
            while server.get(&path).await["cancel_reason"].is_null() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            gate.add_permits(1);
        };
        tokio::join!(call(&server, "tasks/cancel", json!({ "id": run })), until_ordered).0
    };
    let begin = send(&server, "counter", data("c", json!({ "n": 1 })));
    let (answered, canceled) = tokio::join!(begin, cancel);
    assert_eq!((state(&answered["result"]), state(&canceled["result"])), ("failed", "failed"), "{canceled}");
}

#[tokio::test]
async fn who_waits_for_a_task_learns_that_the_server_stops() {
    let limits = || Limits { drain: Duration::from_millis(50), ..Limits::default() };
    let rows: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let server = || graphs::all(Server::new()).rows(rows.clone()).limits(limits());
    let stopped = serve(server()).await;
    let request = {
        let message = data("c", json!({ "gate": "a2a-stop" }));
        let call = json!({ "id": 7, "method": "message/send", "params": { "message": message } });
        tokio::spawn(stopped.request(Method::POST, "/a2a/gate").json(&call).send())
    };
    let run = run_of(&stopped, "c", "running").await;
    let body = json!({ "assistant_id": "gate", "input": { "gate": "a2a-stop" } });
    let next = stopped.post("/threads/c/runs", body).await["run_id"].clone();
    stopped.stop().await;
    let answer: Value = request.await.unwrap().unwrap().json().await.unwrap();
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(answer["error"]["code"] == -32603 && message.contains(run.as_str().unwrap()), "{answer}");

    // A cancellation that the stopping server only stored, of a run whose turn has not come.
    let namespace = Namespace::new(["superstep-server", "runs"]).unwrap();
    let key = format!("c/{}", next.as_str().unwrap());
    let mut row = rows.get(&namespace, &key).await.unwrap().unwrap().value;
    row["stop"] = json!("interrupt");
    rows.put(&namespace, &key, row).await.unwrap();
    let server = serve(server()).await;
    until(&server, &run, "working").await;
    let seen = call(&server, "tasks/get", json!({ "id": next })).await["result"].clone();
    assert_eq!(state(&seen), "canceled", "{seen}");
}
