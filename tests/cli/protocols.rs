//! Threads of models with signed or encrypted reasoning: `kill -9`, resume, replay, export, encryption.

use std::{fs, time::Duration};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{Place, Ran, Running, ended};

#[expect(dead_code, reason = "the tests of the models use more of it")]
#[path = "../it/llm/strict.rs"]
mod strict;

use strict::{Logged, Strict};

const KEY: &str = "sk-test-0123456789";

/// A key of 32 bytes that encrypts threads.
const SEAL: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// The protocols: their names, and the field of an answer with its parts.
const PROTOCOLS: [(&str, &str); 4] =
    [("anthropic", "blocks"), ("responses", "out"), ("gemini", "parts"), ("chat", "out")];

/// Returns the answers of a turn with two rounds of tools, and of the turn behind it.
fn turns((protocol, field): (&str, &str)) -> Vec<Value> {
    let calculate = |expression: &str| {
        let arguments = json!({"expression": expression}).to_string();
        let name = if protocol == "anthropic" { "use" } else { "call" };
        json!({name: ["calculate", arguments]})
    };
    let thought = |text: &str| {
        let name = match protocol {
            "anthropic" => "thinking",
            "gemini" => "thought",
            _ => "reasoning",
        };
        json!({name: text})
    };
    let text = |text: &str| json!({"text": text});
    let parts = [
        json!([thought("One — 😀"), text("I add."), calculate("2+3")]),
        json!([thought(""), calculate("37*91"), calculate("5+1")]),
        json!([thought("Three"), text("It is 3372.")]),
        json!([thought("Four"), text("Yes.")]),
    ];
    parts.map(|parts| json!({field: parts})).into()
}

fn serve(protocol: &str, answers: Vec<Value>) -> Option<Strict> {
    Strict::start(protocol, &json!({"config": {"key": KEY, "repeat_last": false}, "answers": answers}))
}

/// Creates a command with the server and the key of a protocol in its environment.
fn command(place: &Place, server: &Strict, protocol: &str, args: &[&str]) -> Command {
    let mut command = place.command(args);
    match protocol {
        "anthropic" => command.env("ANTHROPIC_BASE_URL", server.origin()).env("ANTHROPIC_API_KEY", KEY),
        "gemini" => command.env("GEMINI_BASE_URL", server.origin()).env("GOOGLE_API_KEY", KEY),
        _ => command.env("OPENAI_BASE_URL", format!("{}/v1", server.origin())).env("OPENAI_API_KEY", KEY),
    };
    command
}

async fn run(place: &Place, server: &Strict, protocol: &str, args: &[&str]) -> Ran {
    ended(&mut command(place, server, protocol, args)).await.ok()
}

/// Returns the number of opaque parts of a request, all of which are as they were sent.
fn opaque(line: &Logged) -> usize {
    let parts = line.other["verbatim"].as_object().unwrap();
    assert!(parts.values().all(|same| *same == true || *same == "exact"), "{parts:?}");
    parts.len()
}

async fn requested(server: &Strict, n: usize) {
    while server.log().len() < n {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_run_that_was_killed_sends_its_reasoning_back_as_it_was() {
    for (protocol, field) in PROTOCOLS {
        let model = format!("{protocol}/m");
        for killed_at in 0..3 {
            let mut answers = turns((protocol, field));
            answers.insert(killed_at, json!({"hang": 60}));
            let (place, Some(server)) = (Place::new(), serve(protocol, answers)) else { return };
            let mut first =
                command(&place, &server, protocol, &["run", "go", "--thread", "t", "--model", &model]);
            let mut running = first.spawn().unwrap();
            requested(&server, killed_at + 1).await;
            running.kill().await.unwrap();
            let resumed = run(&place, &server, protocol, &["resume", "t"]).await;
            assert!(resumed.stdout.ends_with("It is 3372.\n"), "{protocol} {killed_at}: {resumed:?}");
            run(&place, &server, protocol, &["run", "really?", "--thread", "t"]).await;
            let log = server.accepted();
            let parts: Vec<_> = log.iter().skip(killed_at + 1).map(opaque).collect();
            assert_eq!(parts, (killed_at..4).collect::<Vec<_>>(), "{protocol}");
            let (refused, again) = (&log[killed_at].body, &log[killed_at + 1].body);
            assert_eq!(refused, again, "{protocol} {killed_at}: the request is the same");
            // Without a server.
            let replayed = place.run(&["replay", "t"]).await;
            assert_eq!(replayed.code, Some(0), "{replayed:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_was_killed_at_any_event_sends_its_reasoning_back_as_it_was() {
    for (protocol, field) in PROTOCOLS {
        let model = format!("{protocol}/m");
        let begin = ["run", "go", "--json", "--thread", "t", "--model", &model];
        let settings = json!({"key": KEY, "repeat_last": false, "again": true});
        let script = json!({"config": settings, "answers": turns((protocol, field))});
        let (place, Some(server)) = (Place::new(), Strict::start(protocol, &script)) else { return };
        let whole = run(&place, &server, protocol, &begin).await.lines();
        let moments: Vec<_> =
            (0..whole.len() - 1).filter(|line| whole[*line]["event"] != "llm_token").collect();
        assert!(moments.len() > 10, "{whole:?}");
        for moment in moments {
            let (place, Some(server)) = (Place::new(), Strict::start(protocol, &script)) else { return };
            let mut running = Running::of(command(&place, &server, protocol, &begin));
            for _ in 0..=moment {
                running.line().await.expect("there are more lines");
            }
            running.child.kill().await.unwrap();
            let resumed = run(&place, &server, protocol, &["resume", "t"]).await;
            assert!(resumed.stdout.contains("It is 3372."), "{protocol} {moment}: {resumed:?}");
            run(&place, &server, protocol, &["run", "really?", "--thread", "t"]).await;
            let mut log = server.accepted();
            log.dedup_by(|again, line| again.body == line.body);
            assert_eq!(log.iter().map(opaque).collect::<Vec<_>>(), [0, 1, 2, 3], "{protocol} {moment}");
        }
    }
}

#[tokio::test]
async fn an_exported_thread_goes_on_elsewhere_and_an_encrypted_one_too() {
    for (protocol, field) in PROTOCOLS {
        let model = format!("{protocol}/m");
        let mut answers = turns((protocol, field));
        answers.push(answers[3].clone());
        let (place, Some(server)) = (Place::new(), serve(protocol, answers)) else { return };
        run(&place, &server, protocol, &["run", "go", "--thread", "t", "--model", &model]).await;
        let exported = place.run(&["export", "t"]).await.ok().stdout;
        let elsewhere = Place::new();
        fs::write(elsewhere.beside("t.jsonl"), exported).unwrap();
        let file = elsewhere.beside("t.jsonl");
        elsewhere.run(&["import", file.to_str().unwrap()]).await.ok();
        let again = ["run", "really?", "--thread", "t", "--model", &model];
        run(&elsewhere, &server, protocol, &again).await;
        run(&place, &server, protocol, &again).await;
        let log = server.accepted();
        assert_eq!(log.iter().map(opaque).collect::<Vec<_>>(), [0, 1, 2, 3, 3], "{protocol}");
        assert_eq!(log[3].body, log[4].body, "{protocol}: the copy sends the same request");

        let (place, Some(server)) = (Place::new(), serve(protocol, turns((protocol, field)))) else { return };
        for args in [&["run", "go", "--thread", "t", "--model", &model][..], &again] {
            let ran = ended(command(&place, &server, protocol, args).env("SUPERSTEP_KEY", SEAL)).await;
            assert_eq!(ran.code, Some(0), "{ran:?}");
        }
        assert_eq!(server.accepted().iter().map(opaque).collect::<Vec<_>>(), [0, 1, 2, 3], "{protocol}");
    }
}

#[tokio::test]
async fn a_model_on_vertex_has_the_project_and_the_token_of_the_environment() {
    let path = "/v1/projects/p/locations/global/publishers";
    for (protocol, name) in [("gemini", "gemini-3.5-flash"), ("anthropic", "claude-sonnet-5-5@20260901")] {
        let field = PROTOCOLS.iter().find(|(known, _)| *known == protocol).unwrap().1;
        let script = json!({"config": {"token": "ya29.b"}, "answers": turns((protocol, field))});
        let (place, Some(server)) = (Place::new(), Strict::start(protocol, &script)) else { return };
        let (model, url) = (format!("vertex/{name}"), server.origin().to_owned() + path);
        let args = ["run", "go", "--thread", "t", "--model", &model, "--base-url", &url];
        let mut first = place.command(&args);
        let ran = ended(first.env("GOOGLE_ACCESS_TOKEN_COMMAND", "echo ya29.b")).await.ok();
        assert!(ran.stdout.ends_with("It is 3372.\n"), "{ran:?}");
        let mut next = place.command(&["run", "really?", "--thread", "t"]);
        ended(next.env("GOOGLE_ACCESS_TOKEN", "ya29.b")).await.ok();
        assert_eq!(server.accepted().iter().map(opaque).collect::<Vec<_>>(), [0, 1, 2, 3], "{protocol}");
    }
    let place = Place::new();
    let args = ["run", "hi", "--model", "vertex/gemini-3.5-flash"];
    let ran = ended(place.command(&args).env("GOOGLE_ACCESS_TOKEN", "ya29.b")).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stderr.contains("no project for model `vertex/gemini-3.5-flash`: set GOOGLE_CLOUD_PROJECT"),
        "{ran:?}"
    );
    let ran = ended(place.command(&args).env("GOOGLE_CLOUD_PROJECT", "p")).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("GOOGLE_ACCESS_TOKEN_COMMAND"), "{ran:?}");
}

#[tokio::test]
async fn a_token_goes_to_no_server_that_only_a_thread_names() {
    let place = Place::new();
    let elsewhere = "https://elsewhere.example/v1/projects/p/locations/global/publishers";
    let begin = ["run", "hi", "--thread", "t", "--model", "vertex/gemini-3.5-flash", "--base-url", elsewhere];
    let token = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("GOOGLE_ACCESS_TOKEN", "ya29.b").env("GOOGLE_CLOUD_PROJECT", "p");
        command
    };
    place.file("no_retries.toml", "[retry]\nmax_attempts = 1\n");
    ended(&mut token(&[&begin[..], &["--config", "no_retries.toml"]].concat())).await;
    let ran = ended(&mut token(&["run", "on", "--thread", "t"])).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("the key of GOOGLE_ACCESS_TOKEN is not sent unless you name it"), "{ran:?}");
}

#[tokio::test]
async fn a_model_of_a_protocol_needs_a_key_or_a_server_of_it() {
    let place = Place::new();
    let ran = place.run(&["run", "hi", "--model", "anthropic/m"]).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("no server for model `anthropic/m`: set ANTHROPIC_API_KEY"), "{ran:?}");
    // The server of another protocol is not taken.
    let ran = ended(
        place
            .command(&["run", "hi", "--model", "anthropic/m"])
            .env("OPENAI_BASE_URL", "http://127.0.0.1:9/v1"),
    )
    .await;
    assert!(ran.stderr.contains("set ANTHROPIC_API_KEY"), "{ran:?}");
    place.file("wrong.toml", "[models.main]\nmodel = \"m\"\nthinking = \"adaptive\"\n");
    let wrong =
        place.run(&["run", "hi", "--config", "wrong.toml", "--base-url", "http://127.0.0.1:9/v1"]).await;
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("sets `thinking` for a model of the protocol `chat`"), "{wrong:?}");
}
