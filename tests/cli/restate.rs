//! Threads on a Restate cluster, of own programs and of the agent's.

use std::{process::Stdio, time::Duration};

use serde_json::{Value, json};
use superstep_testing::script::{call, txt};
use tokio::{process::Command, time::Instant};

use crate::support::{Place, Ran, ended, example, serve};

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

/// The longest start of a worker, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a worker in the background, and waits until it is registered.
async fn started(mut command: Command, url: &str) -> tokio::process::Child {
    let worker = command.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    let address: std::net::SocketAddr = url.parse().unwrap();
    let begun = Instant::now();
    while tokio::net::TcpStream::connect(address).await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "the worker does not start");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    worker
}

#[tokio::test]
async fn a_program_lets_a_worker_run_and_answer() {
    let Some(node) = node::shared() else { return };
    let (place, listen) = (Place::new(), format!("127.0.0.1:{}", node::free_ports::<1>()[0]));
    let url = format!("http://127.0.0.1:{}/own?admin=http://127.0.0.1:{}", node.ingress, node.admin);
    let worker = place.own_command(&["worker", "--trust", "--restate", &url, "--listen", &listen]);
    let _worker = started(worker, &listen).await;
    let own = async |args: &[&str]| place.own(&[args, &["--restate", &url]].concat()).await;
    let input = r#"{"items": [{"name": "tea", "euros": 120}]}"#;
    let asked = registered(async || own(&["run", "orders", "--input", input, "--thread", "o-1"]).await).await;
    assert_eq!(asked.code, Some(6), "{asked:?}");
    assert!(asked.stderr.contains("answer o-1 approve --restate "), "{asked:?}");
    let wrong = own(&["answer", "o-1", "aprove", "true"]).await;
    assert!(wrong.code == Some(2) && wrong.stderr.contains("did you mean `approve`"), "{wrong:?}");
    let paid = own(&["answer", "o-1", "approve", "true", "--json"]).await.ok().lines();
    assert_eq!(
        (&paid[0]["data"]["status"], &paid[0]["data"]["values"]["status"]),
        (&json!("completed"), &json!("paid"))
    );
    let resumed = own(&["resume", "o-1", "--json"]).await.ok().lines();
    assert_eq!(resumed[0]["data"]["values"], paid[0]["data"]["values"]);
    let refused = own(&["run", "orders", "--input", "{}", "--trust"]).await;
    assert!(refused.code == Some(2) && refused.stderr.contains("cannot be used with"), "{refused:?}");
}

/// Repeats a command until a worker is registered.
async fn registered(command: impl AsyncFn() -> Ran) -> Ran {
    let begun = Instant::now();
    loop {
        let ran = command().await;
        if !ran.stderr.contains("not found") || begun.elapsed() > PATIENCE {
            return ran;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_worker_of_the_agent_does_turns_and_accepts_the_decisions_of_its_user() {
    let Some(node) = node::shared() else { return };
    let (place, listen) = (Place::new(), format!("127.0.0.1:{}", node::free_ports::<1>()[0]));
    let write = |id, path| {
        call(
            id,
            "write_file",
            Box::leak(json!({"path": path, "content": "made"}).to_string().into_boxed_str()),
        )
    };
    let model = serve([write("c1", "a.txt"), txt("it is there"), write("c2", "b.txt"), txt("done")]).await;
    let url = format!("http://127.0.0.1:{}/agent?admin=http://127.0.0.1:{}", node.ingress, node.admin);
    let base = model.base_url();
    let work = ["worker", "--restate", &url, "--listen", &listen, "--base-url", &base, "--model", "m"];
    let worker = started(place.command(&work), &listen).await;
    let by = async |user: &str, args: &[&str]| {
        ended(&mut place.command_of(user, &[args, &["--restate", &url]].concat())).await
    };
    let own = place.state_folder().file_name().unwrap().to_string_lossy().into_owned();
    let asked = registered(async || by(&own, &["run", "write it", "--thread", "t"]).await).await;
    assert!(asked.code == Some(6) && asked.stderr.contains("call `c1"), "{asked:?}");
    assert!(asked.stderr.contains("resume t --approve --restate"), "{asked:?}");
    // Another user decides, and the call waits again.
    let other = by("mallory", &["resume", "t", "--approve"]).await;
    assert!(other.code == Some(6) && !place.work().join("a.txt").exists(), "{other:?}");
    let done = by(&own, &["resume", "t", "--approve"]).await.ok();
    assert!(done.stdout.contains("it is there") && place.work().join("a.txt").exists(), "{done:?}");
    let db = url.replacen("http", "restate", 1);
    let state = place.run(&["state", "t", "--json", "--db", &db]).await.ok().lines().remove(0);
    assert_eq!(state["values"]["final_reply"], Value::from("it is there"));
    for (flag, error) in
        [(&["--model", "m"][..], "--model"), (&["--yes"], "--yes"), (&["--from", "1"], "--from")]
    {
        let refused = by(&own, &[&["run", "x", "--thread", "t"], flag].concat()).await;
        assert!(refused.code == Some(2) && refused.stderr.contains(error), "{refused:?}");
    }
    let unknown = by(&own, &["resume", "nothing"]).await;
    assert!(unknown.code == Some(5) && unknown.stderr.contains("does not exist"), "{unknown:?}");

    // A worker that accepts the decisions of everybody.
    drop(worker);
    let worker = started(place.command(&[&work[..], &["--trust-answers"]].concat()), &listen).await;
    let asked = by(&own, &["run", "write another", "--thread", "t"]).await;
    assert_eq!(asked.code, Some(6), "{asked:?}");
    let other = by("mallory", &["resume", "t", "--approve", "--json"]).await.ok();
    assert!(place.work().join("b.txt").exists(), "{other:?}");
    drop(worker);
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
