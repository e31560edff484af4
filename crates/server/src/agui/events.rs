//! The events of a run in the form of AG-UI.
//!
//! Clients throw at content without its start, at a second start, and at an end with something open, so the projection knows what is
//! open.
//!
//! Start at [`Projection`].

use std::collections::{BTreeMap, BTreeSet};

use axum::body::Bytes;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use superstep_graph::Interrupt;
use superstep_llm::media::Media;

use crate::{
    agui::input::is_approval,
    events::event::{Kind, MessagePart, PartKind, RunEvent},
    wire::{media::to_part, messages},
};

/// The version of the protocol.
const VERSION: &str = "1.0";

/// The end of a run.
pub(crate) enum End {
    Success,
    Cancelled,
    Interrupted(Vec<Interrupt>),
    Failed { code: String, message: String },
}

/// Translates the events of a run, from its first on.
pub(crate) struct Projection {
    thread: String,
    run: String,
    /// The messages of the thread that the client has, or has received.
    known: BTreeSet<String>,
    /// The newest state without its messages; `None` before the first one.
    state: Option<Map<String, Value>>,
    messages: Vec<Value>,
    steps: BTreeSet<String>,
    /// The part of a message that is open.
    open: Option<Open>,
    /// The number of times that each message was begun again, because its attempt was discarded.
    discarded: BTreeMap<String, u32>,
    /// The calls whose start the client has, and which have no result yet.
    calls: BTreeSet<String>,
    ready: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Open {
    Reasoning(String),
    Text(String),
    Call { id: String, index: u64 },
}

impl Projection {
    pub(crate) fn new(thread: String, run: String) -> Self {
        Self {
            thread,
            run,
            known: BTreeSet::new(),
            state: None,
            messages: Vec::new(),
            steps: BTreeSet::new(),
            open: None,
            discarded: BTreeMap::new(),
            calls: BTreeSet::new(),
            ready: Vec::new(),
        }
    }

    /// Begins the stream.
    pub(crate) fn begin(&mut self) -> Bytes {
        let (thread, run) = (self.thread.clone(), self.run.clone());
        self.push("RUN_STARTED", json!({ "threadId": thread, "runId": run, "protocolVersion": VERSION }));
        self.take()
    }

    /// Translates an event of the graph of the run.
    pub(crate) fn event(&mut self, event: &RunEvent) -> Bytes {
        if event.path.is_root() {
            match &event.kind {
                Kind::Values { values } | Kind::Standing { values, .. } | Kind::Paused { values, .. } => {
                    self.values(values);
                }
                Kind::TaskStart { task, .. } => self.begin_step(&task.node),
                Kind::TaskEnd { task, .. } => self.end_step(&task.node),
                Kind::Custom { data, .. } => self.push("CUSTOM", json!({ "name": "custom", "value": data })),
                Kind::Message(part) => self.message(part),
                _ => {}
            }
        }
        self.take()
    }

    /// Ends the stream.
    pub(crate) fn end(&mut self, end: End) -> Bytes {
        self.close();
        for step in std::mem::take(&mut self.steps) {
            self.push("STEP_FINISHED", json!({ "stepName": step }));
        }
        if self.state.is_some() {
            let messages: Vec<_> = self.messages.iter().filter_map(message_to_wire).collect();
            self.push("MESSAGES_SNAPSHOT", json!({ "messages": messages }));
        }
        let outcome = match end {
            End::Success => json!({ "type": "success" }),
            End::Cancelled => json!({ "type": "cancelled" }),
            End::Interrupted(asked) => {
                for Interrupt { question, .. } in &asked {
                    // The form before 1.0, which clients of both do not show twice.
                    let value = question.as_str().map_or_else(|| question.to_string(), str::to_owned);
                    self.push("CUSTOM", json!({ "name": "on_interrupt", "value": value }));
                }
                json!({ "type": "interrupt", "interrupts": asked.iter().map(interrupt).collect::<Vec<_>>() })
            }
            End::Failed { code, message } => {
                self.push("RUN_ERROR", json!({ "message": message, "code": code }));
                return self.take();
            }
        };
        let (thread, run) = (self.thread.clone(), self.run.clone());
        self.push("RUN_FINISHED", json!({ "threadId": thread, "runId": run, "outcome": outcome }));
        self.take()
    }

    fn push(&mut self, kind: &str, mut data: Value) {
        data["type"] = kind.into();
        self.ready.push(data);
    }

    fn take(&mut self) -> Bytes {
        // One line end: the official client rejects two-byte ones.
        self.ready.drain(..).map(|event| format!("data: {event}\n\n")).collect::<String>().into()
    }

    fn values(&mut self, values: &Map<String, Value>) {
        let mut state = values.clone();
        let all = match state.remove(messages::CHANNEL) {
            Some(Value::Array(all)) => all,
            _ => Vec::new(),
        };
        if self.state.is_some() {
            self.close();
            all.iter().for_each(|message| self.whole(message));
        } else {
            // The first values are those that the run found, with its input.
            self.known.extend(all.iter().filter_map(|message| message["id"].as_str()).map(str::to_owned));
        }
        if self.state.as_ref() != Some(&state) {
            self.push("STATE_SNAPSHOT", json!({ "snapshot": state }));
            self.state = Some(state);
        }
        self.messages = all;
    }

    /// Sends a stored message that the client does not have.
    fn whole(&mut self, message: &Value) {
        let (Some(id), Some(role)) = (message["id"].as_str(), message["role"].as_str()) else { return };
        if !self.known.insert(id.to_owned()) {
            return;
        }
        let text = message["content"].as_str().unwrap_or_default();
        match role {
            "assistant" => {
                self.piece(id, "reasoning", message["reasoning"].as_str().unwrap_or_default());
                self.piece(id, "content", text);
                let calls = message["tool_calls"].as_array().into_iter().flatten();
                for (index, call) in (0..).zip(calls) {
                    self.call(id, index, call);
                }
                self.close();
            }
            "tool" => {
                let call = message["tool_call_id"].as_str().unwrap_or_default();
                if self.calls.remove(call) {
                    let result =
                        json!({ "messageId": id, "toolCallId": call, "content": text, "role": "tool" });
                    self.push("TOOL_CALL_RESULT", result);
                }
            }
            _ => {}
        }
    }

    fn message(&mut self, part: &MessagePart) {
        let MessagePart { id, kind, data, .. } = part;
        match kind {
            PartKind::Chunk => {
                let (reasoning, text) = part.texts();
                self.known.insert(id.clone());
                self.piece(id, "reasoning", reasoning);
                self.piece(id, "content", text);
                for call in data["tool_calls"].as_array().into_iter().flatten() {
                    self.call(id, call["index"].as_u64().unwrap_or(0), call);
                }
            }
            PartKind::Discarded => {
                self.close();
                *self.discarded.entry(id.clone()).or_default() += 1;
            }
            PartKind::Full => {
                self.close();
                let mut message = data.clone();
                message["id"] = id.as_str().into();
                self.whole(&message);
            }
        }
    }

    /// Returns the id of the attempt of a message that is sent now. The last snapshot has the stored one.
    fn shown(&self, id: &str) -> String {
        match self.discarded.get(id) {
            Some(attempt) => format!("{id}~{}", attempt + 1),
            None => id.to_owned(),
        }
    }

    fn piece(&mut self, id: &str, field: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        let id = self.shown(id);
        if field == "reasoning" {
            let id = format!("{id}:reasoning");
            if self.opens(&Open::Reasoning(id.clone())) {
                self.push("REASONING_START", json!({ "messageId": id }));
                self.push("REASONING_MESSAGE_START", json!({ "messageId": id, "role": "reasoning" }));
            }
            self.push("REASONING_MESSAGE_CONTENT", json!({ "messageId": id, "delta": text }));
        } else {
            if self.opens(&Open::Text(id.clone())) {
                self.push("TEXT_MESSAGE_START", json!({ "messageId": id, "role": "assistant" }));
            }
            self.push("TEXT_MESSAGE_CONTENT", json!({ "messageId": id, "delta": text }));
        }
    }

    /// Sends a call, or a piece of the one that is open.
    fn call(&mut self, message: &str, index: u64, call: &Value) {
        if let (Some(id), Some(name)) = (call["id"].as_str(), call["name"].as_str()) {
            let id = id.to_owned();
            if self.opens(&Open::Call { id: id.clone(), index }) {
                let parent = self.shown(message);
                let start = json!({ "toolCallId": id, "toolCallName": name, "parentMessageId": parent });
                self.push("TOOL_CALL_START", start);
                self.calls.insert(id);
            }
        }
        let Some(Open::Call { id, index: open }) = &self.open else { return };
        let delta = call["arguments"].as_str().unwrap_or_default();
        if *open == index && !delta.is_empty() {
            let args = json!({ "toolCallId": id, "delta": delta });
            self.push("TOOL_CALL_ARGS", args);
        }
    }

    /// Opens a part after the end of the one before it. Returns whether it is a new one.
    fn opens(&mut self, part: &Open) -> bool {
        if self.open.as_ref() == Some(part) {
            return false;
        }
        self.close();
        self.open = Some(part.clone());
        true
    }

    fn close(&mut self) {
        match self.open.take() {
            None => {}
            Some(Open::Reasoning(id)) => {
                self.push("REASONING_MESSAGE_END", json!({ "messageId": id }));
                self.push("REASONING_END", json!({ "messageId": id }));
            }
            Some(Open::Text(id)) => self.push("TEXT_MESSAGE_END", json!({ "messageId": id })),
            Some(Open::Call { id, .. }) => self.push("TOOL_CALL_END", json!({ "toolCallId": id })),
        }
    }

    fn begin_step(&mut self, node: &str) {
        // Tasks of one node at the same time are one step.
        if self.steps.insert(node.to_owned()) {
            self.close();
            self.push("STEP_STARTED", json!({ "stepName": node }));
        }
    }

    fn end_step(&mut self, node: &str) {
        if self.steps.remove(node) {
            self.close();
            self.push("STEP_FINISHED", json!({ "stepName": node }));
        }
    }
}

/// Returns a question. Fields without a value are left out, because clients reject null.
fn interrupt(asked: &Interrupt) -> Value {
    let question = &asked.question;
    let mut wire = json!({ "id": asked.id, "reason": "input", "metadata": { "value": question } });
    let text = question.as_str().or(question["question"].as_str());
    if let Some(text) = text {
        wire["message"] = text.into();
    }
    if is_approval(question) {
        (wire["reason"], wire["toolCallId"]) = ("tool_call".into(), question["call_id"].clone());
    }
    let schema = json!(asked.schema);
    if schema.is_object() {
        wire["responseSchema"] = schema;
    }
    wire
}

/// Returns a stored message; `None` for a value that has no author.
fn message_to_wire(message: &Value) -> Option<Value> {
    let role = message["role"].as_str()?;
    let mut wire = json!({ "id": message["id"], "role": role, "content": message["content"] });
    if role == "user"
        && let Ok(media) = Vec::<Media>::deserialize(&message["media"])
    {
        let text = (message["content"] != "").then(|| json!({ "type": "text", "text": message["content"] }));
        wire["content"] = text.into_iter().chain(media.iter().map(to_part)).collect();
    }
    if role == "tool" {
        wire["toolCallId"] = message["tool_call_id"].clone();
        if message["failed"] == true {
            wire["error"] = message["content"].clone();
        }
    }
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let calls: Vec<_> = calls
        .map(|call| {
            let function = json!({ "name": call["name"], "arguments": call["arguments"] });
            json!({ "id": call["id"], "type": "function", "function": function })
        })
        .collect();
    if !calls.is_empty() {
        wire["toolCalls"] = calls.into();
    }
    Some(wire)
}
