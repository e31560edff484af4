//! Modes, models and MCP servers of a session.

use std::fs;

use serde_json::{Value, json};
use superstep_testing::script::{call, calls, txt};

use super::{editor::Editor, selected, shell, write};
use crate::support::{Place, serve};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/it/mcp/server.sh");

#[tokio::test]
async fn a_mode_decides_before_the_user() {
    let place = Place::new();
    let writes = |id: &'static str| write(&format!("{id}.txt"), "x");
    let server = serve([
        calls([("c1", "write_file", &*writes("c1")), ("c2", "shell", &*shell("touch c2.txt"))]),
        txt("edited"),
        call("c3", "write_file", &writes("c3")),
        txt("denied"),
        calls([("c4", "write_file", &*writes("c4")), ("c5", "shell", &*shell("touch c5.txt"))]),
        txt("all"),
    ])
    .await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let session = editor.new_session(&place).await;
    let exists = |name: &str| place.work().join(name).exists();
    let mode = |mode: &str| json!({ "sessionId": session, "modeId": mode });

    let set = editor.request("session/set_mode", mode("accept-edits")).await;
    let set = editor.turn(set, &[]).await;
    assert_eq!(set.of("current_mode_update")[0]["currentModeId"], "accept-edits");
    assert_eq!(set.of("config_option_update")[0]["configOptions"][0]["currentValue"], "accept-edits");
    let turn = editor.ask(&session, "go", &["reject_once"]).await;
    assert_eq!(turn.asked[0]["toolCall"]["toolCallId"], "c2");
    assert!(exists("c1.txt") && !exists("c2.txt"));

    let option = json!({ "sessionId": session, "configId": "mode", "value": "read-only" });
    let options = editor.call("session/set_config_option", option).await;
    assert_eq!(options["configOptions"][0]["currentValue"], "read-only");
    assert_eq!(editor.ask(&session, "go", &[]).await.text(), "denied");
    assert!(!exists("c3.txt"));
    let offered = |request: usize| {
        let tools = server.requests()[request]["tools"].as_array().unwrap().clone();
        let named = |name: &str| tools.iter().any(|tool| tool["function"]["name"] == name);
        (named("read_file"), named("write_file") || named("shell") || named("fetch_url"))
    };
    assert_eq!((offered(0), offered(2)), ((true, true), (true, false)));

    editor.call("session/set_mode", mode("auto")).await;
    assert_eq!(editor.ask(&session, "go", &[]).await.text(), "all");
    assert!(exists("c4.txt") && exists("c5.txt"));
    assert_eq!(editor.refused("session/set_mode", mode("yolo")).await["code"], -32602);
    server.check().unwrap();
}

#[tokio::test]
async fn a_mode_that_changes_while_a_question_waits_answers_it() {
    let place = Place::new();
    let server = serve([call("c1", "write_file", &write("a.txt", "a")), txt("done")]).await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let session = editor.new_session(&place).await;
    let prompt = editor.prompt(&session, "go").await;
    let asked = editor.asked("session/request_permission").await;
    let set = editor.request("session/set_mode", json!({ "sessionId": session, "modeId": "auto" })).await;
    let withdrawn = editor.asked("$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    let turn = editor.turn(prompt, &[]).await;
    assert_eq!((turn.stop(), turn.text().as_str()), ("end_turn", "done"));
    let _ = set;
    // A late answer has no effect.
    editor.answer(&asked, selected("reject_once")).await;
    assert_eq!(fs::read_to_string(place.work().join("a.txt")).unwrap(), "a");
}

#[tokio::test]
async fn the_model_and_the_preset_are_options_of_the_next_turn() {
    let place = Place::new();
    let server = serve([txt("one")]).await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let new = editor.call("session/new", json!({ "cwd": place.work(), "mcpServers": [] })).await;
    let session = &new["sessionId"];
    let ids: Vec<_> = new["configOptions"].as_array().unwrap().iter().map(|it| it["id"].clone()).collect();
    assert_eq!(ids, ["mode", "model", "preset"]);
    assert_eq!(new["configOptions"][1]["currentValue"], "m");
    assert_eq!(new["modes"]["currentModeId"], "ask");
    let set = |id: &str, value: &str| json!({ "sessionId": session, "configId": id, "value": value });
    let options = editor.call("session/set_config_option", set("model", "other")).await;
    assert_eq!(options["configOptions"][1]["currentValue"], "other");
    for (id, value) in [("preset", "none such"), ("model", ""), ("colour", "red")] {
        assert_eq!(editor.refused("session/set_config_option", set(id, value)).await["code"], -32602);
    }
    assert_eq!(editor.ask(session.as_str().unwrap(), "go", &[]).await.text(), "one");
    assert_eq!(server.requests()[0]["model"], "other");
}

#[tokio::test]
async fn a_server_of_the_client_is_used_and_never_stored() {
    let place = Place::new();
    let server = serve([call("c1", "my-tools_say", r#"{"what":"hi"}"#), txt("said")]).await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let env = |name: &str, value: &str| json!({ "name": name, "value": value });
    let env = json!([env("SEEN", "seen"), env("GREETING", "sk-5ecret$HOME")]);
    let small = json!({ "name": "My tools!", "command": "sh", "args": [SERVER], "env": env });
    let broken = json!({ "name": "broken", "command": "/no/such/program", "args": [], "env": [] });
    let params = json!({ "cwd": place.work(), "mcpServers": [small, broken] });
    let new = editor.call("session/new", params).await;
    let session = new["sessionId"].as_str().unwrap().to_owned();
    let turn = editor.ask(&session, "go", &[]).await;
    assert_eq!((turn.stop(), turn.text().as_str()), ("end_turn", "said"));
    assert_eq!(turn.of("tool_call")[0]["kind"], "other", "some clients allow others by their kind");
    let notices = turn.of("notice").iter().map(|it| it["title"].to_string()).collect::<String>();
    assert!(notices.contains("broken"), "{notices}");
    let result = server.requests()[1]["messages"].to_string();
    assert!(result.contains("hi no key sk-5ecret$HOME"), "{result}");
    let agent_config = place.run(&["state", &session, "--json"]).await.ok().stdout;
    assert!(!agent_config.contains("GREETING"), "the thread does not remember the server");
    assert_eq!(editor.end().await.code, Some(0));
    assert!(fs::read_to_string(place.work().join("seen")).unwrap().contains("ended"));
    // The result has the secret, because the server wrote it; no configuration has its name.
    for file in fs::read_dir(place.work().join(".superstep")).unwrap() {
        let stored = fs::read(file.unwrap().path()).unwrap_or_default();
        assert!(!stored.windows(8).any(|window| window == b"GREETING"), "the database has the server");
    }
}

#[tokio::test]
async fn a_question_with_a_form_is_a_form_or_a_choice_or_declined() {
    let bank = SERVER.replace("server.sh", "elicit.sh");
    let choice =
        r#"{"message":"Really?","requestedSchema":{"type":"object","properties":{"ok":{"type":"boolean"}}}}"#;
    let cases = [
        (json!({ "elicitation": { "form": {} } }), "", r#"{"action":"accept","content":{"account":"main"}}"#),
        (json!({}), choice, r#"{"action":"accept","content":{"ok":true}}"#),
        (json!({}), "", r#"{"action":"decline"}"#),
    ];
    for (capabilities, params, said) in cases {
        let place = Place::new();
        let server = serve([call("c1", "bank_pay", r#"{"sum":5}"#), txt("paid")]).await;
        let url = server.base_url();
        let command = place.command(&["acp", "--base-url", &url, "--model", "m", "--yes", "--no-memory"]);
        let mut editor = Editor::with(command, capabilities).await;
        let env = |name: &str, value: &str| json!({ "name": name, "value": value });
        let env = json!([env("SEEN", "seen"), env("ASKS", "Which account?"), env("PARAMS", params)]);
        let bank = json!({ "name": "bank", "command": "sh", "args": [bank], "env": env });
        let new = editor.call("session/new", json!({ "cwd": place.work(), "mcpServers": [bank] })).await;
        let session = new["sessionId"].as_str().unwrap();
        let prompt = editor.prompt(session, "go").await;
        if said.contains("main") {
            let asked = editor.asked("elicitation/create").await;
            assert!(asked["params"]["message"].as_str().unwrap().contains("Which account?"));
            let content = json!({ "action": "accept", "content": { "account": "main" } });
            editor.answer(&asked, content).await;
        } else if said.contains("true") {
            let asked = editor.asked("session/request_permission").await;
            let names: Vec<Value> = asked["params"]["options"].as_array().unwrap().clone();
            let names: Vec<_> = names.iter().map(|option| option["name"].as_str().unwrap()).collect();
            assert_eq!(names, ["Yes", "No", "Decline"]);
            editor.select(&asked, "0").await;
        }
        assert_eq!(editor.response(prompt).await["result"]["stopReason"], "end_turn", "{said}");
        let seen = fs::read_to_string(place.work().join("seen")).unwrap();
        assert_eq!(seen.lines().rfind(|line| line.contains("action")), Some(said));
        server.check().unwrap();
    }
}
