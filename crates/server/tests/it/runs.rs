//! Runs: background, joins, cancellation, and several at a time.

use reqwest::Method;
use serde_json::{Value, json};
use superstep_graph::{
    Cx, END, JsonChannels, JsonState, JsonUpdate, Log, START, State, StateGraph, state::JsonReducer,
};
use superstep_server::Server;

use crate::{
    graphs,
    support::{Reader, TestServer, names, serve, start},
};

/// Begins a run that waits at a gate, and returns it once it does.
async fn gated(server: &TestServer, thread: &str, gate: &str, more: Value) -> String {
    let mut body = json!({ "assistant_id": "gate", "input": { "gate": gate }, "durability": "sync" });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let run =
        server.post(&format!("/threads/{thread}/runs"), body).await["run_id"].as_str().unwrap().to_owned();
    at_gate(server, thread, &run).await;
    run
}

async fn at_gate(server: &TestServer, thread: &str, run: &str) {
    let stream = server.request(Method::GET, &format!("/threads/{thread}/runs/{run}/stream"));
    let mut reader = Reader::new(stream.header("last-event-id", "-1").send().await.unwrap());
    loop {
        let values = reader.until("values").await;
        if values.data["log"].as_array().and_then(|log| log.last()) == Some(&json!("before")) {
            return;
        }
    }
}

#[tokio::test]
async fn a_background_run_is_listed_and_joined() {
    let server = start().await;
    let thread = server.thread().await;
    let run = gated(&server, &thread, "background", json!({ "metadata": { "by": "ada" } })).await;
    let row = server.get(&format!("/threads/{thread}/runs/{run}")).await;
    assert_eq!(
        (&row["status"], &row["metadata"]["by"], &row["metadata"]["graph_id"]),
        (&json!("running"), &json!("ada"), &json!("gate"))
    );
    assert_eq!(row["kwargs"]["input"], json!({ "gate": "background" }));
    assert_eq!(server.get(&format!("/threads/{thread}")).await["status"], "busy");
    let response = server.request(Method::GET, &format!("/threads/{thread}/runs/{run}/join"));
    graphs::open("background");
    let response = response.send().await.unwrap();
    assert_eq!(response.headers()["content-location"], format!("/threads/{thread}/runs/{run}"));
    let values: Value = response.json().await.unwrap();
    assert_eq!(values["log"], json!(["before", "passed", "after"]));
    // Rows are final before a join answers.
    assert_eq!(server.get(&format!("/threads/{thread}/runs/{run}")).await["status"], "success");
    let thread_row = server.get(&format!("/threads/{thread}")).await;
    assert_eq!((&thread_row["status"], &thread_row["values"]), (&json!("idle"), &values));
    assert_eq!(server.get(&format!("/threads/{thread}/runs/{run}/join")).await, values);
    let listed = server.get(&format!("/threads/{thread}/runs?status=success&select=run_id")).await;
    assert_eq!(listed, json!([{ "run_id": run }]));
    assert_eq!(server.get(&format!("/threads/{thread}/runs?status=pending")).await, json!([]));
    assert_eq!(server.delete(&format!("/threads/{thread}/runs/{run}")).await, 204);
    assert_eq!(server.refused(Method::GET, &format!("/threads/{thread}/runs/{run}"), json!({})).await.0, 404);
}

#[tokio::test]
async fn wait_gives_values_questions_and_errors() {
    let server = start().await;
    let wait = async |assistant: &str, input: Value| {
        let thread = server.thread().await;
        let path = format!("/threads/{thread}/runs/wait");
        (server.post(&path, json!({ "assistant_id": assistant, "input": input })).await, thread)
    };
    assert_eq!(wait("counter", json!({ "n": 1 })).await.0, json!({ "n": 3, "log": ["one", "two"] }));
    let (asked, _) = wait("approve", json!({ "euros": 20 })).await;
    assert_eq!(asked["__interrupt__"][0]["value"], json!({ "euros": 20 }));
    let (failed, thread) = wait("fail", json!({})).await;
    assert_eq!(failed["__error__"]["error"], "NodeError");
    let row = server.get(&format!("/threads/{thread}")).await;
    assert_eq!((&row["status"], &row["error"]), (&json!("error"), &failed["__error__"]));
    assert_eq!(row["values"]["n"], 1);
    let state = server.get(&format!("/threads/{thread}/state")).await;
    assert_eq!(state["next"], json!(["boom"]));
    assert!(state["tasks"][0]["error"].as_str().unwrap().contains("boom"));
}

#[tokio::test]
async fn a_cancelled_run_leaves_its_thread_and_a_rollback_does_not() {
    let server = start().await;
    let thread = server.thread().await;
    let run = gated(&server, &thread, "cancelled", json!({})).await;
    let response =
        server.send(Method::POST, &format!("/threads/{thread}/runs/{run}/cancel?wait=1"), json!({})).await;
    assert_eq!((response.status().as_u16(), response.json::<Value>().await.unwrap()), (200, json!({})));
    assert_eq!(server.get(&format!("/threads/{thread}/runs/{run}")).await["status"], "interrupted");
    let row = server.get(&format!("/threads/{thread}")).await;
    assert_eq!((&row["status"], &row["error"]["error"]), (&json!("interrupted"), &json!("UserInterrupt")));
    let state = server.get(&format!("/threads/{thread}/state")).await;
    assert_eq!(state["next"], json!(["wait"]));
    let again =
        server.refused(Method::POST, &format!("/threads/{thread}/runs/{run}/cancel"), json!({})).await;
    assert_eq!(again, (404, "No runs found to cancel.".to_owned()));
    // On a thread with a past the state is as before, on a new one there is none.
    let run = gated(&server, &thread, "cancelled", json!({})).await;
    let response = server
        .send(Method::POST, &format!("/threads/{thread}/runs/{run}/cancel?action=rollback"), json!({}))
        .await;
    assert_eq!((response.status().as_u16(), response.text().await.unwrap()), (202, String::new()));
    gone(&server, &thread, &run).await;
    let after = server.get(&format!("/threads/{thread}/state")).await;
    assert_eq!((&after["values"], &after["next"]), (&state["values"], &state["next"]));
    let new = server.thread().await;
    let run = gated(&server, &new, "cancelled", json!({})).await;
    server.post(&format!("/threads/{new}/runs/{run}/cancel?action=rollback&wait=true"), json!({})).await;
    let row = server.get(&format!("/threads/{new}")).await;
    assert_eq!((&row["status"], &row["values"]), (&json!("idle"), &Value::Null));
    assert_eq!(server.get(&format!("/threads/{new}/state")).await["checkpoint"], Value::Null);
    gone(&server, &new, &run).await;
}

async fn gone(server: &TestServer, thread: &str, run: &str) {
    for _ in 0..2_000 {
        let path = format!("/threads/{thread}/runs/{run}");
        if server.request(Method::GET, &path).send().await.unwrap().status() == 404 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("run {run} stays");
}

#[tokio::test]
async fn four_strategies_for_a_busy_thread() {
    let server = start().await;
    let begin = async |thread: &str, strategy: &str| {
        let body =
            json!({ "assistant_id": "gate", "input": { "gate": strategy }, "multitask_strategy": strategy });
        server.send(Method::POST, &format!("/threads/{thread}/runs"), body).await
    };
    let thread = server.thread().await;
    let first = gated(&server, &thread, "enqueue", json!({})).await;
    let second: Value = begin(&thread, "enqueue").await.json().await.unwrap();
    let second = second["run_id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/threads/{thread}/runs/{second}")).await["status"], "pending");
    let rejected = begin(&thread, "reject").await;
    assert_eq!(rejected.status(), 409);
    assert_eq!(server.get(&format!("/threads/{thread}/runs")).await.as_array().unwrap().len(), 2);
    graphs::open("enqueue");
    graphs::open("enqueue");
    let end = server.get(&format!("/threads/{thread}/runs/{second}/join")).await;
    assert_eq!(end["log"].as_array().unwrap().len(), 6);
    assert_eq!(server.get(&format!("/threads/{thread}/runs/{first}")).await["status"], "success");

    let thread = server.thread().await;
    let first = gated(&server, &thread, "interrupt-first", json!({})).await;
    let second: Value = begin(&thread, "interrupt").await.json().await.unwrap();
    graphs::open("interrupt");
    let end =
        server.get(&format!("/threads/{thread}/runs/{}/join", second["run_id"].as_str().unwrap())).await;
    assert_eq!(server.get(&format!("/threads/{thread}/runs/{first}")).await["status"], "interrupted");
    assert_eq!(end["log"], json!(["before", "before", "passed", "after"]));

    let thread = server.thread().await;
    let first = gated(&server, &thread, "rollback-first", json!({})).await;
    let second: Value = begin(&thread, "rollback").await.json().await.unwrap();
    graphs::open("rollback");
    let end =
        server.get(&format!("/threads/{thread}/runs/{}/join", second["run_id"].as_str().unwrap())).await;
    assert_eq!(end["log"], json!(["before", "passed", "after"]));
    gone(&server, &thread, &first).await;
}

#[tokio::test]
async fn a_waiting_run_is_cancelled_at_once() {
    let server = start().await;
    let thread = server.thread().await;
    gated(&server, &thread, "queue", json!({})).await;
    let body = json!({ "assistant_id": "gate", "input": { "gate": "queue" } });
    let waiting =
        server.post(&format!("/threads/{thread}/runs"), body).await["run_id"].as_str().unwrap().to_owned();
    server.post(&format!("/threads/{thread}/runs/{waiting}/cancel?wait=1"), json!({})).await;
    assert_eq!(server.get(&format!("/threads/{thread}/runs/{waiting}")).await["status"], "interrupted");
    assert_eq!(server.get(&format!("/threads/{thread}")).await["status"], "busy");
    let response = server.send(Method::POST, "/runs/cancel", json!({ "status": "all" })).await;
    assert_eq!(response.status(), 204);
}

#[tokio::test]
async fn a_client_that_hangs_up_cancels_only_if_it_says_so() {
    let server = start().await;
    for (cancels, gate, status) in [("cancel", "hangup", "interrupted"), ("continue", "stays", "success")] {
        let thread = server.thread().await;
        let body = json!({ "assistant_id": "gate", "input": { "gate": gate }, "on_disconnect": cancels });
        let response = server.send(Method::POST, &format!("/threads/{thread}/runs/stream"), body).await;
        let mut reader = Reader::new(response);
        let run = reader.until("metadata").await.data["run_id"].as_str().unwrap().to_owned();
        at_gate(&server, &thread, &run).await;
        drop(reader);
        if cancels == "continue" {
            graphs::open(gate);
        }
        server.until(&thread, &run, status).await;
    }
}

#[tokio::test]
async fn a_delayed_run_is_pending_and_can_be_cancelled() {
    let server = start().await;
    let thread = server.thread().await;
    let body = json!({ "assistant_id": "counter", "input": {}, "after_seconds": 3600 });
    let run = server.post(&format!("/threads/{thread}/runs"), body.clone()).await["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(server.get(&format!("/threads/{thread}/runs/{run}")).await["status"], "pending");
    server.post(&format!("/threads/{thread}/runs/{run}/cancel?wait=1"), json!({})).await;
    assert_eq!(server.get(&format!("/threads/{thread}/runs/{run}")).await["status"], "interrupted");
    let mut soon = body;
    soon["after_seconds"] = json!(0.01);
    let end = server.post(&format!("/threads/{thread}/runs/wait"), soon).await;
    assert_eq!(end["n"], 2);
}

#[tokio::test]
async fn stateless_runs_leave_no_thread() {
    let server = start().await;
    let body = json!({ "assistant_id": "counter", "input": { "n": 1 } });
    assert_eq!(server.post("/runs/wait", body.clone()).await["n"], 3);
    let response = server.send(Method::POST, "/runs/stream", body.clone()).await;
    assert!(response.headers()["location"].to_str().unwrap().starts_with("/threads/"));
    assert_eq!(names(&crate::support::events(response).await), ["metadata", "values", "values", "values"]);
    assert_eq!(server.post("/threads/count", json!({})).await, 0);
    let mut kept = body.clone();
    kept["on_completion"] = "keep".into();
    server.post("/runs/wait", kept).await;
    let threads = server.post("/threads/search", json!({ "metadata": { "graph_id": "counter" } })).await;
    assert_eq!(threads[0]["values"]["n"], 3);
    let slow = json!({ "assistant_id": "gate", "input": { "gate": "batch" } });
    let runs = server.post("/runs/batch", json!([slow, slow])).await;
    assert_eq!(runs.as_array().unwrap().len(), 2);
    assert_eq!(runs[0]["kwargs"]["temporary"], true);
    let stream =
        server.request(Method::GET, &format!("/runs/{}/stream", runs[0]["run_id"].as_str().unwrap()));
    let stream = stream.header("last-event-id", "-1").send().await.unwrap();
    graphs::open("batch");
    graphs::open("batch");
    assert_eq!(crate::support::events(stream).await.len(), 5);
}

#[tokio::test]
async fn with_durability_exit_a_run_is_one_checkpoint() {
    let server = start().await;
    let thread = server.thread().await;
    let body = json!({ "assistant_id": "counter", "input": {}, "checkpoint_during": false });
    server.post(&format!("/threads/{thread}/runs/wait"), body).await;
    let history = server.get(&format!("/threads/{thread}/history")).await;
    assert_eq!(history[0]["values"]["n"], 2);
    // The input is stored before it runs.
    assert!(history.as_array().unwrap().len() <= 2, "{history}");
}

#[tokio::test]
async fn wrong_requests_are_refused_with_a_detail() {
    let server = start().await;
    let thread = server.thread().await;
    let path = format!("/threads/{thread}/runs/stream");
    for (body, word) in [
        (json!({ "assistant_id": "nobody", "input": {} }), "`counter`"),
        (json!({ "input": {} }), "assistant_id"),
        (json!({ "assistant_id": "counter", "input": { "n": "x" } }), "`n`"),
        (json!({ "assistant_id": "counter", "input": {}, "webhook": "http://127.0.0.1/" }), "webhook"),
        (json!({ "assistant_id": "counter", "multitask_strategy": "wait" }), "multitask_strategy"),
        (json!({ "assistant_id": "counter", "checkpoint_id": "x" }), "checkpoint_id"),
        (json!({ "assistant_id": "counter", "config": { "recursion_limit": 0 } }), "recursion_limit"),
        (json!({ "assistant_id": "counter", "after_seconds": -1 }), "after_seconds"),
        (json!([]), "invalid"),
    ] {
        let (status, detail) = server.refused(Method::POST, &path, body.clone()).await;
        assert!(status == 422 && detail.contains(word), "{body}: {status} {detail}");
    }
    let request = server.request(Method::POST, &path).body("{\"assistant_id\": ");
    assert_eq!(request.send().await.unwrap().status(), 422);
    let missing = json!({ "assistant_id": "counter", "input": {} });
    let (status, _) = server.refused(Method::POST, "/threads/none/runs", missing.clone()).await;
    assert_eq!(status, 404);
    let mut creates = missing;
    creates["if_not_exists"] = "create".into();
    assert_eq!(server.post("/threads/none/runs/wait", creates).await["n"], 2);
    let crons = server.refused(Method::POST, "/runs/crons/search", json!({})).await;
    assert_eq!(crons, (422, "crons are not supported".to_owned()));
    assert_eq!(server.refused(Method::GET, "/nowhere", json!({})).await.0, 404);
    assert_eq!(server.refused(Method::DELETE, "/ok", json!({})).await.0, 405);
}

/// The forms in which the libraries of LangChain send a message.
#[tokio::test]
async fn a_message_is_also_a_text_a_pair_or_an_object_of_langchain() {
    let server = start().await;
    let path = ["langchain_core", "messages", "HumanMessage"];
    let object = json!({ "lc": 1, "type": "constructor", "id": path, "kwargs": { "content": "hi" } });
    for given in [json!("hi"), json!(["hi"]), json!([["user", "hi"]]), json!([object]), object] {
        let body = json!({ "assistant_id": "chat", "input": { "messages": given.clone() } });
        let said = server.post("/runs/wait", body).await["messages"][0].clone();
        assert_eq!((&said["type"], &said["content"]), (&json!("human"), &json!("hi")), "{given}");
    }
    let body = json!({ "assistant_id": "chat", "input": { "messages": [["judge", "hi"]] } });
    let failed = server.post("/runs/wait", body).await["__error__"]["message"].clone();
    assert!(failed.as_str().unwrap().contains("an item is an object with an `id`"), "{failed}");
}

/// The first bytes of a PNG, in the form of LangChain's content blocks.
#[tokio::test]
async fn an_image_comes_back_in_the_form_that_pages_show() {
    let server = start().await;
    let image = json!({ "type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo=" });
    let message = |block: &Value| json!({ "type": "human", "id": "m1", "content": [{ "type": "text", "text": "this?" }, block] });
    let thread = server.thread().await;
    let run = |block: &Value| json!({ "assistant_id": "chat", "input": { "messages": [message(block)] } });
    server.post(&format!("/threads/{thread}/runs/wait"), run(&image)).await;
    let state = server.get(&format!("/threads/{thread}/state")).await;
    let url = json!({ "url": "data:image/png;base64,iVBORw0KGgo=" });
    let shown = json!([{ "type": "text", "text": "this?" }, { "type": "image_url", "image_url": url }]);
    assert_eq!(state["values"]["messages"][0]["content"], shown);
    for (block, expected) in [
        (
            json!({ "type": "image", "url": "https://example.org/a.png" }),
            "media by address are not supported; send their data",
        ),
        (json!({ "type": "video" }), "expected a text, an image, audio or a file"),
    ] {
        let (status, detail) = server.refused(Method::POST, "/runs/wait", run(&block)).await;
        assert_eq!((status, detail), (422, format!("messages.0.content.1: {expected}")));
    }
}

#[tokio::test]
async fn what_is_no_short_message_stays_as_it_is() {
    let channels = JsonChannels::new().with("messages", JsonReducer::LastValue);
    let mut graph = StateGraph::with_initial("inbox", JsonState::new(&channels).unwrap());
    let node = graph.add_node("node", async |_: JsonState, _: Cx| JsonUpdate::new());
    graph.add_edge(START, node);
    graph.add_edge(node, END);
    let server = serve(Server::new().graph("inbox", graph.compile().unwrap())).await;
    for given in [json!("3 unread"), json!(["hi"]), json!([["user", "hi"]]), Value::Null, json!(3)] {
        let body = json!({ "assistant_id": "inbox", "input": { "messages": given } });
        assert_eq!(server.post("/runs/wait", body).await["messages"], given);
    }
}

#[derive(State, Clone, Debug, Default)]
struct Notes {
    #[channel(append)]
    messages: Log<String>,
}

#[tokio::test]
async fn a_graph_whose_messages_are_texts_takes_them_as_they_are() {
    let mut graph = StateGraph::<Notes>::new("notes");
    let node = graph.add_node("node", async |_: Notes, _: Cx| Notes::update().messages(["noted"]));
    graph.add_edge(START, node);
    graph.add_edge(node, END);
    let server = serve(Server::new().graph("notes", graph.compile().unwrap())).await;
    let body = json!({ "assistant_id": "notes", "input": { "messages": ["hi"] } });
    assert_eq!(server.post("/runs/wait", body).await["messages"], json!(["hi", "noted"]));
    let body = json!({ "assistant_id": "notes", "input": { "messages": ["hi", 3] } });
    let (status, detail) = server.refused(Method::POST, "/runs/wait", body).await;
    assert!(status == 422 && detail.contains("expected a string at `messages[1]`"), "{status} {detail}");
}
