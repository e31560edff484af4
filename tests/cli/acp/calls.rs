//! Tool calls, questions about them, and their ends.

use std::{
    fs,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use superstep_testing::script::{Answer, call, calls, txt};

use super::{editor::Editor, selected, shell, until, write};
use crate::support::{Place, received, serve};

/// Returns whether a process runs.
fn alive(id: &str) -> bool {
    let signal = Command::new("kill").args(["-0", id]).stderr(Stdio::null()).status();
    signal.unwrap().success()
}

#[tokio::test]
async fn a_turn_is_text_calls_and_one_response_after_all_of_it() {
    let place = Place::new();
    let read = json!({ "path": "notes.txt" }).to_string();
    let first = Answer::stream().text(["I will ", "look."]).call(0, "c1", "read_file", [read.as_str()]);
    let server = serve([first.end("tool_calls").usage(9, 4).done(), txt("It is there.")]).await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let session = editor.new_session(&place).await;
    let turn = editor.ask(&session, "Where is the needle?", &[]).await;
    assert_eq!(turn.stop(), "end_turn");
    assert_eq!(turn.text(), "I will look.It is there.");
    assert_eq!(turn.statuses(), ["c1 in_progress", "c1 completed"]);
    let begun = turn.of("tool_call")[0];
    assert_eq!((&begun["kind"], &begun["name"]), (&json!("read"), &json!("read_file")));
    assert_eq!(begun["locations"], json!([{ "path": place.work().join("notes.txt") }]));
    assert!(turn.of("tool_call_update")[0]["rawOutput"]["text"].as_str().unwrap().contains("needle"));
    let about = &turn.end.as_ref().unwrap()["_meta"]["superstep"];
    assert_eq!(about["outcome"], "completed");
    assert_eq!(about["usage"]["input_tokens"], 9, "{about}");
    assert_eq!(turn.of("session_info_update")[0]["title"], "Where is the needle?");
    assert!(turn.of("user_message_chunk").is_empty(), "the own prompt is not echoed");

    // The stored conversation has the same messages and calls.
    let loaded = editor.load(&place, &session).await;
    let texts = |updates: Vec<&Value>| {
        let text =
            |it: &Value| (it["messageId"].to_string(), it["content"]["text"].as_str().unwrap().to_owned());
        let mut joined: Vec<(String, String)> = Vec::new();
        for (id, text) in updates.into_iter().map(text) {
            match joined.last_mut().filter(|(last, _)| *last == id) {
                Some((_, said)) => said.push_str(&text),
                None => joined.push((id, text)),
            }
        }
        joined
    };
    assert_eq!(texts(loaded.of("agent_message_chunk")), texts(turn.of("agent_message_chunk")));
    assert_eq!(texts(loaded.of("user_message_chunk"))[0].1, "Where is the needle?");
    assert_eq!(loaded.statuses(), ["c1 completed"]);
    server.check().unwrap();
    assert_eq!(editor.end().await.code, Some(0));
}

#[tokio::test]
async fn each_option_of_a_permission_is_a_decision_about_one_call_or_the_tool() {
    let place = Place::new();
    let (a, b, c, d, e) = ("a.txt", "b.txt", "c.txt", "d.txt", "e.txt");
    let (a, b) = (write(a, "a"), write(b, "b"));
    let (c, d, e) = (write(c, "c"), write(d, "d"), write(e, "e"));
    let server = serve([
        calls([("c1", "write_file", &*a), ("c2", "write_file", &*b)]),
        txt("one"),
        calls([("c3", "write_file", &*c), ("c4", "write_file", &*d)]),
        txt("two"),
        call("c5", "write_file", &e),
        txt("three"),
    ])
    .await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let session = editor.new_session(&place).await;
    let turn = editor.ask(&session, "go", &["allow_once", "reject_once"]).await;
    assert_eq!((turn.stop(), turn.text().as_str()), ("end_turn", "one"));
    let ids: Vec<_> = turn.asked.iter().map(|asked| asked["toolCall"]["toolCallId"].clone()).collect();
    assert_eq!(ids, ["c1", "c2"]);
    let call = &turn.asked[0]["toolCall"];
    let diff = json!({ "type": "diff", "path": place.work().join("a.txt"), "newText": "a" });
    let mut shown = call["content"][0].clone();
    shown.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    assert_eq!((&shown, &call["status"], &call["kind"]), (&diff, &json!("pending"), &json!("edit")));
    assert!(
        call["content"][1]["content"]["text"].as_str().unwrap().contains("a.txt"),
        "the question: {call}"
    );
    let kinds: Vec<_> =
        turn.asked[0]["options"].as_array().unwrap().iter().map(|it| it["kind"].clone()).collect();
    assert_eq!(kinds, ["allow_once", "allow_always", "reject_once"]);
    let exists = |name: &str| place.work().join(name).exists();
    assert!(exists("a.txt") && !exists("b.txt"));
    let last = |call: &str| turn.statuses().into_iter().rfind(|it| it.starts_with(call));
    assert_eq!((last("c1").as_deref(), last("c2").as_deref()), (Some("c1 completed"), Some("c2 failed")));

    let turn = editor.ask(&session, "go", &["allow_always"]).await;
    assert_eq!((turn.stop(), turn.asked.len()), ("end_turn", 1));
    assert!(exists("c.txt") && exists("d.txt"));
    assert_eq!(editor.ask(&session, "go", &[]).await.text(), "three");
    assert!(exists("e.txt"));
    server.check().unwrap();
    let stored = ["c1 completed", "c2 failed", "c3 completed", "c4 completed", "c5 completed"];
    assert_eq!(editor.load(&place, &session).await.statuses(), stored);
}

#[tokio::test]
async fn without_a_decision_nothing_runs_and_the_call_waits_for_continue() {
    let place = Place::new();
    let server = serve([call("c1", "write_file", &write("a.txt", "a")), txt("done")]).await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let session = editor.new_session(&place).await;
    for answer in [json!({ "outcome": { "outcome": "cancelled" } }), selected("reject_always")] {
        let text = if server.received().is_empty() { "go" } else { "/continue" };
        let prompt = editor.prompt(&session, text).await;
        let asked = editor.asked("session/request_permission").await;
        editor.answer(&asked, answer).await;
        assert_eq!(editor.response(prompt).await["result"]["stopReason"], "cancelled");
        assert!(!place.work().join("a.txt").exists());
    }
    // In another process as well.
    assert_eq!(editor.end().await.code, Some(0));
    let mut editor = Editor::start(&place, &server.base_url()).await;
    assert_eq!(editor.load(&place, &session).await.statuses(), ["c1 pending"]);
    let turn = editor.ask(&session, "/continue", &["allow_once"]).await;
    assert_eq!((turn.stop(), turn.text().as_str()), ("end_turn", "done"));
    assert_eq!(fs::read_to_string(place.work().join("a.txt")).unwrap(), "a");
    assert_eq!(editor.ask(&session, "/continue", &[]).await.text(), "There is no turn to continue.");
    server.check().unwrap();
}

#[tokio::test]
async fn a_call_that_another_process_decides_is_followed_to_the_end_of_the_turn() {
    let place = Place::new();
    let write = write("a.txt", "a");
    let server = serve([call("c1", "write_file", &write), txt("done"), txt("next")]).await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let session = editor.new_session(&place).await;
    let prompt = editor.prompt(&session, "go").await;
    let asked = editor.asked("session/request_permission").await;
    let resumed = place.run(&["resume", &session, "--approve", "--base-url", &server.base_url()]).await;
    assert_eq!((resumed.code, resumed.stdout.trim()), (Some(0), "done"), "{resumed:?}");
    let withdrawn = editor.asked("$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    let turn = editor.turn(prompt, &[]).await;
    assert_eq!((turn.stop(), turn.text().as_str()), ("end_turn", "done"));
    assert_eq!(turn.statuses(), ["c1 completed"]);
    assert_eq!(editor.ask(&session, "next", &[]).await.text(), "next");
    server.check().unwrap();
}

#[tokio::test]
async fn a_decision_may_have_other_arguments_or_a_reason() {
    let place = Place::new();
    let server = serve([
        calls([("c1", "write_file", &*write("a.txt", "a")), ("c2", "write_file", &*write("b.txt", "b"))]),
        txt("done"),
    ])
    .await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let session = editor.new_session(&place).await;
    let prompt = editor.prompt(&session, "go").await;
    let edit = json!({ "edit": { "path": "edited.txt", "content": "x" } });
    for decision in [edit, json!({ "deny": "not this file" })] {
        let asked = editor.asked("session/request_permission").await;
        let mut answer = selected("allow_once");
        answer["_meta"] = json!({ "superstep": { "decision": decision } });
        editor.answer(&asked, answer).await;
    }
    assert_eq!(editor.response(prompt).await["result"]["stopReason"], "end_turn");
    assert_eq!(fs::read_to_string(place.work().join("edited.txt")).unwrap(), "x");
    assert!(!place.work().join("a.txt").exists() && !place.work().join("b.txt").exists());
    assert!(server.requests()[1].to_string().contains("not this file"));
}

#[tokio::test]
async fn a_cancel_ends_the_model_the_question_and_the_tool() {
    let place = Place::new();
    let server = serve([
        Answer::stream().text(["let me see"]).stall(),
        call("c1", "write_file", &write("a.txt", "a")),
        call("c2", "shell", &shell("echo $$ > pid; sleep 1000")),
        txt("done"),
    ])
    .await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let session = editor.new_session(&place).await;

    let prompt = editor.prompt(&session, "go").await;
    editor.said("let me see").await;
    editor.cancel(&session).await;
    assert_eq!(editor.response(prompt).await["result"]["stopReason"], "cancelled");

    let prompt = editor.prompt(&session, "go").await;
    let asked = editor.asked("session/request_permission").await;
    editor.cancel(&session).await;
    let withdrawn = editor.asked("$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    editor.answer(&asked, json!({ "outcome": { "outcome": "cancelled" } })).await;
    assert_eq!(editor.response(prompt).await["result"]["stopReason"], "cancelled");
    assert!(!place.work().join("a.txt").exists());

    editor.call("session/set_mode", json!({ "sessionId": session, "modeId": "auto" })).await;
    let prompt = editor.prompt(&session, "go").await;
    let pid = place.work().join("pid");
    until(|| fs::read_to_string(&pid).is_ok_and(|pid| pid.ends_with('\n'))).await;
    editor.cancel(&session).await;
    let failed = editor.until(|line| line["params"]["update"]["status"] == "failed").await;
    assert_eq!(failed["params"]["update"]["toolCallId"], "c2");
    assert_eq!(editor.response(prompt).await["result"]["stopReason"], "cancelled");
    let pid = fs::read_to_string(pid).unwrap();
    // The program of the tool ends.
    until(|| !alive(pid.trim())).await;

    // A cancel without a turn does not hit the next one.
    editor.cancel(&session).await;
    assert_eq!(editor.ask(&session, "go", &[]).await.text(), "done");
}

#[tokio::test]
async fn a_prompt_during_a_turn_replaces_it() {
    let place = Place::new();
    let server = serve([Answer::stream().text(["let me see"]).stall(), txt("two")]).await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let session = editor.new_session(&place).await;
    let first = editor.prompt(&session, "one").await;
    editor.said("let me see").await;
    let turn = editor.ask(&session, "two", &[]).await;
    assert_eq!((turn.stop(), turn.text().as_str()), ("end_turn", "two"));
    assert_eq!(editor.response(first).await["result"]["stopReason"], "cancelled");
}

#[tokio::test]
async fn a_turn_is_steered_and_undone() {
    let place = Place::new();
    place.file("a.txt", "old");
    let server = serve([
        call("c1", "write_file", &write("a.txt", "new")),
        Answer::stream().text(["let me see"]).stall(),
        txt("started"),
    ])
    .await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let session = editor.new_session(&place).await;
    let prompt = editor.prompt(&session, "go").await;
    let asked = editor.asked("session/request_permission").await;
    let old = &asked["params"]["toolCall"]["content"][0]["oldText"];
    assert_eq!(old, "old");
    let steering = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "in French" }] });
    assert_eq!(editor.call("_session/steering", steering.clone()).await, json!({ "outcome": "injected" }));
    editor.select(&asked, "allow_once").await;
    editor.said("let me see").await;
    editor.cancel(&session).await;
    assert_eq!(editor.response(prompt).await["result"]["stopReason"], "cancelled");
    assert!(server.requests()[1].to_string().contains("in French"));
    assert_eq!(fs::read_to_string(place.work().join("a.txt")).unwrap(), "new");

    let undone = editor.ask(&session, "/undo", &[]).await;
    assert!(undone.text().contains("a.txt"), "{}", undone.text());
    assert_eq!(fs::read_to_string(place.work().join("a.txt")).unwrap(), "old");
    assert!(editor.ask(&session, "/status", &[]).await.text().contains("- mode: ask"));

    assert_eq!(editor.call("_session/steering", steering).await, json!({ "outcome": "startedNewTurn" }));
    editor.said("started").await;
}

#[tokio::test]
async fn a_turn_killed_in_a_tool_is_shown_and_continued_and_repeats_nothing() {
    let place = Place::new();
    let server = serve([
        call("c1", "shell", &shell("echo one >> log")),
        call("c2", "shell", &shell("echo two >> log; [ -f go ] || sleep 1000")),
        txt("done"),
    ])
    .await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let session = editor.new_session(&place).await;
    editor.call("session/set_mode", json!({ "sessionId": session, "modeId": "auto" })).await;
    editor.prompt(&session, "go").await;
    received(&server, 2).await;
    let log = place.work().join("log");
    until(|| fs::read_to_string(&log).is_ok_and(|log| log.contains("two"))).await;
    editor.kill().await;

    place.file("go", "");
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let loaded = editor.load(&place, &session).await;
    assert_eq!(loaded.of("user_message_chunk")[0]["content"]["text"], "go");
    assert_eq!(loaded.statuses(), ["c1 completed", "c2 pending"]);
    editor.call("session/set_mode", json!({ "sessionId": session, "modeId": "auto" })).await;
    let turn = editor.ask(&session, "/continue", &[]).await;
    assert_eq!((turn.stop(), turn.text().as_str()), ("end_turn", "done"));
    server.check().unwrap();
    let log = fs::read_to_string(log).unwrap();
    assert_eq!(log.matches("one").count(), 1, "{log}");
}

#[tokio::test]
async fn changes_of_a_shell_are_shown_as_diffs() {
    let place = Place::new();
    let server = serve([call("c1", "shell", &shell("echo new >> notes.txt; echo ok")), txt("done")]).await;
    let mut editor = Editor::start(&place, &server.base_url()).await;
    let session = editor.new_session(&place).await;
    let turn = editor.ask(&session, "go", &["allow_once"]).await;
    let last = turn.updates.iter().rfind(|update| update["toolCallId"] == "c1").unwrap();
    let text = |at: usize| last["content"][at]["content"]["text"].as_str().unwrap_or_default();
    assert!(text(0).contains("ok") && text(1).starts_with("```diff\n") && text(1).contains("+new"), "{last}");
}

/// The first bytes of a PNG file, in Base64.
const PNG: &str = "iVBORw0KGgo=";

#[tokio::test]
async fn an_image_of_a_prompt_reaches_a_model_that_accepts_it_and_is_described_to_others() {
    let place = Place::new();
    place.file("sees.toml", "[models.main]\naccepts = [\"images\"]\n");
    for (flags, is_seen) in [(&["--config", "sees.toml"][..], true), (&[][..], false)] {
        let server = serve([txt("a cat")]).await;
        let url = server.base_url();
        let args = ["acp", "--base-url", &*url, "--model", "m", "--no-memory"];
        let mut editor = Editor::with(place.command(&[&args[..], flags].concat()), json!({})).await;
        let session = editor.new_session(&place).await;
        let image = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
        let prompt = json!([image, { "type": "text", "text": "What is it?" }]);
        let id = editor.request("session/prompt", json!({ "sessionId": session, "prompt": prompt })).await;
        assert_eq!(editor.turn(id, &[]).await.text(), "a cat");
        let sent = server.requests()[0]["messages"].to_string();
        assert_eq!((sent.contains(PNG), sent.contains("[image: image/png")), (is_seen, !is_seen), "{sent}");
        let loaded = editor.load(&place, &session).await;
        let shown: Vec<_> =
            loaded.of("user_message_chunk").iter().map(|it| it["content"]["type"].clone()).collect();
        assert_eq!(shown, ["image", "text"]);
        assert_eq!(editor.end().await.code, Some(0));
    }
}

#[tokio::test]
async fn audio_of_a_prompt_reaches_a_model_that_accepts_it_and_comes_again() {
    const WAV: &str = "UklGRgAAAABXQVZF";
    let place = Place::new();
    place.file("hears.toml", "[models.main]\naccepts = [\"audio\"]\n");
    let server = serve([txt("a bell")]).await;
    let url = server.base_url();
    let args = ["acp", "--base-url", &*url, "--model", "m", "--no-memory", "--config", "hears.toml"];
    let mut editor = Editor::with(place.command(&args), json!({})).await;
    let session = editor.new_session(&place).await;
    let audio = json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" });
    let id = editor.request("session/prompt", json!({ "sessionId": session, "prompt": [audio] })).await;
    assert_eq!(editor.turn(id, &[]).await.text(), "a bell");
    assert!(server.requests()[0]["messages"].to_string().contains(WAV));
    let loaded = editor.load(&place, &session).await;
    assert_eq!(loaded.of("user_message_chunk")[0]["content"], audio);
    let id = editor.prompt(&session, "/compact").await;
    assert!(editor.turn(id, &[]).await.text().contains("summary"));
    assert_eq!(editor.end().await.code, Some(0));
}

#[tokio::test]
async fn a_file_is_attached_on_the_command_line() {
    let place = Place::new();
    place.file("sees.toml", "[models.main]\naccepts = [\"images\"]\n");
    fs::write(place.work().join("cat.png"), b"\x89PNG\r\n\x1a\n").unwrap();
    let server = serve([txt("a cat")]).await;
    let url = server.base_url();
    let run =
        ["run", "What is it?", "--base-url", &*url, "--model", "m", "--config", "sees.toml", "--attach"];
    let ran = place.run(&[&run[..], &["cat.png"]].concat()).await.ok();
    assert_eq!(ran.stdout.trim(), "a cat");
    assert!(server.requests()[0]["messages"].to_string().contains(PNG));
    for (file, problem) in [("notes.txt", "`notes.txt` is none of PNG"), ("no.png", "cannot read `no.png`")] {
        let ran = place.run(&[&run[..], &[file]].concat()).await;
        assert_eq!((ran.code, ran.stderr.contains(problem)), (Some(2), true), "{ran:?}");
    }
}
