//! The connection: hostile lines, its end, and what stdout has.

use std::time::Duration;

use serde_json::json;
use superstep_testing::script::{Answer, txt};
use tokio::time::timeout;

use super::editor::Editor;
use crate::support::{Place, serve};

/// A limit for an end that takes a second on an idle machine, and never comes if a turn holds it.
const SOON: Duration = Duration::from_secs(60);

#[tokio::test]
async fn hostile_lines_are_errors_and_the_next_turn_works() {
    let place = Place::new();
    let server = serve([txt("hello")]).await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let session = editor.new_session(&place).await;
    let deep = "[".repeat(1 << 20);
    let long = "x".repeat(33 << 20);
    let deep_params = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"session/new\",\"params\":{}1{}}}",
        "{\"a\":".repeat(10_000),
        "}".repeat(10_000)
    );
    let lines = ["no json", "[1,2]", &deep, &long, "{\"jsonrpc\":\"2.0\",\"id\":{}}", "\u{0}", &deep_params];
    for line in lines {
        editor.write(format!("{line}\n").as_bytes()).await;
        let error = editor.until(|line| line.get("error").is_some()).await;
        assert!(error["id"].is_null(), "{error}");
        let code = error["error"]["code"].as_i64().unwrap();
        assert!([-32700, -32600, -32602].contains(&code), "{error}");
    }
    editor.write(b"{\"jsonrpc\":\"2.0\",\"method\":\"no/such\"}\n\n{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":1}\n").await;
    assert_eq!(editor.agent["name"], "superstep");
    assert_eq!(editor.refused("no/such", json!({})).await["code"], -32601);
    let empty = json!({ "sessionId": session, "prompt": [] });
    assert_eq!(editor.refused("session/prompt", empty).await["code"], -32602);
    // It has no image's first bytes.
    let image = json!([{ "type": "image", "data": "AAAA", "mimeType": "image/png" }]);
    let image = json!({ "sessionId": session, "prompt": image });
    assert_eq!(editor.refused("session/prompt", image).await["code"], -32602);
    assert_eq!(editor.ask(&session, "hi", &[]).await.text(), "hello");
    assert_eq!(editor.end().await.code, Some(0));
}

#[tokio::test]
async fn the_program_ends_soon_while_a_turn_runs() {
    for is_signal in [false, true] {
        let place = Place::new();
        let server = serve([txt("hello"), Answer::stream().text(["let me see"]).stall()]).await;
        let mut editor = Editor::start(&place, &server.base_url()).await;
        let session = editor.new_session(&place).await;
        // The first end of a turn loads the table of tokens, which takes a while without optimization.
        assert_eq!(editor.ask(&session, "go", &[]).await.text(), "hello");
        let prompt = editor.prompt(&session, "go").await;
        editor.said("let me see").await;
        match is_signal {
            true => editor.signal("TERM"),
            false => editor.leave(),
        }
        assert_eq!(editor.response(prompt).await["result"]["stopReason"], "cancelled");
        let status = timeout(SOON, editor.child.wait()).await.expect("it ends").unwrap();
        assert_eq!(status.code(), Some(0));
    }
}

#[tokio::test]
async fn a_missing_model_is_named() {
    for capabilities in [json!({ "session": { "notices": {} } }), json!({})] {
        let place = Place::new();
        let command = place.command(&["acp", "--no-memory", "--log", "debug"]);
        let mut editor = Editor::with(command, capabilities).await;
        let session = editor.new_session(&place).await;
        let turn = editor.ask(&session, "1 + 1", &[]).await;
        assert!(turn.updates.iter().any(|update| update.to_string().contains("OPENAI_BASE_URL")), "{turn:?}");
        assert!(editor.end().await.stderr.contains("DEBUG"), "logs are on stderr");
    }
}

#[tokio::test]
async fn a_failing_model_is_an_error_that_continue_repeats() {
    let place = Place::new();
    let server = serve([superstep_testing::script::http(401, &[], "no such key"), txt("now")]).await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let session = editor.new_session(&place).await;
    let error = editor.ask(&session, "go", &[]).await.end.unwrap_err();
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32603), &json!("llm_error")), "{error}");
    assert_eq!(editor.ask(&session, "/continue", &[]).await.text(), "now");
    server.check().unwrap();
}
