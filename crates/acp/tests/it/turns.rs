//! Prompts and their cancellation.

use serde_json::{Value, json};

use crate::editor::Editor;

#[tokio::test(start_paused = true)]
async fn a_cancel_right_behind_the_prompt_hits_it() {
    let mut editor = Editor::start().await;
    for text in ["never end", "hello"] {
        let id = editor.prompt_and_cancel("s1", text).await;
        let response = editor.next().await;
        assert_eq!(
            (&response["id"], &response["result"]),
            (&json!(id), &json!({ "stopReason": "cancelled" }))
        );
        editor.log.take();
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_is_never_an_error_and_its_updates_arrive_first() {
    let mut editor = Editor::start().await;
    let id = editor.prompt("s1", "wait").await;
    assert_eq!(editor.next_text().await, "waiting");
    editor.notify("session/cancel", json!({ "sessionId": "other" })).await;
    editor.expect_silence().await;
    editor.notify("session/cancel", json!({ "sessionId": "s1" })).await;
    assert_eq!(editor.next_text().await, "stopped");
    let response = editor.next().await;
    assert_eq!((&response["id"], &response["result"]["stopReason"]), (&json!(id), &json!("cancelled")));
    assert_eq!(response["result"]["_meta"]["superstep"]["checkpoint"], 7);
    let id = editor.prompt("s1", "wait, then fail").await;
    editor.expect_silence().await;
    editor.notify("$/cancel_request", json!({ "requestId": id })).await;
    let response = editor.next().await;
    assert_eq!((&response["id"], &response["result"]), (&json!(id), &json!({ "stopReason": "cancelled" })));
    editor.expect_silence().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_an_idle_session_does_not_hit_the_next_prompt() {
    let mut editor = Editor::start().await;
    editor.notify("session/cancel", json!({ "sessionId": "s1" })).await;
    editor.prompt("s1", "hello").await;
    assert_eq!(editor.next_text().await, "hello");
    assert_eq!(editor.next().await["result"]["stopReason"], "end_turn");
}

#[tokio::test(start_paused = true)]
async fn a_second_prompt_cancels_the_first_and_a_cancel_meanwhile_does_not_hit_it() {
    let mut editor = Editor::start().await;
    editor.log.take();
    let first = editor.prompt("s1", "clean up for 1 s").await;
    editor.expect_silence().await;
    let skipped = editor.prompt("s1", "skipped").await;
    let last = editor.prompt("s1", "last").await;
    editor.notify("session/cancel", json!({ "sessionId": "s1" })).await;
    let other = editor.prompt("s2", "other").await;
    let mut answers = Vec::new();
    let mut texts = Vec::new();
    while answers.len() < 4 {
        let line = editor.next().await;
        match line.get("id") {
            Some(id) => answers.push((id.as_i64().unwrap(), line["result"]["stopReason"].clone())),
            None => texts.push((line["params"]["update"]["content"]["text"].clone(), answers.len())),
        }
    }
    let expected = [(skipped, "cancelled"), (other, "end_turn"), (first, "cancelled"), (last, "end_turn")];
    assert_eq!(answers, expected.map(|(id, reason)| (id, json!(reason))));
    assert_eq!(
        texts,
        [(json!("other"), 1), (json!("last"), 3)],
        "the last prompt runs after the first is answered"
    );
    let log = ["prompt clean up for 1 s", "cancel s1", "prompt other", "prompt last"];
    assert_eq!(editor.log.take(), log, "the skipped prompt never runs");
}

#[tokio::test(start_paused = true)]
async fn an_invalid_prompt_does_not_cancel_the_running_turn() {
    let mut editor = Editor::start().await;
    editor.prompt("s1", "wait").await;
    assert_eq!(editor.next_text().await, "waiting");
    let empty = editor.call("session/prompt", json!({ "sessionId": "s1", "prompt": [] })).await;
    assert_eq!(empty["error"]["code"], -32602);
    editor.expect_silence().await;
}

#[tokio::test(start_paused = true)]
async fn closing_and_deleting_answer_the_prompts_first() {
    for (method, call) in [("session/close", "close s1"), ("session/delete", "delete s1")] {
        let mut editor = Editor::start().await;
        editor.log.take();
        let running = editor.prompt("s1", "clean up for 1 s").await;
        editor.expect_silence().await;
        let waiting = editor.prompt("s1", "waiting").await;
        let close = editor.request(method, json!({ "sessionId": "s1" })).await;
        editor.notify("session/cancel", json!({ "sessionId": "s1" })).await;
        let mut ids = Vec::new();
        for _ in 0..3 {
            let response = editor.next().await;
            ids.push(response["id"].as_i64().unwrap());
            let is_prompt = response["id"] != close;
            let expected = if is_prompt { json!({ "stopReason": "cancelled" }) } else { json!({}) };
            let result = response["result"].as_object().unwrap().iter().filter(|(name, _)| *name != "_meta");
            assert_eq!(
                result.map(|(name, value)| (name.clone(), value.clone())).collect::<Value>(),
                expected
            );
        }
        assert_eq!(ids, [waiting, running, close]);
        assert_eq!(editor.log.take(), ["prompt clean up for 1 s", "cancel s1", call]);
        editor.prompt("s1", "again").await;
        assert_eq!(editor.next_text().await, "again");
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_do_not_wait_for_each_other_and_prompts_leave_nothing_behind() {
    let mut editor = Editor::start().await;
    for session in 0..64 {
        editor.prompt(&format!("s{session}"), "wait").await;
        assert_eq!(editor.next_text().await, "waiting");
    }
    // More than the maximum number of unanswered requests.
    for n in 0..1500 {
        let id = editor.prompt("other", &format!("text {n}")).await;
        assert_eq!(editor.next_text().await, format!("text {n}"));
        assert_eq!(editor.next().await["id"], id);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_limit_are_refused_and_the_others_answered() {
    let mut editor = Editor::start().await;
    let mut ids = Vec::new();
    for _ in 0..1024 {
        ids.push(editor.request("session/new", json!({ "cwd": "/slow", "mcpServers": [] })).await);
    }
    let refused = editor.call("session/list", json!({})).await;
    assert_eq!(refused["error"]["data"], json!({ "reason": "busy" }));
    editor.notify("$/cancel_request", json!({ "requestId": ids[500] })).await;
    assert_eq!(editor.next().await["id"], ids[500]);
    assert!(editor.call("session/list", json!({})).await.get("result").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_can_still_cancel() {
    let mut editor = Editor::start().await;
    editor.log.take();
    let id = editor.prompt("s1", "flood").await;
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    editor.notify("session/cancel", json!({ "sessionId": "s1" })).await;
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    assert_eq!(editor.log.take(), ["prompt flood", "cancel s1", "cancelled"]);
    loop {
        let next = editor.next().await;
        if next.get("id").is_some() {
            assert_eq!((&next["id"], &next["result"]["stopReason"]), (&json!(id), &json!("cancelled")));
            break;
        }
    }
}
