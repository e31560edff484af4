//! The program against a real language model, where one is served.
//!
//! `SUPERSTEP_REAL_MODEL_URL` names the server; without it, llama.cpp's on port 18080 of this machine is looked for.

use std::{env, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::support::{Place, Ran};

/// A small model on two busy cores takes its time.
const LIMIT: Duration = Duration::from_secs(300);

/// The base URL of a server that is healthy.
async fn served() -> Option<String> {
    let url = env::var("SUPERSTEP_REAL_MODEL_URL").unwrap_or_else(|_| "http://127.0.0.1:18080/v1".to_owned());
    let host = url.strip_prefix("http://")?.split('/').next()?.to_owned();
    let healthy = async {
        let mut stream = TcpStream::connect(&host).await.ok()?;
        let request = format!("GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        answer.starts_with("HTTP/1.1 200").then_some(())
    };
    timeout(Duration::from_secs(2), healthy).await.ok().flatten().map(|()| url)
}

#[tokio::test]
async fn a_real_model_calls_a_tool_and_says_its_result() {
    let Some(url) = served().await else {
        eprintln!("SKIPPED: no real model is served; docs/session.md shows what this test would have seen");
        return;
    };
    let place = Place::new();
    let prompt = "What is 37*91+5? Use the calculate tool.";
    let args = [
        "run",
        prompt,
        "--base-url",
        &url,
        "--model",
        "any",
        "--thread",
        "sum",
        "--max-steps",
        "4",
        "--json",
    ];
    let output =
        timeout(LIMIT, place.command(&args).output()).await.expect("the model answers in time").unwrap();
    let ran = Ran::of(output).ok();
    let lines = ran.lines();
    let called = lines.iter().find(|line| line["event"] == "tool_end").expect("it calls the tool");
    assert_eq!((&called["data"]["tool"], &called["data"]["result"]), (&"calculate".into(), &"3372".into()));
    let end = &lines.last().unwrap()["data"];
    assert_eq!(end["outcome"], "completed");
    let reply = end["final_reply"].as_str().unwrap();
    assert!(reply.contains("3372"), "{reply}");
}
