//! Ctrl-C.

#![cfg(unix)]

use serde_json::{Value, json};
use superstep_testing::script::{Answer, call, txt};

use crate::support::{Place, received, serve};

#[tokio::test]
async fn ctrl_c_ends_cleanly_and_shows_how_to_resume() {
    let place = Place::new();
    let server = serve([
        call("c1", "calculate", r#"{"expression":"2+3"}"#),
        Answer::stream().text(["half an"]).stall(),
        txt("whole"),
    ])
    .await;
    let args = ["run", "hi", "--thread", "t", "--json", "--base-url", &server.base_url(), "--model", "m"];
    let mut running = place.start(&args);
    running.line_with("half an").await;
    running.signal("INT");
    let ran = running.end().await;
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert_eq!(
        ran.stderr,
        "\nstopping; press Ctrl-C again to stop at once\ninterrupted; resume with: superstep resume t\n"
    );
    let last = ran.lines().pop().unwrap();
    assert_eq!((&last["event"], &last["data"]["outcome"]), (&"final".into(), &"cancelled".into()));

    let ran = place.run(&["resume", "t", "--json"]).await.ok();
    assert_eq!(ran.lines().pop().unwrap()["data"]["final_reply"], "whole");
    assert_eq!(ran.thread(), "t");
    server.check().unwrap();
    let requests = server.requests();
    assert_eq!(requests[2], requests[1], "the unanswered request, and no other, is sent again");
}

/// Returns whether this process, and so each program it starts, ignores the loss of its terminal, as under
/// `nohup`.
fn ignores_hang_ups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[tokio::test]
async fn a_terminal_that_is_gone_ends_the_run_and_its_children() {
    if ignores_hang_ups() {
        superstep_testing::skipped("this runs under `nohup`, where a hang-up ends nothing");
        return;
    }
    let place = Place::new();
    // A duration that no other run of this test has.
    let nap = format!("sleep {}", 100_000_000 + u64::from(std::process::id()));
    let command = format!("echo began; {nap}; echo ended > ended.txt");
    let server = serve([call("c1", "shell", &json!({ "command": command }).to_string()), txt("ok")]).await;
    let url = server.base_url();
    let args = ["run", "go", "--yes", "--json", "--thread", "t", "--base-url", &url, "--model", "m"];
    let mut running = place.start(&args);
    running.line_with("began").await;
    running.signal("HUP");
    let ran = running.end().await;
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(ran.stderr.ends_with("interrupted; resume with: superstep resume t\n"), "{}", ran.stderr);
    let processes = std::process::Command::new("ps").args(["-eo", "args"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&processes.stdout).lines().any(|line| line == nap));
}

#[tokio::test]
async fn text_read_before_ctrl_c_is_part_of_the_next_turn() {
    let place = Place::new();
    let server = serve([Answer::stream().text(["half an"]).stall(), txt("whole")]).await;
    let asked = ["--thread", "t", "--json", "--base-url", &server.base_url(), "--model", "m"];
    let mut running = place.start(&[&["run", "hi"], &asked[..]].concat());
    running.line_with("half an").await;
    running.signal("INT");
    assert_eq!(running.end().await.code, Some(130));
    let stored = &place.state("t").await["values"]["messages"];
    assert_eq!((&stored[1]["content"], &stored[1]["interrupted"]), (&json!("half an"), &json!(true)));
    place.run(&[&["run", "go on"], &asked[..]].concat()).await.ok();
    let said: Vec<_> = server.requests()[1]["messages"].as_array().unwrap().clone();
    let said: Vec<_> = said.iter().map(|message| (&message["role"], &message["content"])).collect();
    let wanted = [json!(["user", "hi"]), json!(["assistant", "half an"]), json!(["user", "go on"])];
    let wanted: Vec<_> = wanted.iter().map(|message| (&message[0], &message[1])).collect();
    assert_eq!(said[said.len() - 3..], wanted);
}

#[tokio::test]
async fn reasoning_read_before_ctrl_c_is_stored_and_not_sent() {
    let place = Place::new();
    let server = serve([Answer::stream().reasoning("because").stall(), txt("whole")]).await;
    let asked = ["--thread", "t", "--json", "--base-url", &server.base_url(), "--model", "m"];
    let mut running = place.start(&[&["run", "hi"], &asked[..]].concat());
    running.line_with("because").await;
    running.signal("INT");
    assert_eq!(running.end().await.code, Some(130));
    let stored = &place.state("t").await["values"]["messages"];
    let said = (&stored[1]["content"], &stored[1]["reasoning"], &stored[1]["interrupted"]);
    assert_eq!(said, (&json!(""), &json!("because"), &json!(true)));
    place.run(&[&["run", "go on"], &asked[..]].concat()).await.ok();
    let said: Vec<_> = server.requests()[1]["messages"].as_array().unwrap().clone();
    let roles: Vec<_> = said.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert!(!roles.contains(&"assistant"), "{said:?}");
}

#[tokio::test]
async fn the_command_to_resume_names_the_place_if_it_is_not_the_usual_one() {
    let place = Place::new();
    let server = serve([Answer::stream().stall()]).await;
    let db = place.beside("my threads.db");
    let db = db.to_str().unwrap();
    let running = place.start(&[
        "run",
        "hi",
        "--thread",
        "t",
        "--db",
        db,
        "--base-url",
        &server.base_url(),
        "--model",
        "m",
    ]);
    received(&server, 1).await;
    running.signal("TERM");
    let ran = running.end().await;
    assert_eq!(ran.code, Some(130), "{ran:?}");
    let told = format!("interrupted; resume with: superstep resume t --db '{db}'\n");
    assert!(ran.stderr.ends_with(&told), "{}", ran.stderr);
}

#[tokio::test]
async fn a_thread_that_is_finished_has_nothing_to_resume() {
    let place = Place::new();
    let first = place.run(&["run", "1 + 1", "--thread", "t"]).await.ok();
    let steps = place.steps("t").await;
    let again = place.run(&["resume", "t"]).await.ok();
    assert_eq!(again.stdout, first.stdout);
    assert!(
        again.stderr.starts_with("thread `t` is finished, this is its last reply:\n"),
        "{}",
        again.stderr
    );
    assert_eq!(place.steps("t").await, steps);
}

#[tokio::test]
async fn threads_are_listed_with_their_status() {
    let place = Place::new();
    let hangs = serve([Answer::stream().stall()]).await;
    let url = hangs.base_url();
    let args = ["run", "go", "--thread", "cut", "--base-url", &url, "--model", "m"];
    let running = place.start(&args);
    received(&hangs, 1).await;
    running.signal("INT");
    assert_eq!(running.end().await.code, Some(130));
    let asks = serve([call("c1", "shell", r#"{"command":"true"}"#)]).await;
    let url = asks.base_url();
    let ran = place.run(&["run", "go", "--thread", "asks", "--base-url", &url, "--model", "m"]).await;
    assert_eq!(ran.code, Some(6));
    let nobody = ["run", "go", "--thread", "alone", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"];
    assert_eq!(place.run(&nobody).await.code, Some(3));
    let of = |line: &Value| (line["thread"].clone(), line["outcome"].clone(), line["waits"].clone());
    let listed: Vec<_> = place.run(&["threads", "--json"]).await.ok().lines().iter().map(of).collect();
    assert_eq!(
        listed,
        [
            (json!("alone"), json!("llm_error"), json!([])),
            (json!("asks"), json!(null), json!(["c1"])),
            (json!("cut"), json!("cancelled"), json!([]))
        ]
    );
    let table = place.run(&["threads"]).await.ok().stdout;
    let status: Vec<_> =
        table.lines().skip(1).map(|line| line.split_once("  m  ").unwrap().1.trim()).collect();
    let titled = |status: &str| format!("{status:<20}  go");
    assert_eq!(status, ["no model", "waits for a decision", "cancelled"].map(titled), "{table}");
    let shown = place.run(&["state", "cut"]).await.ok().stdout;
    assert!(shown.contains("\nstatus      cancelled\n"), "{shown}");
}
