//! Lines that are not messages.

use serde_json::{Value, json};

use crate::editor::Editor;

#[tokio::test(start_paused = true)]
async fn a_request_before_initialize_is_an_error() {
    let mut editor = Editor::connect();
    editor.notify("session/cancel", json!({ "sessionId": "s1" })).await;
    let early = editor.call("session/new", json!({ "cwd": "/a", "mcpServers": [] })).await;
    assert_eq!(early["error"]["code"], -32600);
    let invalid = editor.call("initialize", json!({ "protocolVersion": "one" })).await;
    assert_eq!(invalid["error"]["code"], -32602);
    assert_eq!(editor.call("session/list", json!({})).await["error"]["code"], -32600, "still");
    assert_eq!(
        editor.call("initialize", json!({ "protocolVersion": 2 })).await["result"]["protocolVersion"],
        1
    );
}

#[tokio::test(start_paused = true)]
async fn each_line_that_is_not_a_message_has_one_answer_and_the_next_line_counts() {
    let request = |id: &str, rest: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},{rest}}}"#);
    let list = r#""method":"session/list""#;
    let cases: &[(String, i64, Value)] = &[
        ("nonsense".into(), -32700, json!(null)),
        (r#"{"jsonrpc":"2.0","id":1,"#.into(), -32700, json!(null)),
        ("{} {}".into(), -32700, json!(null)),
        ("[".repeat(1_000_000), -32700, json!(null)),
        (format!("[{}]", request("1", list)), -32600, json!(null)),
        ("[]".into(), -32600, json!(null)),
        (r#"["2.0",1,"session/list",{},null,null]"#.into(), -32600, json!(null)),
        (format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000)), -32600, json!(null)),
        ("7".into(), -32600, json!(null)),
        ("null".into(), -32600, json!(null)),
        ("{}".into(), -32600, json!(null)),
        (request("1.5", list), -32600, json!(null)),
        (request("{}", list), -32600, json!(null)),
        (request("true", list), -32600, json!(null)),
        (request("9223372036854775808", list), -32600, json!(null)),
        (request("1", r#""id":2,"method":"session/list""#), -32600, json!(null)),
        (request("3", r#""method":7"#), -32600, json!(3)),
        (request("4", r#""params":{}"#), -32600, json!(4)),
        (r#"{"id":5,"method":"session/list"}"#.into(), -32600, json!(5)),
        (r#"{"jsonrpc":"1.0","method":"session/cancel"}"#.into(), -32600, json!(null)),
        (request("6", r#""method":"session/list","params":[1]"#), -32602, json!(6)),
        (request("7", r#""method":"session/list","params":7"#), -32602, json!(7)),
        (request("8", r#""method":"session/list","params":{"cwd":8}"#), -32602, json!(8)),
        (request("9", &format!(r#""method":"{}""#, "m".repeat(100_000))), -32601, json!(9)),
        (
            request(
                "10",
                &format!(r#""method":"session/list","params":{{"x":[{}0]}}"#, "0,".repeat(300_000)),
            ),
            -32602,
            json!(10),
        ),
        (
            request(
                "11",
                &format!(
                    r#""method":"session/list","params":{{"cwd":{}}}"#,
                    "[".repeat(100_000) + &"]".repeat(100_000)
                ),
            ),
            -32602,
            json!(11),
        ),
    ];
    let mut editor = Editor::start().await;
    for (line, code, id) in cases {
        editor.write(format!("{line}\n").as_bytes()).await;
        let response = editor.next().await;
        assert_eq!((&response["error"]["code"], &response["id"]), (&json!(code), id), "{line:.200}");
        assert!(response.to_string().len() < 500, "{line:.200}");
    }
    editor.write(b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\"}\n").await;
    assert_eq!(editor.next().await["error"]["code"], -32700, "not UTF-8");
    assert!(editor.call("session/list", json!({})).await.get("result").is_some());
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_may_be_nested_deeply() {
    let mut editor = Editor::start().await;
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    let params = format!(r#"{{"x":{deep},"_meta":null}}"#);
    editor
        .write(
            format!(r#"{{"jsonrpc":"2.0","id":"d","method":"authenticate","y":{deep},"params":{params}}}"#)
                .as_bytes(),
        )
        .await;
    editor.write(b"\n").await;
    assert_eq!(editor.next().await["id"], "d");
}

#[tokio::test(start_paused = true)]
async fn a_line_beyond_32_mib_is_skipped() {
    let mut editor = Editor::start().await;
    let block = vec![b'a'; 1 << 20];
    let begin = br#"{"jsonrpc":"2.0","id":1,"method":"session/list","params":{"cwd":""#;
    editor.write(begin).await;
    for _ in 0..32 {
        editor.write(&block).await;
    }
    editor.write(b"\"}}\n").await;
    let response = editor.next().await;
    let message = "a line has more than 33554432 bytes";
    assert_eq!(
        (&response["id"], &response["error"]),
        (&json!(null), &json!({ "code": -32600, "message": message }))
    );
    assert!(editor.call("session/list", json!({})).await.get("result").is_some());
}

#[tokio::test(start_paused = true)]
async fn blank_lines_unknown_notifications_and_unknown_responses_are_ignored() {
    let mut editor = Editor::start().await;
    editor.log.take();
    editor.write(b"\n  \r\n").await;
    editor.notify("session/unknown", json!({})).await;
    editor.notify("session/cancel", json!({ "sessionId": 7 })).await;
    editor.notify("session/new", json!({ "cwd": "/a" })).await;
    for id in [json!(0), json!(99), json!("x"), json!(null)] {
        editor.write(format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "result": null })).as_bytes()).await;
    }
    editor.expect_silence().await;
    assert_eq!(editor.log.take(), [] as [&str; 0]);
}
