//! An editor that drives the program through its pipes, and validates each line of it.

use std::{
    collections::{BTreeMap, VecDeque},
    process::Stdio,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::{
    schema::{validate, validate_params, validate_result},
    support::{Place, Ran},
};

/// A limit longer than any test.
const LIMIT: Duration = Duration::from_secs(300);

/// Methods that are not in the stable schema.
const UNSTABLE: [&str; 2] = ["session/fork", "_session/steering"];

/// The running program and its client.
pub(crate) struct Editor {
    pub(crate) child: Child,
    /// The description that the program gave of itself.
    pub(crate) agent: Value,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    /// The methods of unanswered requests.
    sent: BTreeMap<u64, String>,
    next_id: u64,
    /// The lines that were read while another one was awaited.
    unread: VecDeque<Value>,
}

/// A turn, as the client received it.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) updates: Vec<Value>,
    /// The parameters of the permission requests.
    pub(crate) asked: Vec<Value>,
    /// The result or the error.
    pub(crate) end: Result<Value, Value>,
}

impl Turn {
    /// Returns the reason of the end.
    #[track_caller]
    pub(crate) fn stop(&self) -> &str {
        let end = self.end.as_ref().unwrap_or_else(|error| panic!("{error}"));
        end["stopReason"].as_str().unwrap()
    }

    pub(crate) fn of(&self, kind: &str) -> Vec<&Value> {
        self.updates.iter().filter(|update| update["sessionUpdate"] == kind).collect()
    }

    /// Returns the text of the agent.
    pub(crate) fn text(&self) -> String {
        self.of("agent_message_chunk").iter().map(|it| it["content"]["text"].as_str().unwrap()).collect()
    }

    /// Returns the calls and their statuses in order.
    pub(crate) fn statuses(&self) -> Vec<String> {
        let with_status = self.updates.iter().filter(|update| update.get("status").is_some());
        let shown =
            |it: &Value| format!("{} {}", it["toolCallId"].as_str().unwrap(), it["status"].as_str().unwrap());
        with_status.map(shown).collect()
    }
}

impl Editor {
    /// Starts `superstep acp` with a model server.
    pub(crate) async fn start(place: &Place, url: &str) -> Self {
        let capabilities = json!({ "session": { "notices": {}, "compaction": {} } });
        let command = place.command(&["acp", "--base-url", url, "--model", "m", "--no-memory"]);
        Self::with(command, capabilities).await
    }

    /// Starts a program for a client with these abilities.
    pub(crate) async fn with(mut command: Command, capabilities: Value) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()).lines());
        let (sent, unread) = Default::default();
        let mut editor = Self { agent: Value::Null, child, input, output, sent, next_id: 0, unread };
        let hello = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
        let agent = editor.call("initialize", hello).await;
        assert_eq!(agent["protocolVersion"], 1);
        editor.agent = agent["agentInfo"].clone();
        editor
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.input.as_mut().expect("the input is open").write_all(bytes).await.unwrap();
    }

    async fn send(&mut self, message: Value) {
        self.write(format!("{message}\n").as_bytes()).await;
    }

    /// Sends a request, and returns its id.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.sent.insert(id, method.to_owned());
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        id
    }

    /// Sends a request, and returns its result.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        self.turn(id, &[]).await.end.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Sends a request, and returns its error.
    pub(crate) async fn refused(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        self.turn(id, &[]).await.end.expect_err("it is refused")
    }

    pub(crate) async fn cancel(&mut self, session: &str) {
        let params = json!({ "sessionId": session });
        self.send(json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params })).await;
    }

    /// Answers a request of the agent.
    pub(crate) async fn answer(&mut self, request: &Value, result: Value) {
        self.send(json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })).await;
    }

    /// Selects an option of a permission request.
    pub(crate) async fn select(&mut self, request: &Value, option: &str) {
        self.answer(request, json!({ "outcome": { "outcome": "selected", "optionId": option } })).await;
    }

    /// Creates a session in the folder.
    pub(crate) async fn new_session(&mut self, place: &Place) -> String {
        let new = self.call("session/new", json!({ "cwd": place.work(), "mcpServers": [] })).await;
        new["sessionId"].as_str().unwrap().to_owned()
    }

    /// Opens a session by `session/load`, and returns its conversation.
    pub(crate) async fn load(&mut self, place: &Place, session: &str) -> Turn {
        let params = json!({ "sessionId": session, "cwd": place.work(), "mcpServers": [] });
        let id = self.request("session/load", params).await;
        self.turn(id, &[]).await
    }

    /// Sends a prompt, and returns the id of its request.
    pub(crate) async fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{ "type": "text", "text": text }]);
        self.request("session/prompt", json!({ "sessionId": session, "prompt": prompt })).await
    }

    /// Sends a prompt, selects these options one after the other, and reads to the end of the turn.
    pub(crate) async fn ask(&mut self, session: &str, text: &str, options: &[&str]) -> Turn {
        let id = self.prompt(session, text).await;
        self.turn(id, options).await
    }

    /// Reads to the response of a request, and selects these options one after the other.
    pub(crate) async fn turn(&mut self, id: u64, options: &[&str]) -> Turn {
        let (mut updates, mut asked, mut options) = (Vec::new(), Vec::new(), options.iter());
        loop {
            let line = self.next().await;
            match line["method"].as_str() {
                Some("session/update") => updates.push(line["params"]["update"].clone()),
                Some("session/request_permission") => {
                    let option = options.next().unwrap_or_else(|| panic!("a question too many: {line}"));
                    self.select(&line, option).await;
                    asked.push(line["params"].clone());
                }
                Some(_) => {}
                None if line["id"] == id => {
                    assert_eq!(options.next(), None, "a question too few");
                    let end = match line.get("error") {
                        Some(error) => Err(error.clone()),
                        None => Ok(line["result"].clone()),
                    };
                    return Turn { updates, asked, end };
                }
                None => self.unread.push_back(line),
            }
        }
    }

    /// Reads until a line, which is returned. The lines before it are dropped.
    pub(crate) async fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.next().await;
            if is_it(&line) {
                return line;
            }
        }
    }

    /// Reads until the next request of this method.
    pub(crate) async fn asked(&mut self, method: &str) -> Value {
        self.until(|line| line["method"] == method).await
    }

    /// Reads until a text of the agent.
    pub(crate) async fn said(&mut self, text: &str) {
        self.until(|line| line["params"]["update"]["content"]["text"] == text).await;
    }

    /// Returns the next line.
    pub(crate) async fn next(&mut self) -> Value {
        self.next_or_end().await.expect("the program has ended")
    }

    async fn next_or_end(&mut self) -> Option<Value> {
        let line = timeout(LIMIT, self.output.next_line()).await.expect("it goes on").unwrap()?;
        let line = serde_json::from_str(&line).unwrap_or_else(|_| panic!("stdout has: {line}"));
        self.validate(&line);
        Some(line)
    }

    /// Returns a response that was read while another one was awaited, or reads to it.
    pub(crate) async fn response(&mut self, id: u64) -> Value {
        if let Some(at) = self.unread.iter().position(|line| line["id"] == id) {
            return self.unread.remove(at).unwrap();
        }
        self.until(|line| line["id"] == id && line.get("method").is_none()).await
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs");
        let kill = std::process::Command::new("sh").args(["-c", &format!("kill -{name} {id}")]).status();
        assert!(kill.unwrap().success());
    }

    /// Kills the program.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Closes the input.
    pub(crate) fn leave(&mut self) {
        self.input = None;
    }

    /// Closes the input, and waits for the end.
    pub(crate) async fn end(mut self) -> Ran {
        self.leave();
        while self.next_or_end().await.is_some() {}
        let output = timeout(LIMIT, self.child.wait_with_output()).await.expect("it ends").unwrap();
        Ran::of(output)
    }

    fn validate(&mut self, line: &Value) {
        assert_eq!(line["jsonrpc"], "2.0");
        if let Some(method) = line["method"].as_str() {
            let side = if method.starts_with('$') { "protocol" } else { "client" };
            return validate_params(side, method, &line["params"]);
        }
        let method = line["id"].as_u64().and_then(|id| self.sent.remove(&id));
        if let Some(error) = line.get("error") {
            return validate("Error", error);
        }
        let method = method.unwrap_or_else(|| panic!("no request has this response: {line}"));
        if UNSTABLE.contains(&method.as_str()) {
            return;
        }
        let mut result = line["result"].clone();
        if let Some(sessions) = result.pointer_mut("/agentCapabilities/sessionCapabilities") {
            let fork = sessions.as_object_mut().unwrap().remove("fork");
            assert_eq!(fork, Some(json!({})), "an unstable method");
        }
        validate_result("agent", &method, &result);
    }
}
