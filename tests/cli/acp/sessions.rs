//! Sessions: new ones, stored ones, many.

use std::{fs, time::Duration};

use serde_json::{Value, json};
use superstep_testing::script::{Answer, txt};
use tokio::time::Instant;

use super::editor::Editor;
use crate::support::{Place, serve};

#[tokio::test]
async fn nothing_precedes_the_response_of_a_new_session_and_its_commands_follow() {
    let place = Place::new();
    let server = serve([]).await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let began = Instant::now();
    let id = editor.request("session/new", json!({ "cwd": place.work(), "mcpServers": [] })).await;
    let new = editor.next().await;
    assert_eq!(new["id"], id, "an update before the response is lost: {new}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let update = editor.next().await["params"]["update"].clone();
    let names: Vec<_> =
        update["availableCommands"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names, ["continue", "undo", "compact", "status"]);
    let error = editor.refused("session/new", json!({ "cwd": "work", "mcpServers": [] })).await;
    assert_eq!(error["code"], -32602);
    let gone = json!({ "cwd": place.beside("gone"), "mcpServers": [] });
    assert_eq!(editor.refused("session/new", gone).await["code"], -32602);
}

#[tokio::test]
async fn a_session_without_a_prompt_survives_its_process() {
    let place = Place::new();
    let server = serve([txt("hello")]).await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let session = editor.new_session(&place).await;
    assert_eq!(editor.end().await.code, Some(0));

    let mut editor = Editor::start(&place, &server.base_url()).await;
    let opened = json!({ "sessionId": session, "cwd": place.work(), "mcpServers": [] });
    let resumed = editor.request("session/resume", opened.clone()).await;
    let resumed = editor.turn(resumed, &[]).await;
    assert_eq!((resumed.updates.len(), &resumed.end.unwrap()["modes"]["currentModeId"]), (0, &json!("ask")));
    assert_eq!(editor.ask(&session, "hi", &[]).await.text(), "hello");
    let unknown = json!({ "sessionId": "nobody", "cwd": place.work(), "mcpServers": [] });
    for method in ["session/load", "session/resume", "session/fork"] {
        let error = editor.refused(method, unknown.clone()).await;
        assert_eq!((&error["code"], &error["data"]["uri"]), (&json!(-32002), &json!("nobody")), "{method}");
    }
    let elsewhere = place.beside("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let moved = json!({ "sessionId": session, "cwd": elsewhere, "mcpServers": [] });
    assert_eq!(
        editor.refused("session/load", moved).await["code"],
        -32002,
        "that folder has its own database"
    );
}

#[tokio::test]
async fn a_session_of_a_shared_database_is_not_opened_in_another_folder() {
    let place = Place::new();
    let server = serve([txt("hello")]).await;
    let (url, elsewhere) = (server.base_url(), place.beside("elsewhere"));
    fs::create_dir(&elsewhere).unwrap();
    let args = ["acp", "--base-url", &url, "--model", "m", "--no-memory", "--db", "../shared.db"];
    let mut editor = Editor::with(place.command(&args), json!({})).await;
    for has_turn in [false, true] {
        let session = editor.new_session(&place).await;
        if has_turn {
            assert_eq!(editor.ask(&session, "hi", &[]).await.text(), "hello");
        }
        editor.call("session/close", json!({ "sessionId": session })).await;
        let moved = json!({ "sessionId": session, "cwd": elsewhere, "mcpServers": [] });
        let error = editor.refused("session/load", moved).await;
        assert_eq!(error["code"], -32602, "{error}");
        assert!(error["message"].as_str().unwrap().contains("is of the folder"), "{error}");
        assert_eq!(editor.load(&place, &session).await.text(), if has_turn { "hello" } else { "" });
    }
}

#[tokio::test]
async fn sessions_are_listed_forked_closed_and_deleted() {
    let place = Place::new();
    let server = serve([txt("one"), txt("two"), txt("of the fork"), txt("of the earlier one")]).await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let (first, empty) = (editor.new_session(&place).await, editor.new_session(&place).await);
    assert_eq!(editor.ask(&first, "Question\nand more", &[]).await.stop(), "end_turn");
    let checkpoint =
        editor.ask(&first, "second", &[]).await.end.unwrap()["_meta"]["superstep"]["checkpoint"].clone();
    assert!(checkpoint.is_u64(), "{checkpoint}");

    let open = json!({ "sessionId": first, "cwd": place.work(), "mcpServers": [] });
    let fork = editor.call("session/fork", open).await["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(editor.ask(&fork, "more", &[]).await.text(), "of the fork");
    let loaded = editor.load(&place, &fork).await;
    assert_eq!(loaded.text(), "onetwoof the fork");
    assert_eq!(editor.load(&place, &first).await.text(), "onetwo");

    let meta = json!({ "superstep": { "checkpoint": checkpoint } });
    let earlier = json!({ "sessionId": first, "cwd": place.work(), "mcpServers": [], "_meta": meta });
    let earlier = editor.call("session/fork", earlier).await["sessionId"].as_str().unwrap().to_owned();
    let turn = editor.ask(&earlier, "again", &[]).await;
    assert_eq!(turn.text(), "of the earlier one");
    assert!(!turn.updates.iter().any(|it| it.to_string().contains("not set up by you")), "{turn:?}");
    editor.call("session/delete", json!({ "sessionId": earlier })).await;

    let here = json!({ "cwd": place.work() });
    let listed = editor.call("session/list", here.clone()).await;
    let listed = listed["sessions"].as_array().unwrap().clone();
    let ids: Vec<_> = listed.iter().map(|it| it["sessionId"].as_str().unwrap()).collect();
    assert_eq!(ids, [fork.as_str(), &first, &empty]);
    assert_eq!(listed[1]["title"].as_str().map(|title| title.starts_with("Question")), Some(true));
    assert_eq!(listed[1]["cwd"], json!(place.work().canonicalize().unwrap()));
    assert!(listed[2].get("title").is_none_or(Value::is_null));
    let all = editor.call("session/list", json!({})).await;
    assert_eq!(all["sessions"].as_array().unwrap().len(), 3);
    assert_eq!(editor.refused("session/list", json!({ "cursor": "x" })).await["code"], -32602);

    editor.call("session/close", json!({ "sessionId": first })).await;
    let prompt = json!({ "sessionId": first, "prompt": [{ "type": "text", "text": "hi" }] });
    assert_eq!(editor.refused("session/prompt", prompt).await["code"], -32002);
    for id in [&first, &fork, &empty] {
        editor.call("session/delete", json!({ "sessionId": id })).await;
    }
    editor.call("session/delete", json!({ "sessionId": "nobody" })).await;
    assert_eq!(editor.call("session/list", here).await["sessions"], json!([]));
    assert_eq!(place.run(&["state", &first]).await.code, Some(5));
}

#[tokio::test]
async fn a_thread_of_the_terminal_is_a_session() {
    let place = Place::new();
    let server = serve([txt("one"), txt("two")]).await;
    let url = server.base_url();
    place.run(&["run", "first", "--thread", "t", "--base-url", &url, "--model", "m"]).await.ok();
    let mut editor = Editor::start(&place, &url).await;
    let loaded = editor.load(&place, "t").await;
    assert_eq!((loaded.text().as_str(), loaded.of("user_message_chunk").len()), ("one", 1));
    assert_eq!(editor.ask("t", "second", &[]).await.text(), "two");
    assert_eq!(editor.end().await.code, Some(0));
    assert!(
        place.run(&["show", "t"]).await.stdout.len() + place.run(&["state", "t"]).await.ok().stdout.len() > 0
    );
}

#[tokio::test]
async fn many_sessions_run_at_once() {
    const SESSIONS: usize = 64;
    let place = Place::new();
    let server = serve((0..SESSIONS).map(|_| txt("done"))).await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(editor.new_session(&place).await);
    }
    let mut prompts = Vec::new();
    for session in &sessions {
        prompts.push(editor.prompt(session, "go").await);
    }
    let mut texts = std::collections::BTreeMap::<String, String>::new();
    let mut ends = 0;
    while ends < SESSIONS {
        let line = editor.next().await;
        if let Some(text) = line["params"]["update"]["content"]["text"].as_str() {
            let session = line["params"]["sessionId"].as_str().unwrap();
            texts.entry(session.to_owned()).or_default().push_str(text);
        }
        if line.get("method").is_none() {
            assert_eq!(line["result"]["stopReason"], "end_turn", "{line}");
            assert!(prompts.contains(&line["id"].as_u64().unwrap()));
            ends += 1;
        }
    }
    assert_eq!((texts.len(), texts.values().all(|text| text == "done")), (SESSIONS, true));
    server.check().unwrap();
}

/// Returns the resident memory of a process in KiB.
fn memory(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn the_memory_of_a_long_process_is_flat() {
    const OF_A_SESSION: usize = 10;
    let prompts = std::env::var("SUPERSTEP_ACP_PROMPTS").map_or(100, |prompts| prompts.parse().unwrap());
    let place = Place::new();
    let text = "x".repeat(1000);
    let server =
        serve((0..prompts).map(|_| Answer::stream().text([&*text]).end("stop").usage(9, 4).done())).await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let (mut session, mut half) = (String::new(), 0);
    for prompt in 0..prompts {
        if prompt % OF_A_SESSION == 0 {
            if prompt > 0 {
                editor.call("session/close", json!({ "sessionId": session })).await;
            }
            session = editor.new_session(&place).await;
        }
        if prompt == prompts / 2 {
            half = memory(editor.child.id().unwrap());
        }
        assert_eq!(editor.ask(&session, "go", &[]).await.stop(), "end_turn");
    }
    let end = memory(editor.child.id().unwrap());
    assert!(end < half + half / 4, "{half} KiB after a half, {end} KiB after all");
    server.check().unwrap();
}

#[tokio::test]
async fn the_mode_of_a_session_outlives_its_process() {
    let place = Place::new();
    let server = serve([]).await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let (session, other) = (editor.new_session(&place).await, editor.new_session(&place).await);
    editor.call("session/set_mode", json!({ "sessionId": session, "modeId": "read-only" })).await;
    assert_eq!(editor.end().await.code, Some(0));
    let mut editor = Editor::start(&place, &server.base_url()).await;
    for (session, mode) in [(session, "read-only"), (other, "ask")] {
        let open = json!({ "sessionId": session, "cwd": place.work(), "mcpServers": [] });
        let opened = editor.call("session/resume", open).await;
        assert_eq!(opened["modes"]["currentModeId"], mode);
    }
}
