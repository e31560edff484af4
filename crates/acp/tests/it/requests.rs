//! Requests other than prompts.

use serde_json::{Value, json};

use crate::editor::Editor;

#[tokio::test(start_paused = true)]
async fn an_absent_or_null_capability_counts_as_no() {
    let no = "{ fs: FileSystemCapabilities { read_text_file: false, write_text_file: false }, terminal: false, \
              session: ClientSessionCapabilities { compaction: false, notices: false }, \
              elicitation: ElicitationCapabilities { form: false, url: false } }";
    for capabilities in [
        json!(null),
        json!({}),
        json!({ "fs": null, "session": null, "elicitation": {}, "terminal": null }),
        json!({ "fs": 1, "session": { "notices": null, "compaction": true }, "elicitation": { "form": 1 } }),
        json!("wrong"),
    ] {
        let mut editor = Editor::connect();
        let params = json!({ "protocolVersion": 99, "clientCapabilities": capabilities, "clientInfo": 7 });
        let response = editor.call("initialize", params).await;
        assert_eq!(response["result"]["protocolVersion"], 1);
        assert_eq!(editor.log.take(), [format!("ClientCapabilities {no}")], "{capabilities}");
    }
    let mut editor = Editor::connect();
    let capabilities =
        json!({ "fs": { "readTextFile": true }, "session": { "notices": {} }, "elicitation": { "url": {} } });
    editor.call("initialize", json!({ "protocolVersion": 1, "clientCapabilities": capabilities })).await;
    let some = no
        .replacen("read_text_file: false", "read_text_file: true", 1)
        .replace("notices: false", "notices: true")
        .replace("url: false", "url: true");
    assert_eq!(editor.log.take(), [format!("ClientCapabilities {some}")]);
}

#[tokio::test(start_paused = true)]
async fn sessions_are_created_opened_listed_and_changed() {
    let mut editor = Editor::start().await;
    editor.log.take();
    let servers = json!([
        { "name": "my files", "command": "/bin/fs", "args": ["--key", "secret"], "env": [{ "name": "K", "value": "secret" }] },
        { "type": "http", "name": "web", "url": "https://secret.test", "headers": [] },
    ]);
    let new = editor.call("session/new", json!({ "cwd": "/a", "mcpServers": servers })).await;
    assert_eq!(
        (&new["result"]["sessionId"], &new["result"]["modes"]["currentModeId"]),
        (&json!("s1"), &json!("ask"))
    );
    assert_eq!(new["result"]["configOptions"][0]["type"], "select");
    let opened = json!({ "sessionId": "s1", "cwd": "/a", "mcpServers": null });
    let load = editor.request("session/load", opened.clone()).await;
    assert_eq!(editor.next_text().await, "stored", "before the response");
    assert_eq!(editor.next().await["id"], load);
    let unknown = editor.call("session/resume", json!({ "sessionId": "nope", "cwd": "/a" })).await;
    assert_eq!(
        unknown["error"],
        json!({ "code": -32002, "message": "unknown session `nope`", "data": { "uri": "nope" } })
    );
    let at = json!({ "sessionId": "s1", "cwd": "/a", "_meta": { "superstep": { "checkpoint": 3 } } });
    assert_eq!(editor.call("session/fork", at).await["result"]["sessionId"], "s2");
    assert_eq!(editor.call("session/list", json!({ "cursor": "50" })).await["result"]["nextCursor"], "50");
    let mode = json!({ "sessionId": "s1", "modeId": "auto" });
    assert_eq!(editor.call("session/set_mode", mode).await["result"], json!({}));
    for value in [json!({ "value": "auto" }), json!({ "type": "boolean", "value": true })] {
        let mut params = json!({ "sessionId": "s1", "configId": "mode" });
        params.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        let all = editor.call("session/set_config_option", params).await;
        assert_eq!(all["result"]["configOptions"][0]["currentValue"], "ask");
    }
    let steer = json!({ "sessionId": "s1", "prompt": [{ "type": "text", "text": "faster" }] });
    let steered = editor.call("_session/steering", steer).await;
    assert_eq!(steered["result"], json!({ "outcome": "startedNewTurn" }));
    assert_eq!(
        editor.log.take(),
        [
            r#"new [McpServer { name: "my files", .. }, McpServer { name: "web", .. }]"#,
            "fork at Some(Number(3))",
            "list None Some(\"50\")",
            "mode auto",
            "option mode Text(\"auto\")",
            "option mode Flag(true)",
            "steer faster",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn invalid_parameters_are_errors_that_name_the_problem() {
    let mut editor = Editor::start().await;
    let server = |server: Value| json!({ "cwd": "/a", "mcpServers": [server] });
    for (method, params, problem) in [
        ("session/new", json!({ "cwd": "a", "mcpServers": [] }), "`cwd` is not absolute"),
        ("session/new", json!({}), "missing field `cwd`"),
        ("session/new", json!(["/a", []]), "`params` is not an object"),
        ("session/new", server(json!({ "name": "x" })), "MCP server `x` has no `command`"),
        ("session/new", server(json!({ "name": "x", "type": "http" })), "MCP server `x` has no `url`"),
        (
            "session/new",
            server(json!({ "name": "x", "type": "sse", "url": "u" })),
            "has type `sse`; supported are",
        ),
        (
            "session/new",
            server(json!({ "name": "x", "command": "c", "args": "secret" })),
            "invalid type: string \"…\"",
        ),
        (
            "session/set_mode",
            json!({ "sessionId": "s", "modeId": { "secret": "secret" } }),
            "invalid type: map",
        ),
        ("session/prompt", json!({ "sessionId": 1, "prompt": [] }), "invalid type: integer `1`"),
        ("session/prompt", json!({ "sessionId": "s", "prompt": [] }), "the prompt is empty"),
        (
            "session/prompt",
            json!({ "sessionId": "s", "prompt": [{ "type": "video" }] }),
            "unknown variant `video`",
        ),
        ("authenticate", json!({ "methodId": "x" }), "no method of authentication"),
    ] {
        let response = editor.call(method, params).await;
        assert_eq!(response["error"]["code"], -32602, "{response}");
        let message = response["error"]["message"].as_str().unwrap();
        assert!(message.contains(problem) && !message.contains("secret"), "{message}");
    }
    let long = json!({ "sessionId": "s", "prompt": [{ "type": "x".repeat(100_000) }] });
    let response = editor.call("session/prompt", long).await;
    assert_eq!(response["error"]["message"].as_str().unwrap().len(), 300);
    for method in ["logout", "fs/read_text_file", ""] {
        assert_eq!(editor.call(method, json!({})).await["error"]["code"], -32601);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_has_one_answer() {
    let mut editor = Editor::start().await;
    let slow = editor.request("session/new", json!({ "cwd": "/slow", "mcpServers": [] })).await;
    editor.notify("$/cancel_request", json!({ "requestId": "other" })).await;
    editor.expect_silence().await;
    editor.notify("$/cancel_request", json!({ "requestId": slow })).await;
    let response = editor.next().await;
    assert_eq!((&response["id"], &response["error"]["code"]), (&json!(slow), &json!(-32800)));
    editor.notify("$/cancel_request", json!({ "requestId": slow })).await;
    editor.expect_silence().await;
}

#[tokio::test(start_paused = true)]
async fn ids_are_returned_as_they_arrive() {
    let mut editor = Editor::start().await;
    for id in [json!(0), json!(-7), json!(i64::MAX), json!("a \"b\""), json!(""), json!(null)] {
        editor.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "session/list" })).await;
        let response = editor.next().await;
        assert_eq!(response["id"], id);
        assert!(response.get("result").is_some(), "{response}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_its_request_only() {
    let mut editor = Editor::start().await;
    editor.prompt("s1", "panic").await;
    assert_eq!(editor.next().await["error"]["data"], json!({ "reason": "panic" }));
    editor.prompt("s1", "fail").await;
    let error = editor.next().await["error"].clone();
    assert_eq!(error, json!({ "code": -32603, "message": "no model", "data": { "reason": "llm_error" } }));
    editor.prompt("s1", "hello").await;
    assert_eq!(editor.next_text().await, "hello");
}
