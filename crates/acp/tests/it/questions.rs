//! Requests of the agent.

use serde_json::{Value, json};

use crate::editor::Editor;

/// Returns the next request of the agent, after the updates before it.
async fn next_request(editor: &mut Editor) -> Value {
    loop {
        let line = editor.next().await;
        if line.get("id").is_some() {
            return line;
        }
    }
}

fn answer(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

#[tokio::test(start_paused = true)]
async fn each_answer_reaches_its_request_once() {
    let mut editor = Editor::start().await;
    editor.log.take();
    for (result, logged) in [
        (json!({ "outcome": { "outcome": "selected", "optionId": "allow_always" } }), "Some(Always) None"),
        (json!({ "outcome": { "outcome": "selected", "optionId": "forever" } }), "None None"),
        (json!({ "outcome": { "outcome": "cancelled" } }), "None None"),
        (
            json!({ "outcome": { "outcome": "selected", "optionId": "reject_once" }, "_meta": { "superstep": { "decision": "why" } } }),
            "Some(Reject) Some(String(\"why\"))",
        ),
        (json!(null), "invalid answer of the client: invalid type: null, expected struct PermissionResponse"),
        (json!({ "outcome": { "outcome": "else" } }), "invalid answer of the client: unknown variant `else`"),
    ] {
        let id = editor.prompt("s1", "change a").await;
        let request = next_request(&mut editor).await;
        assert_eq!(request["method"], "session/request_permission");
        editor.send(&answer(&json!("other"), json!({}))).await;
        editor.send(&answer(&request["id"], result)).await;
        editor.send(&answer(&request["id"], json!({ "outcome": { "outcome": "cancelled" } }))).await;
        assert_eq!(next_request(&mut editor).await["id"], id, "the response of the prompt");
        let log = editor.log.take();
        assert!(log.last().unwrap().starts_with(logged), "{log:?}");
    }
    editor.prompt("s1", "change a").await;
    let request = next_request(&mut editor).await;
    let error = json!({ "code": -32601, "message": "not supported" });
    editor.send(&json!({ "jsonrpc": "2.0", "id": request["id"], "error": error })).await;
    assert_eq!(next_request(&mut editor).await["result"]["stopReason"], "end_turn");
    assert_eq!(editor.log.take().last().unwrap(), "the client failed: not supported (-32601)");
}

#[tokio::test(start_paused = true)]
async fn forms_and_addresses_are_answered() {
    let mut editor = Editor::start().await;
    editor.log.take();
    editor.prompt("s1", "form").await;
    let form = editor.next().await;
    assert_eq!(form["params"]["mode"], "form");
    editor.send(&answer(&form["id"], json!({ "action": "accept", "content": { "name": "Ada" } }))).await;
    let url = editor.next().await;
    assert_eq!(url["params"]["mode"], "url");
    editor.send(&answer(&url["id"], json!({ "action": "decline" }))).await;
    assert_eq!(editor.next().await["params"], json!({ "elicitationId": "e1" }));
    assert_eq!(editor.next().await["result"]["stopReason"], "end_turn");
    let accepted = r#"Ok(Accept { content: Some({"name": String("Ada")}) })"#;
    assert_eq!(editor.log.take(), ["prompt form", accepted, "Ok(Decline)"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_cancels_its_question_and_waits_for_the_answer() {
    for (is_answered, logged) in [(true, "None None"), (false, "the request was cancelled")] {
        let mut editor = Editor::start().await;
        let prompt = editor.prompt("s1", "change a").await;
        let request = next_request(&mut editor).await;
        editor.log.take();
        let start = tokio::time::Instant::now();
        editor.notify("session/cancel", json!({ "sessionId": "s1" })).await;
        let cancel = editor.next().await;
        assert_eq!(
            (&cancel["method"], &cancel["params"]),
            (&json!("$/cancel_request"), &json!({ "requestId": request["id"] }))
        );
        let cancelled = answer(&request["id"], json!({ "outcome": { "outcome": "cancelled" } }));
        if is_answered {
            editor.send(&cancelled).await;
        }
        assert_eq!(editor.next().await["params"]["update"]["toolCallId"], "c1");
        assert_eq!(start.elapsed().as_secs(), if is_answered { 0 } else { 1 });
        let response = next_request(&mut editor).await;
        assert_eq!(
            (&response["id"], &response["result"]["stopReason"]),
            (&json!(prompt), &json!("cancelled"))
        );
        assert_eq!(editor.log.take(), ["cancel s1", logged]);
        editor.send(&cancelled).await;
        editor.expect_silence().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_given_up_is_cancelled() {
    let mut editor = Editor::start().await;
    editor.prompt("s1", "give up a question").await;
    let request = next_request(&mut editor).await;
    let cancel = editor.next().await;
    assert_eq!(
        (&cancel["method"], &cancel["params"]["requestId"]),
        (&json!("$/cancel_request"), &request["id"])
    );
    assert_eq!(editor.next().await["result"]["stopReason"], "end_turn");
}
