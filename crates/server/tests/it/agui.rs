//! AG-UI: the order and the forms of events, questions and their answers.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{TestServer, start};

impl TestServer {
    /// Runs a graph, and returns the events.
    async fn agui(&self, graph: &str, body: Value) -> Vec<Value> {
        let mut input = json!({ "threadId": "t", "runId": "r", "messages": [], "tools": [], "context": [] });
        input.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        let response = self.send(Method::POST, &format!("/agui/{graph}"), input).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
        let text = response.text().await.unwrap();
        assert!(!text.contains('\r'), "the official client throws at a carriage return");
        text.split_terminator("\n\n")
            .map(|frame| serde_json::from_str(frame.strip_prefix("data: ").unwrap()).unwrap())
            .collect()
    }
}

/// Returns the types of events, with the field by which they differ.
fn types(events: &[Value]) -> Vec<String> {
    let shown = |event: &Value| {
        let more = ["stepName", "delta", "toolCallName", "content", "code"]
            .into_iter()
            .find_map(|field| event[field].as_str());
        format!("{} {}", event["type"].as_str().unwrap(), more.unwrap_or_default()).trim_end().to_owned()
    };
    events.iter().map(shown).collect()
}

#[tokio::test]
async fn a_run_is_steps_text_a_call_its_result_and_the_whole_conversation() {
    let server = start().await;
    let user = json!({ "id": "u1", "role": "user", "content": "2 + 40?" });
    let events = server.agui("chat", json!({ "messages": [user] })).await;
    assert_eq!(
        types(&events),
        [
            "RUN_STARTED",
            "STATE_SNAPSHOT",
            "STEP_STARTED model",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT Let me",
            "TEXT_MESSAGE_CONTENT add.",
            "TEXT_MESSAGE_END",
            "TOOL_CALL_START add",
            "TOOL_CALL_ARGS {\"a\":2",
            "TOOL_CALL_ARGS }",
            "TOOL_CALL_END",
            "STEP_FINISHED model",
            "STEP_STARTED tools",
            "TOOL_CALL_RESULT 42",
            "STEP_FINISHED tools",
            "MESSAGES_SNAPSHOT",
            "RUN_FINISHED",
        ]
    );
    assert_eq!(
        events[0],
        json!({ "type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0" })
    );
    let all = events[15]["messages"].as_array().unwrap();
    let authors: Vec<_> = all.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(authors, ["user", "assistant", "tool"]);
    assert_eq!((&all[0]["id"], &all[1]["id"]), (&json!("u1"), &events[3]["messageId"]));
    assert_eq!(all[1]["toolCalls"][0]["function"], json!({ "name": "add", "arguments": "{\"a\":2}" }));
    assert_eq!(events[16]["outcome"], json!({ "type": "success" }));

    // The client sends the whole conversation again, of which the thread has all but the last message.
    let mut again = all.clone();
    again.push(json!({ "id": "u2", "role": "user", "content": "and 3?" }));
    let events = server.agui("chat", json!({ "messages": again })).await;
    let all = events.iter().find(|event| event["type"] == "MESSAGES_SNAPSHOT").unwrap();
    assert_eq!(all["messages"].as_array().unwrap().len(), 6);
}

#[tokio::test]
async fn a_question_ends_the_run_and_its_answer_begins_the_next_one() {
    let server = start().await;
    let events = server.agui("approve", json!({ "state": { "euros": 9 } })).await;
    let outcome = &events.last().unwrap()["outcome"];
    assert_eq!(outcome["type"], "interrupt");
    let asked = &outcome["interrupts"][0];
    assert_eq!((&asked["reason"], &asked["metadata"]["value"]), (&json!("input"), &json!({ "euros": 9 })));
    let answer =
        |id: &Value| json!({ "resume": [{ "interruptId": id, "status": "resolved", "payload": "yes" }] });
    for wrong in [json!({}), answer(&json!("other"))] {
        let events = server.agui("approve", wrong).await;
        assert_eq!(types(&events), ["RUN_STARTED", "RUN_ERROR INVALID_RESUME"]);
    }
    let events = server.agui("approve", answer(&asked["id"])).await;
    assert_eq!(events.last().unwrap()["outcome"]["type"], "success");
    let state = events.iter().rfind(|event| event["type"] == "STATE_SNAPSHOT").unwrap();
    assert_eq!(state["snapshot"], json!({ "euros": 9, "verdict": "yes", "sent": true }));

    let events = server.agui("two", json!({ "threadId": "two" })).await;
    let asked = events.last().unwrap()["outcome"]["interrupts"].as_array().unwrap().clone();
    assert_eq!((asked.len(), asked[0]["message"].as_str()), (2, Some("left")));
    let answers: Vec<_> = asked
        .iter()
        .map(|asked| json!({ "interruptId": asked["id"], "status": "resolved", "payload": asked["message"] }))
        .collect();
    let events = server.agui("two", json!({ "threadId": "two", "resume": answers })).await;
    assert_eq!(events.last().unwrap()["outcome"]["type"], "success");
}

#[tokio::test]
async fn clients_before_the_first_version_are_shown_a_question_and_answer_it_by_a_command() {
    let server = start().await;
    let events = server.agui("approve", json!({ "state": { "euros": 9 } })).await;
    let asked = &events[events.len() - 2];
    assert_eq!((&asked["name"], &asked["value"]), (&json!("on_interrupt"), &json!("{\"euros\":9}")));
    let answer =
        json!({ "forwardedProps": { "command": { "resume": "yes", "interruptEvent": asked["value"] } } });
    let events = server.agui("approve", answer).await;
    let state = events.iter().rfind(|event| event["type"] == "STATE_SNAPSHOT").unwrap();
    assert_eq!(state["snapshot"], json!({ "euros": 9, "verdict": "yes", "sent": true }));
    // The command of an earlier answer is no input of a thread that waits for nothing.
    let said = json!([{ "id": "m1", "role": "user", "content": [
        { "type": "text", "text": "hi" },
        { "type": "image", "source": { "type": "data", "mimeType": "image/png", "value": "iVBORw0KGgo=" } },
    ] }]);
    let command =
        json!({ "threadId": "t2", "messages": said, "forwardedProps": { "command": { "resume": "yes" } } });
    let events = server.agui("chat", command).await;
    let snapshot = events.iter().rfind(|event| event["type"] == "MESSAGES_SNAPSHOT").unwrap();
    assert_eq!(snapshot["messages"][0], said[0]);
}

#[tokio::test]
async fn a_failure_is_the_last_event_and_what_is_no_run_is_refused() {
    let server = start().await;
    let events = server.agui("fail", json!({})).await;
    assert_eq!(types(&events).last().unwrap(), "RUN_ERROR NodeError");
    assert!(events.last().unwrap()["message"].as_str().unwrap().contains("boom"));
    assert_eq!(
        server
            .refused(Method::POST, "/agui/none", json!({ "threadId": "t", "runId": "r", "messages": [] }))
            .await
            .0,
        404
    );
    assert_eq!(server.refused(Method::POST, "/agui/chat", json!({ "threadId": 1 })).await.0, 422);
}
