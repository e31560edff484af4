//! The end of a connection.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::editor::Editor;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn the_end_of_the_input_and_a_signal_cancel_and_answer_all_turns() {
    for is_signal in [false, true] {
        let mut editor = Editor::start().await;
        let prompts = [editor.prompt("s1", "wait").await, editor.prompt("s2", "wait").await];
        assert_eq!([editor.next_text().await, editor.next_text().await], ["waiting", "waiting"]);
        editor.log.take();
        let start = Instant::now();
        if is_signal {
            editor.signal()
        } else {
            editor.close()
        }
        let mut answered = Vec::new();
        while let Some(line) = editor.next_or_end().await {
            if let Some(id) = line["id"].as_i64() {
                assert_eq!(line["result"]["stopReason"], "cancelled");
                answered.push(id);
            }
        }
        answered.sort_unstable();
        assert_eq!(answered, prompts);
        assert_eq!(editor.log.take(), ["close all"]);
        assert_eq!(editor.end(start).await, Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_does_not_end_and_an_open_question_end_within_a_second() {
    let mut editor = Editor::start().await;
    editor.prompt("s1", "never end").await;
    editor.request("session/new", json!({ "cwd": "/slow", "mcpServers": [] })).await;
    editor.prompt("s2", "change a").await;
    while editor.next().await["method"] != "session/request_permission" {}
    editor.log.take();
    let start = Instant::now();
    editor.close();
    let (mut stop_reasons, log) = (Vec::new(), editor.log.clone());
    while let Some(line) = editor.next_or_end().await {
        stop_reasons.extend(line["result"].get("stopReason").cloned());
    }
    assert_eq!(stop_reasons, [json!("cancelled")], "of the turn with the question");
    let taken = editor.end(start).await;
    assert!(taken > Duration::ZERO && taken < SECOND, "{taken:?}");
    assert_eq!(log.take(), ["the client is gone", "close all"]);
}

#[tokio::test(start_paused = true)]
async fn a_broken_output_ends_the_connection() {
    let mut editor = Editor::start().await;
    editor.prompt("s1", "never end").await;
    let start = Instant::now();
    editor.stop_reading();
    editor.request("session/list", json!({})).await;
    assert!(editor.end(start).await < SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_does_not_stop_the_end() {
    let mut editor = Editor::start().await;
    editor.prompt("s1", "flood").await;
    tokio::time::sleep(10 * SECOND).await;
    let start = Instant::now();
    editor.close();
    assert!(editor.end(start).await < SECOND);
}
