//! Calls of tools, from the messages that make them and those with their results.
//!
//! Start at [`Calls`].

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::{
    events::event::{Kind, PartKind},
    wire::messages::CHANNEL,
};

/// The parts of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<Call>,
}

/// A call of a tool, with its arguments as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// A change of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CallChange {
    /// The call began, with its arguments as an object.
    Began { id: String, name: String, input: Value },
    /// The call has this result, a stored message.
    Ended { id: String, name: String, message: Value },
}

/// The calls of a run.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// The calls without a result.
    open: BTreeMap<String, Open>,
    ended: BTreeSet<String>,
}

#[derive(Debug)]
struct Open {
    call: Call,
    has_begun: bool,
}

impl Calls {
    /// Adds the calls of a message.
    pub(crate) fn add(&mut self, calls: Vec<Call>) {
        for call in calls {
            if !self.ended.contains(&call.id) {
                self.open.entry(call.id.clone()).or_insert(Open { call, has_begun: false });
            }
        }
    }

    /// Begins the calls that wait for their results in the state with which a task begins: those of the last message of a model.
    pub(crate) fn begin(&mut self, input: &Value) -> Vec<CallChange> {
        let mut answered = BTreeSet::new();
        for message in input[CHANNEL].as_array().into_iter().flatten().rev() {
            match message["role"].as_str() {
                Some("tool") => answered.extend(message["tool_call_id"].as_str()),
                Some("assistant") => {
                    let mut waiting = Whole::of(message).calls;
                    waiting.retain(|call| !answered.contains(&*call.id));
                    let ids: Vec<_> = waiting.iter().map(|call| call.id.clone()).collect();
                    self.add(waiting);
                    return ids.iter().filter_map(|id| self.begin_one(id)).collect();
                }
                _ => break,
            }
        }
        Vec::new()
    }

    /// Ends the call of a message with a result, in its stored form.
    pub(crate) fn end(&mut self, message: &Value) -> Vec<CallChange> {
        let Some(id) = message["tool_call_id"].as_str() else { return Vec::new() };
        let mut changes: Vec<_> = self.begin_one(id).into_iter().collect();
        let Some(open) = self.open.remove(id) else { return Vec::new() };
        self.ended.insert(id.to_owned());
        let (id, name) = (id.to_owned(), open.call.name);
        changes.push(CallChange::Ended { id, name, message: message.clone() });
        changes
    }

    /// Returns the changes of calls in an event of a run.
    pub(crate) fn of_event(&mut self, kind: &Kind) -> Vec<CallChange> {
        match kind {
            Kind::TaskStart { input, .. } => self.begin(input),
            Kind::Message(part) if part.kind == PartKind::Full && part.data["role"] == "tool" => {
                let mut message = part.data.clone();
                message["id"] = part.id.as_str().into();
                self.end(&message)
            }
            Kind::Update { writes, .. } => {
                let mut changes = Vec::new();
                for message in writes[CHANNEL].as_array().into_iter().flatten() {
                    match message["role"].as_str() {
                        Some("assistant") => self.add(Whole::of(message).calls),
                        Some("tool") => changes.extend(self.end(message)),
                        _ => {}
                    }
                }
                changes
            }
            _ => Vec::new(),
        }
    }

    fn begin_one(&mut self, id: &str) -> Option<CallChange> {
        let open = self.open.get_mut(id).filter(|open| !open.has_begun)?;
        open.has_begun = true;
        let Call { id, name, arguments } = open.call.clone();
        // Clients expect an object.
        let input = match open.call.read() {
            Ok(input) => input.into(),
            Err(_) => json!({ "arguments": arguments }),
        };
        Some(CallChange::Began { id, name, input })
    }
}

impl Whole {
    /// Returns the parts of a stored message.
    pub(crate) fn of(message: &Value) -> Self {
        let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let calls = calls.map(|call| Call {
            id: text(call, "id"),
            name: text(call, "name"),
            arguments: text(call, "arguments"),
        });
        let (calls, reasoning) = (calls.collect(), text(message, "reasoning"));
        Self { text: text(message, "content"), reasoning, calls }
    }
}

impl Call {
    /// Returns the arguments as an object; none for an empty text.
    pub(crate) fn read(&self) -> serde_json::Result<Map<String, Value>> {
        if self.arguments.is_empty() { Ok(Map::new()) } else { serde_json::from_str(&self.arguments) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(messages: Value) -> Value {
        json!({ "messages": messages })
    }

    #[test]
    fn a_call_begins_once_and_ends_with_its_result() {
        let mut calls = Calls::default();
        let model = json!({ "role": "assistant", "tool_calls": [
            { "id": "a", "name": "add", "arguments": "{\"x\":1}" },
            { "id": "b", "name": "add", "arguments": "" },
        ]});
        let began = |id: &str, input: Value| CallChange::Began { id: id.into(), name: "add".into(), input };
        let begun = calls.begin(&input(json!([model])));
        assert_eq!(begun, [began("a", json!({ "x": 1 })), began("b", json!({}))]);
        assert_eq!(calls.begin(&input(json!([model]))), []);
        let result = json!({ "role": "tool", "tool_call_id": "a", "content": "2", "id": "r" });
        let ended = CallChange::Ended { id: "a".into(), name: "add".into(), message: result.clone() };
        assert_eq!(calls.end(&result), [ended]);
        assert_eq!(calls.end(&result), []);
    }

    #[test]
    fn only_calls_that_wait_begin() {
        let model =
            json!({ "role": "assistant", "tool_calls": [{ "id": "a", "name": "add", "arguments": "" }] });
        let result = json!({ "role": "tool", "tool_call_id": "a", "content": "2" });
        let user = json!({ "role": "user", "content": "never mind" });
        for messages in [json!([model, result]), json!([model, user]), json!([]), json!("text")] {
            assert_eq!(Calls::default().begin(&input(messages)), []);
        }
    }
}
