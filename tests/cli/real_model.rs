//! The program with a real language model, where one is served.
//!
//! `SUPERSTEP_REAL_MODEL_URL` names a server that parses its model's tool calls, `SUPERSTEP_PLAIN_MODEL_URL`
//! one whose model writes them as text. By default, llama.cpp servers on ports 18080 and 18081 of this
//! machine are tried.

use std::{env, fs, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::support::{Place, Ran};

/// A small model on two busy cores is slow.
const LIMIT: Duration = Duration::from_secs(300);

/// Returns the base URL of a server that is healthy.
async fn served(variable: &str, usual: &str) -> Option<String> {
    let url = env::var(variable).unwrap_or_else(|_| usual.to_owned());
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

fn skipped(what: &str) {
    superstep_testing::skipped(&format!("{what}, see docs/session.md for how it went"));
}

/// Sends the question to the model at `url` up to five times, each on a new thread, until it has called the
/// tool and reported its result. Returns the lines of that run. Such a small model does not always succeed;
/// each of its turns must end regularly all the same.
async fn calculated(url: &str) -> Vec<Value> {
    let place = Place::new();
    fs::write(
        place.beside("small.toml"),
        "system_prompt = \"Use the tools to find facts. Answer briefly.\"\n[models.main]\nmax_tokens = 200\n",
    )
    .unwrap();
    let config = place.beside("small.toml");
    let mut replies = Vec::new();
    for thread in ["one", "two", "three", "four", "five"] {
        let prompt = "What is 37*91+5? Use the calculate tool.";
        let config = config.to_str().unwrap();
        let how = ["--config", config, "--thread", thread, "--max-steps", "4", "--json"];
        let args = [&["run", prompt, "--base-url", url, "--model", "any"][..], &how].concat();
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
            return lines;
        }
        replies.push(reply);
    }
    panic!("it never called the tool and said its result: {replies:?}");
}

#[tokio::test]
async fn a_real_model_calls_a_tool_and_quotes_its_result() {
    match served("SUPERSTEP_REAL_MODEL_URL", "http://127.0.0.1:18080/v1").await {
        Some(url) => drop(calculated(&url).await),
        None => skipped("no real model is served"),
    }
}

#[tokio::test]
async fn a_real_model_calls_a_tool_as_text_and_quotes_its_result() {
    let Some(url) = served("SUPERSTEP_PLAIN_MODEL_URL", "http://127.0.0.1:18081/v1").await else {
        return skipped("no real model is served that writes its calls as text");
    };
    let lines = calculated(&url).await;
    assert!(lines.iter().any(|line| line["event"] == "text_calls"), "{lines:?}");
}
