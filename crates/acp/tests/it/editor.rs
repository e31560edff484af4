//! An editor that drives the agent through pipes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Value, json};
use superstep_acp::serve;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines},
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, timeout},
};

use crate::{
    fake::{Fake, Log},
    schema::{validate, validate_params, validate_result},
};

/// The size of a pipe, in bytes.
const PIPE: usize = 64 << 10;

/// Methods and results that are not in the stable schema.
const UNSTABLE: [&str; 2] = ["session/fork", "_session/steering"];

pub(crate) struct Editor {
    pub(crate) log: Arc<Log>,
    /// `None` after [`close`](Self::close).
    input: Option<DuplexStream>,
    /// `None` after [`stop_reading`](Self::stop_reading).
    output: Option<Lines<BufReader<DuplexStream>>>,
    /// The methods of unanswered requests, by the text of their id.
    sent: BTreeMap<String, String>,
    next_id: i64,
    shutdown: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
}

impl Editor {
    /// Connects to an agent that has not received anything.
    pub(crate) fn connect() -> Self {
        let (input, agent_input) = tokio::io::duplex(PIPE);
        let (agent_output, output) = tokio::io::duplex(PIPE);
        let (shutdown, ended) = oneshot::channel::<()>();
        let log = Arc::new(Log::default());
        let of_fake = log.clone();
        let served = tokio::spawn(async move {
            let fake = |client| Fake { client, log: of_fake };
            // A dropped sender is no signal.
            let shutdown = async {
                if ended.await.is_err() {
                    std::future::pending().await
                }
            };
            serve(fake, agent_input, agent_output, shutdown).await;
        });
        let output = Some(BufReader::new(output).lines());
        let (input, shutdown) = (Some(input), Some(shutdown));
        Self { log, input, output, sent: BTreeMap::new(), next_id: 0, shutdown, served }
    }

    /// Connects and initializes.
    pub(crate) async fn start() -> Self {
        let mut editor = Self::connect();
        let capabilities =
            json!({ "elicitation": { "form": {} }, "session": { "notices": {}, "compaction": {} } });
        let params = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
        assert_eq!(editor.call("initialize", params).await["result"]["protocolVersion"], 1);
        editor
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.input.as_mut().expect("the input is open").write_all(bytes).await.unwrap();
    }

    /// Sends a message as one line.
    pub(crate) async fn send(&mut self, message: &Value) {
        if let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) {
            self.sent.insert(id.to_string(), method.to_owned());
        }
        self.write(format!("{message}\n").as_bytes()).await;
    }

    /// Sends a request and returns its id.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        id
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    /// Sends a request and returns its response, which has to be the next line.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        let response = self.next().await;
        assert_eq!(response["id"], id, "{response}");
        response
    }

    pub(crate) async fn prompt(&mut self, session: &str, text: &str) -> i64 {
        let prompt = json!([{ "type": "text", "text": text }]);
        self.request("session/prompt", json!({ "sessionId": session, "prompt": prompt })).await
    }

    /// Sends a prompt and its cancellation in one write.
    pub(crate) async fn prompt_and_cancel(&mut self, session: &str, text: &str) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        self.sent.insert(id.to_string(), "session/prompt".to_owned());
        let params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
        let prompt = json!({ "jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": params });
        let cancel =
            json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } });
        self.write(format!("{prompt}\n{cancel}\n").as_bytes()).await;
        id
    }

    /// Returns the next line, validated.
    pub(crate) async fn next(&mut self) -> Value {
        self.next_or_end().await.expect("the agent has ended")
    }

    /// Returns the text of the next line, which has to be a chunk.
    pub(crate) async fn next_text(&mut self) -> String {
        let line = self.next().await;
        line["params"]["update"]["content"]["text"].as_str().unwrap_or_else(|| panic!("{line}")).to_owned()
    }

    /// Returns the next line; `None` at the end of the output.
    pub(crate) async fn next_or_end(&mut self) -> Option<Value> {
        let output = self.output.as_mut().expect("the output is open");
        let line = timeout(Duration::from_secs(60), output.next_line()).await.expect("a line arrives");
        let line: Value = serde_json::from_str(&line.unwrap()?).unwrap();
        self.validate(&line);
        Some(line)
    }

    /// Checks that nothing arrives.
    pub(crate) async fn expect_silence(&mut self) {
        let output = self.output.as_mut().expect("the output is open");
        let line = timeout(Duration::from_secs(5), output.next_line()).await;
        assert!(line.is_err(), "{line:?}");
    }

    /// Closes the input of the agent.
    pub(crate) fn close(&mut self) {
        self.input = None;
    }

    /// Closes the output of the agent.
    pub(crate) fn stop_reading(&mut self) {
        self.output = None;
    }

    pub(crate) fn signal(&mut self) {
        self.shutdown.take().expect("it was not signalled before").send(()).unwrap();
    }

    /// Waits for the end of the agent, and returns the time since `start`.
    pub(crate) async fn end(self, start: Instant) -> Duration {
        timeout(Duration::from_secs(60), self.served).await.expect("the agent ends").unwrap();
        start.elapsed()
    }

    fn validate(&mut self, line: &Value) {
        assert_eq!(line["jsonrpc"], "2.0");
        if let Some(method) = line["method"].as_str() {
            let side = if method.starts_with('$') { "protocol" } else { "client" };
            return validate_params(side, method, &line["params"]);
        }
        if let Some(error) = line.get("error") {
            validate("Error", error);
            self.sent.remove(&line["id"].to_string());
            return;
        }
        let method = self.sent.remove(&line["id"].to_string());
        let method =
            method.unwrap_or_else(|| panic!("a response without a request, or a second one: {line}"));
        let mut result = line["result"].clone();
        if UNSTABLE.contains(&method.as_str()) {
            return;
        }
        if let Some(sessions) = result.pointer_mut("/agentCapabilities/sessionCapabilities") {
            assert_eq!(
                sessions.as_object_mut().unwrap().remove("fork"),
                Some(json!({})),
                "an unstable method"
            );
        }
        validate_result("agent", &method, &result);
    }
}
