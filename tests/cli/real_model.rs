//! The program against a real language model, where one is served.
//!
//! `SUPERSTEP_REAL_MODEL_URL` names the server; without it, llama.cpp's on port 18080 of this machine is looked for.

use std::{
    env,
    io::{self, Write as _},
    time::Duration,
};

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
        // Past the capture of the test harness, so that it is heard.
        let _ = writeln!(
            io::stderr(),
            "\nSKIPPED: no real model is served, see docs/session.md for how it went\n"
        );
        return;
    };
    let place = Place::new();
    // So small a model does not always call the tool; every one of its turns has to end well all the same.
    let mut replies = Vec::new();
    for thread in ["one", "two", "three", "four", "five"] {
        let prompt = "What is 37*91+5? Use the calculate tool.";
        let args = [
            "run",
            prompt,
            "--base-url",
            &url,
            "--model",
            "any",
            "--thread",
            thread,
            "--max-steps",
            "4",
            "--json",
        ];
        let output =
            timeout(LIMIT, place.command(&args).output()).await.expect("the model answers in time").unwrap();
        let lines = Ran::of(output).ok().lines();
        let end = &lines.last().unwrap()["data"];
        assert!(
            ["completed", "limit", "loop_detected"].iter().any(|outcome| end["outcome"] == *outcome),
            "{end}"
        );
        let called =
            lines.iter().find(|line| line["event"] == "tool_end" && line["data"]["result"] == "3372");
        let reply = end["final_reply"].as_str().unwrap().to_owned();
        if called.is_some_and(|called| called["data"]["tool"] == "calculate") && reply.contains("3372") {
            return;
        }
        replies.push(reply);
    }
    panic!("it never called the tool and said its result: {replies:?}");
}
