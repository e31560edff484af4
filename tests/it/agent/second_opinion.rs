//! An independent mock server that breaks its answers in every known way, and judges the client's reactions.
//!
//! `SUPERSTEP_LLMOCK` names the program; by default, that of `just llmock` is used.

use std::{env, net::SocketAddr, path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use serde_json::{Value, json};
use superstep::{
    agent::{Agent, AgentOutcome, ReactConfig, Reply},
    llm::{ApiKey, ModelRetry, OpenAiConfig, OpenAiModel, Timeouts},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::{Child, Command},
    time::{sleep, timeout},
};

use super::{kit::Kit, real};
use crate::support::reserved_port;

const LIMIT: Duration = Duration::from_secs(60);

/// The server, until it is dropped.
struct Mock {
    address: SocketAddr,
    _server: Child,
    _folder: tempfile::TempDir,
}

impl Mock {
    /// Returns `None` if it is not installed.
    async fn start() -> Option<Self> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/llmock/bin/llmock");
        let program = env::var_os("SUPERSTEP_LLMOCK").map(PathBuf::from).or(root.exists().then_some(root))?;
        let address = SocketAddr::from(([127, 0, 0, 1], reserved_port()));
        let folder = tempfile::tempdir().unwrap();
        let server = Command::new(program.canonicalize().unwrap())
            .args([
                "serve",
                "--port",
                &address.port().to_string(),
                "--log-level",
                "error",
                "--tool-mode",
                "off",
            ])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let ready = async {
            while TcpStream::connect(address).await.is_err() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(LIMIT, ready).await.expect("llmock starts");
        Some(Self { address, _server: server, _folder: folder })
    }

    async fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let head = format!(
            "{method} /_llmock/{path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// Returns the agent's reply to `prompt` with these behaviours of the server; every behaviour is used.
    async fn reply(&self, prompt: &str, behaviors: Value) -> Reply {
        self.ask("POST", "scenario", json!({ "behaviors": behaviors })).await;
        let quick = |ms| Duration::from_millis(ms);
        let config = OpenAiConfig::new(format!("http://{}/v1", self.address), ApiKey::new("sk-test"), "m");
        let timeouts = Timeouts { idle: quick(1_000), ..Timeouts::default() };
        let model = OpenAiModel::new(OpenAiConfig { timeouts, ..config }).unwrap();
        let retry = ModelRetry { base: quick(200), ..ModelRetry::default() };
        let agent = Agent::builder(Arc::new(model))
            .tools(Kit::default().tools(&["echo"]))
            .config(ReactConfig { retry, ..ReactConfig::default() })
            .build()
            .unwrap();
        let reply = timeout(LIMIT, agent.ask(prompt)).await.expect("it ends").unwrap();
        let pending = self.ask("GET", "scenario", Value::Null).await;
        assert_eq!(pending["pending"], json!([]), "{prompt}: not everything happened");
        reply
    }

    /// Returns the number of requests since the last call.
    async fn requests(&self) -> u64 {
        let requests = self.ask("GET", "requests", Value::Null).await["count"].as_u64().unwrap();
        let verdict = self.ask("GET", "verdict", Value::Null).await;
        // Its warnings depend on whether it saw the end of one request before the start of the next one.
        assert_eq!(verdict["errors"], 0, "its verdict: {verdict:#}");
        self.ask("DELETE", "requests", Value::Null).await;
        requests
    }
}

#[test]
fn a_server_of_others_finds_nothing_wrong_with_the_client() {
    real(async {
        let Some(mock) = Mock::start().await else {
            superstep_testing::skipped("llmock is not installed, `just llmock` does it");
            return;
        };
        failures_before_the_answer(&mock).await;
        failures_of_the_request(&mock).await;
        failures_in_the_answer(&mock).await;
        odd_tool_calls(&mock).await;
    });
}

async fn failures_before_the_answer(mock: &Mock) {
    let limited = json!([{"type": "fail", "status": 429, "retry_after": 0.3, "times": 2}]);
    assert_eq!(mock.reply("limited", limited).await.outcome, AgentOutcome::Completed);
    assert_eq!(mock.requests().await, 3);
    for status in [408, 409, 500, 502, 503, 504, 529] {
        let failing = json!([{"type": "fail", "status": status, "times": 3}]);
        let reply = mock.reply(&format!("failing with {status}"), failing).await;
        assert_eq!(reply.outcome, AgentOutcome::Completed, "{status}");
        assert_eq!(mock.requests().await, 4, "{status}");
    }
    let down = json!([{"type": "fail", "status": 503, "times": 4}]);
    assert_eq!(mock.reply("down", down).await.outcome, AgentOutcome::LlmError);
    assert_eq!(mock.requests().await, 4, "attempts are bounded");
    for slow in ["delay", "slow_first_token"] {
        let slowly = json!([{"type": slow, "seconds": 0.3}]);
        assert_eq!(mock.reply(slow, slowly).await.outcome, AgentOutcome::Completed);
        assert_eq!(mock.requests().await, 1, "{slow}");
    }
}

async fn failures_of_the_request(mock: &Mock) {
    for status in [400, 401, 403, 404, 422] {
        let failing = json!([{"type": "fail", "status": status}]);
        let reply = mock.reply(&format!("refused with {status}"), failing).await;
        assert_eq!(reply.outcome, AgentOutcome::LlmError);
        assert_eq!(mock.requests().await, 1, "{status}");
    }
}

async fn failures_in_the_answer(mock: &Mock) {
    for kind in ["truncate", "disconnect", "malformed", "stall"] {
        for after_chunks in [0, 2] {
            let prompt = format!("{kind} after {after_chunks}");
            let whole = "it is all there, from the first word to the last one";
            let behaviors = json!([
                {"type": "stream_fault", "kind": kind, "after_chunks": after_chunks, "stall_seconds": 5.0},
                {"type": "reply", "text": whole, "times": 2},
            ]);
            let reply = mock.reply(&prompt, behaviors).await;
            assert_eq!((reply.text.as_str(), mock.requests().await), (whole, 2), "{prompt}");
        }
    }
}

async fn odd_tool_calls(mock: &Mock) {
    for kind in ["malformed_arguments", "unknown_tool"] {
        let reply = mock.reply(kind, json!([{"type": "tool_fault", "kind": kind}])).await;
        assert_eq!(reply.outcome, AgentOutcome::Completed, "{kind}");
        assert!(!reply.metadata.tools_used.contains(&"nope".to_owned()));
        assert_eq!(mock.requests().await, 2, "{kind}: the model is told, and answers");
    }
    let cut = json!([
        {"type": "reply", "text": "one ", "finish_reason": "length"},
        {"type": "reply", "text": "two"},
    ]);
    let reply = mock.reply("cut off", cut).await;
    assert_eq!((reply.text.as_str(), mock.requests().await), ("one two", 2));
    let called = json!([
        {"type": "reply", "tool_calls": [{"name": "echo", "arguments": {"x": "1"}}], "times": 2},
        {"type": "stream_fault", "kind": "truncate", "after_chunks": 1},
    ]);
    let reply = mock.reply("a call that breaks off", called).await;
    assert_eq!(reply.metadata.tools_used, ["echo"], "it is executed once");
    mock.requests().await;
    let long =
        json!([{"type": "fail", "status": 400, "code": "context_length_exceeded", "message": "too long"}]);
    let reply = mock.reply("too long", long).await;
    assert!(reply.text.contains("too long"), "{}", reply.text);
}
