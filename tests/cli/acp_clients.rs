//! Clients that others wrote drive `superstep acp`, where they are installed: the tests print a note and pass where not.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use superstep_testing::{
    script::{Answer, call, txt},
    wire::WireServer,
};
use tokio::process::Command;

use crate::support::{Place, Ran, ended, ended_with_stdin, serve};

/// Returns the folder of the clients that `just acp-clients` installed, if it has this one.
fn installed(client: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/acp-clients");
    if !folder.join(client).exists() {
        superstep_testing::skipped(&format!("`{client}` is not installed, `just acp-clients` does it"));
        return None;
    }
    Some(folder.canonicalize().unwrap())
}

async fn server() -> WireServer {
    serve([
        call("c1", "read_file", r#"{"path":"notes.txt"}"#),
        call("c2", "write_file", r#"{"path":"a.txt","content":"a"}"#),
        txt("done"),
        Answer::stream().text(["let me see"]).stall(),
    ])
    .await
}

fn agent(url: &str) -> Vec<String> {
    let program = env!("CARGO_BIN_EXE_superstep");
    [program, "acp", "--base-url", url, "--model", "m", "--no-memory"].map(str::to_owned).into()
}

/// Adds the environment of the agent: SDKs pass it on.
fn prepared(place: &Place, program: &Path, args: &[String]) -> Command {
    let mut command = place.bare(program);
    command.args(args);
    command
}

#[track_caller]
fn assert_seen(ran: Ran, place: &Place) {
    let seen: Value = serde_json::from_str(&ran.ok().stdout).unwrap();
    let kinds = ["allow_once", "allow_always", "reject_once"];
    assert_eq!(seen["stops"], json!(["end_turn", "cancelled"]), "{seen}");
    assert_eq!(seen["asked"], json!([["c2", kinds]]), "{seen}");
    assert_eq!(seen["text"], "done", "{seen}");
    assert!(seen["loaded"].as_str().unwrap().starts_with("done"), "{seen}");
    assert_eq!(seen["exit"], 0, "{seen}");
    let calls: Vec<_> = seen["calls"].as_array().unwrap().iter().map(|call| call.as_str().unwrap()).collect();
    let (live, loaded) = calls.split_at(calls.iter().position(|call| *call == "loaded").unwrap());
    assert!(live.contains(&"c1 completed") && live.contains(&"c2 pending"), "{seen}");
    assert_eq!(loaded, ["loaded", "c1 completed", "c2 completed"], "{seen}");
    assert_eq!(std::fs::read_to_string(place.work().join("a.txt")).unwrap(), "a");
}

#[tokio::test]
async fn the_sdk_for_javascript() {
    let Some(folder) = installed("node_modules/@agentclientprotocol/sdk") else { return };
    let (place, server) = (Place::new(), server().await);
    let work = place.work().to_str().unwrap().to_owned();
    let script = ["--input-type=module", "-", &work].map(str::to_owned);
    let mut command =
        prepared(&place, Path::new("node"), &[&script[..], &agent(&server.base_url())].concat());
    command.current_dir(folder);
    assert_seen(ended_with_stdin(command, include_bytes!("acp/clients/client.mjs")).await, &place);
}

#[tokio::test]
async fn the_sdk_for_python() {
    let Some(folder) = installed("venv/bin/python") else { return };
    let (place, server) = (Place::new(), server().await);
    let work = place.work().to_str().unwrap().to_owned();
    let script = ["-", &work].map(str::to_owned);
    let args = [&script[..], &agent(&server.base_url())].concat();
    let command = prepared(&place, &folder.join("venv/bin/python"), &args);
    assert_seen(ended_with_stdin(command, include_bytes!("acp/clients/client.py")).await, &place);
}

#[tokio::test]
async fn acpx() {
    let Some(folder) = installed("node_modules/acpx") else { return };
    let place = Place::new();
    let server = serve([
        call("c1", "write_file", r#"{"path":"a.txt","content":"a"}"#),
        txt("in one go"),
        call("c2", "write_file", r#"{"path":"b.txt","content":"b"}"#),
        txt("first"),
        call("c3", "write_file", r#"{"path":"c.txt","content":"c"}"#),
        txt("second"),
    ])
    .await;
    let agent = agent(&server.base_url()).join(" ");
    let node = std::fs::read_dir(folder.join("node_modules")).unwrap().find_map(|package| {
        let node = package.unwrap().path().join("bin/node");
        node.exists().then_some(node)
    });
    let node = node.expect("node is beside acpx");
    let program = folder.join("node_modules/.bin/acpx");
    let begin = [program.to_str().unwrap(), "--agent", &agent, "--ttl", "10"];
    let acpx = async |words: &[&str]| {
        let args: Vec<_> = begin.iter().chain(words).map(|word| (*word).to_owned()).collect();
        let mut command = prepared(&place, &node, &args);
        ended(command.env("HOME", place.beside("home"))).await
    };
    let once = acpx(&["--approve-all", "--format", "json", "exec", "go"]).await.ok().stdout;
    assert!(once.contains("in one go"), "{once}");
    assert!(place.work().join("a.txt").exists());

    // Commands are processes of their own; one of acpx holds the agent until the session is closed.
    acpx(&["sessions", "new"]).await.ok();
    let first = acpx(&["--approve-all", "--format", "quiet", "prompt", "go"]).await.ok().stdout;
    assert!(first.contains("first") && place.work().join("b.txt").exists(), "{first}");
    acpx(&["set-mode", "read-only"]).await.ok();
    let second = acpx(&["--approve-all", "--format", "quiet", "prompt", "more"]).await.ok().stdout;
    assert!(second.contains("second") && !place.work().join("c.txt").exists(), "{second}");
    let messages = server.requests()[4]["messages"].to_string();
    assert!(messages.contains("first") && !messages.contains("in one go"), "the session goes on: {messages}");
    acpx(&["cancel"]).await;
    acpx(&["sessions", "close"]).await.ok();
    server.check().unwrap();
}
