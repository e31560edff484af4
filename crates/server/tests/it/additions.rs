//! The fields that newer clients use: parts of states, excluded threads, sizes, the reason of a cancellation, strict answers.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{self, names, start};

#[tokio::test]
async fn a_client_selects_parts_of_states() {
    let server = start().await;
    let thread = server.thread().await;
    let run = json!({ "assistant_id": "counter", "input": { "n": 1 } });
    server.post(&format!("/threads/{thread}/runs/wait"), run).await;
    let path = format!("/threads/{thread}/state");
    let part = json!({ "values": { "n": 3 }, "next": [] });
    assert_eq!(server.get(&format!("{path}?select=values.n&select=next")).await, part);
    let whole = server.get(&path).await;
    let at = whole["checkpoint_id"].as_str().unwrap();
    assert_eq!(server.get(&format!("{path}/{at}?select=values.n&select=next")).await, part);
    let body = json!({ "checkpoint": { "checkpoint_id": at }, "select": ["values.n", "next"] });
    assert_eq!(server.post(&format!("{path}/checkpoint"), body).await, part);
    let history = format!("/threads/{thread}/history");
    let search = json!({ "limit": 1, "select": ["values.n", "next"] });
    assert_eq!(server.post(&history, search).await, json!([part]));
    assert_eq!(server.get(&format!("{history}?limit=1&select=values.n&select=next")).await, json!([part]));
    for path in [format!("{path}?select=value"), format!("{history}?select=value")] {
        assert_eq!(server.refused(Method::GET, &path, json!({})).await.0, 422);
    }
    assert_eq!(server.refused(Method::POST, &history, json!({ "select": ["value"] })).await.0, 422);
}

#[tokio::test]
async fn threads_with_some_metadata_are_left_out() {
    let server = start().await;
    for kind in ["a", "b", "c"] {
        server.post("/threads", json!({ "metadata": { "kind": kind } })).await;
    }
    let count =
        async |excluded: Value| server.post("/threads/count", json!({ "exclude_metadata": excluded })).await;
    assert_eq!(count(json!({ "kind": "a" })).await, 2);
    assert_eq!(count(json!([{ "kind": "a" }, { "kind": "c" }])).await, 1);
    assert_eq!(count(Value::Null).await, 3);
    for wrong in [json!({}), json!([]), json!([{}]), json!("a")] {
        let body = json!({ "exclude_metadata": wrong });
        assert_eq!(server.refused(Method::POST, "/threads/search", body).await.0, 422);
    }
}

#[tokio::test]
async fn the_size_of_a_thread_is_that_of_its_checkpoints_and_values() {
    let server = start().await;
    let thread = server.thread().await;
    let path = format!("/threads/{thread}/storage");
    assert_eq!(server.get(&path).await["total_bytes"], 0);
    let run = json!({ "assistant_id": "counter", "input": { "n": 1 }, "durability": "sync" });
    server.post(&format!("/threads/{thread}/runs/wait"), run).await;
    let size = server.get(&path).await;
    assert_eq!(size["thread_id"], thread);
    assert_eq!(size["checkpoints"]["count"], 4);
    // 3, 2, 1 and 0; each of one byte.
    assert_eq!(size["channel_values"]["by_channel"]["n"], json!({ "versions": 4, "bytes": 4 }));
    assert_eq!(server.refused(Method::GET, "/threads/none/storage", json!({})).await.0, 404);
}

#[tokio::test]
async fn a_cancelled_run_has_the_reason() {
    let server = start().await;
    let thread = server.thread().await;
    let body = json!({ "assistant_id": "gate", "input": { "gate": "a reason" } });
    let run = server.post(&format!("/threads/{thread}/runs"), body).await;
    assert_eq!(run["cancel_reason"], Value::Null);
    let run = format!("/threads/{thread}/runs/{}", run["run_id"].as_str().unwrap());
    server.post(&format!("{run}/cancel?wait=true"), json!({})).await;
    let reason = "interrupt requested via POST /threads/{thread_id}/runs/{run_id}/cancel";
    assert_eq!(server.get(&run).await["cancel_reason"], reason);
    let selected = server.get(&format!("/threads/{thread}/runs?select=cancel_reason")).await;
    assert_eq!(selected, json!([{ "cancel_reason": reason }]));
}

#[tokio::test]
async fn a_strict_answer_to_an_unknown_question_fails() {
    let server = start().await;
    let thread = server.thread().await;
    let path = format!("/threads/{thread}/runs/wait");
    server.post(&path, json!({ "assistant_id": "approve", "input": { "euros": 1 } })).await;
    let command = json!({ "resume": { "unknown": "yes" } });
    let strict = json!({ "assistant_id": "approve", "command": command, "strict_resume": true });
    assert_eq!(server.post(&path, strict).await["__error__"]["error"], "UnknownInterruptError");
    let answer = json!({ "assistant_id": "approve", "command": { "resume": "yes" }, "strict_resume": true });
    assert_eq!(server.post(&path, answer).await["verdict"], "yes");
}

#[tokio::test]
async fn events_are_those_of_the_graph_its_nodes_models_and_tools() {
    let server = start().await;
    let thread = server.thread().await;
    let input = json!({ "messages": [{ "role": "user", "content": "2+40?", "id": "h1" }] });
    let body = json!({ "assistant_id": "chat", "input": input, "stream_mode": "events" });
    let events = server.stream(&thread, body).await;
    let shown = events[1..].iter().map(|event| {
        let chunk = &event.data["data"]["chunk"];
        let piece = chunk["content"]
            .as_str()
            .map(|text| format!(" {text:?}{}", chunk["tool_call_chunks"].as_array().unwrap().len()));
        format!(
            "{} {}{}",
            event.data["event"].as_str().unwrap(),
            event.data["name"].as_str().unwrap(),
            piece.unwrap_or_default()
        )
    });
    let expected = [
        "on_chain_start chat",
        "on_chain_start model",
        "on_chat_model_start model",
        "on_chat_model_stream model \"Let me \"0",
        "on_chat_model_stream model \"add.\"0",
        "on_chat_model_stream model \"\"0",
        "on_chat_model_stream model \"\"1",
        "on_chat_model_stream model \"\"1",
        "on_chat_model_stream model \"\"1",
        "on_chat_model_end model",
        "on_chain_stream model",
        "on_chain_end model",
        "on_chain_start tools",
        "on_tool_start add",
        "on_tool_end add",
        "on_chain_stream tools",
        "on_chain_end tools",
        "on_chain_end chat",
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
    let calls = events.iter().map(|event| &event.data["data"]["chunk"]["tool_call_chunks"][0]);
    let calls: Vec<_> =
        calls.filter(|call| call.is_object()).map(|call| (&call["name"], &call["args"])).collect();
    let (add, none) = (json!("add"), Value::Null);
    assert_eq!(calls, [(&add, &json!("")), (&none, &json!("{\"a\":2")), (&none, &json!("}"))]);
    let of = |name: &str| &events.iter().find(|event| event.data["event"] == name).unwrap().data;
    let model = of("on_chat_model_end");
    assert_eq!(model["metadata"]["langgraph_node"], "model");
    assert_eq!(model["data"]["output"]["tool_calls"][0]["args"], json!({ "a": 2 }));
    let result = &of("on_tool_end")["data"]["output"];
    assert_eq!((&result["content"], &result["name"]), (&json!("42"), &json!("add")));
    assert_eq!(events.last().unwrap().data["data"]["output"]["messages"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn tools_come_by_their_calls() {
    let server = start().await;
    let thread = server.thread().await;
    let input = json!({ "messages": [{ "role": "user", "content": "2+40?" }] });
    let body = json!({ "assistant_id": "chat", "input": input, "stream_mode": ["tools"] });
    let events = server.stream(&thread, body).await;
    assert_eq!(names(&events), ["metadata", "tools", "tools"]);
    let begun = json!({ "event": "on_tool_start", "toolCallId": "c1", "name": "add", "input": { "a": 2 } });
    assert_eq!(events[1].data, begun);
    assert_eq!(
        (&events[2].data["event"], &events[2].data["output"]["content"]),
        (&json!("on_tool_end"), &json!("42"))
    );
}

#[tokio::test]
async fn a_stream_is_limited_to_namespaces() {
    let server = start().await;
    let thread = server.thread().await;
    let body = json!({ "assistant_id": "parent", "input": { "euros": 20 } });
    let path = format!("/threads/{thread}/runs/stream?namespace=child&namespace=other");
    let events = support::events(server.send(Method::POST, &path, body).await).await;
    assert_eq!(events[0].name, "metadata");
    assert!(events.len() > 1 && events[1..].iter().all(|event| event.name.starts_with("values|child:")));
}
