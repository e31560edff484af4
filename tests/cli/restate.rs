//! Threads of own programs on a Restate cluster.

use std::{process::Stdio, time::Duration};

use serde_json::json;

use crate::support::{Place, ended, example};

#[path = "../../crates/restate/tests/it/node.rs"]
mod node;

/// The maximum number of requests before the worker is registered.
const MAX_TRIES: u32 = 400;

#[tokio::test]
async fn the_worker_of_a_program_runs_threads_which_its_other_commands_show() {
    let Some(node) = node::shared() else { return };
    let place = Place::new();
    let name = format!("restate://127.0.0.1:{}/cli", node.ingress);
    let db = format!("{name}?admin=http://127.0.0.1:{}", node.admin);
    let worker = ["worker", "--db", &db, "--listen", "127.0.0.1:0"];
    let error = format!(
        "the runs and threads of `{name}` may come from someone else; repeat the command with `--trust` to run them"
    );
    place.own(&worker).await.refused(2, &error);
    let mut command = place.own_command(&[&worker[..], &["--trust"]].concat());
    let _worker = command.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    let thread = node.client().namespace("cli").thread("digest", "d-1").input_id("in-1");
    let mut tries = 0;
    let end = loop {
        // Until the worker is registered.
        match thread.run(json!({})).await {
            Ok(end) => break end,
            Err(error) if tries == MAX_TRIES => panic!("{error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
        tries += 1;
    };
    assert_eq!(end.status, "completed");
    let own = async |args: &[&str]| place.own(&[args, &["--db", &db]].concat()).await.ok();
    let state = own(&["state", "d-1"]).await;
    assert!(state.stdout.contains("status      finished"), "{state:?}");
    let history = own(&["history", "d-1", "--json"]).await.lines();
    assert_eq!(history.len() as u64, end.checkpoint.unwrap().0);
    let threads = own(&["threads"]).await;
    assert!(threads.stdout.contains("d-1"), "{threads:?}");
    // A copy in a file, and back under another name.
    place.file("d.jsonl", &own(&["export", "d-1"]).await.stdout.replace("\"d-1\"", "\"d-2\""));
    own(&["import", "d.jsonl"]).await;
    assert_eq!(
        own(&["state", "d-2", "--json"]).await.lines()[0]["values"],
        own(&["state", "d-1", "--json"]).await.lines()[0]["values"]
    );
    own(&["edit", "d-1", "--update", "{}"]).await;
    let checked = place.own(&["db", "check", "--db", &db]).await;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let unnamed = place.own(&["threads", "--db", "restate://"]).await;
    assert_eq!(unnamed.code, Some(2), "{unnamed:?}");
}

#[tokio::test]
async fn the_example_registers_itself_and_runs() {
    let Some(node) = node::shared() else { return };
    let place = Place::new();
    let url = |port| format!("http://127.0.0.1:{port}");
    let mut command = place.bare(&example("restate"));
    let ran = ended(command.env("RESTATE_INGRESS", url(node.ingress)).env("RESTATE_ADMIN", url(node.admin)))
        .await
        .ok();
    let expected = [
        "interrupted: \"send 2 items?\"",
        r#"completed: {"is_approved":true,"items":["tea","milk"]}"#,
        "checkpoint 3 of superstep",
    ];
    for line in expected {
        assert!(ran.stdout.contains(line), "{ran:?}");
    }
}
