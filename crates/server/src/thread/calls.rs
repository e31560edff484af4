//! Calls of tools, from the messages that make them and those with their results.
//!
//! Start at [`Calls`].

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{
    thread::blocks::{Call, Whole},
    wire::messages::{CHANNEL, message_to_wire},
};

/// The calls of a run.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Those without a result.
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
    pub(super) fn add(&mut self, calls: Vec<Call>) {
        for call in calls {
            if !self.ended.contains(&call.id) {
                self.open.entry(call.id.clone()).or_insert(Open { call, has_begun: false });
            }
        }
    }

    /// Begins the calls that wait for their results in the state with which a task begins: those of the last message of a model.
    pub(super) fn begin(&mut self, input: &Value) -> Vec<Value> {
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
    pub(super) fn end(&mut self, message: &Value) -> Vec<Value> {
        let Some(id) = message["tool_call_id"].as_str() else { return Vec::new() };
        let mut data: Vec<_> = self.begin_one(id).into_iter().collect();
        if self.open.remove(id).is_none() {
            return Vec::new();
        }
        self.ended.insert(id.to_owned());
        let content = &message["content"];
        data.push(if message["failed"] == true {
            json!({ "event": "tool-error", "tool_call_id": id, "message": content })
        } else {
            let output = message_to_wire(message.clone());
            json!({ "event": "tool-finished", "tool_call_id": id, "output": output })
        });
        data
    }

    fn begin_one(&mut self, id: &str) -> Option<Value> {
        let open = self.open.get_mut(id).filter(|open| !open.has_begun)?;
        open.has_begun = true;
        let Call { name, arguments, .. } = &open.call;
        // Clients expect an object.
        let input = match open.call.read() {
            Ok(input) => Value::from(input),
            Err(_) => json!({ "arguments": arguments }),
        };
        Some(json!({ "event": "tool-started", "tool_call_id": id, "tool_name": name, "input": input }))
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
        let begun = calls.begin(&input(json!([model])));
        let expected =
            json!({ "event": "tool-started", "tool_call_id": "a", "tool_name": "add", "input": { "x": 1 } });
        assert_eq!((&begun[0], begun.len()), (&expected, 2));
        assert_eq!(calls.begin(&input(json!([model]))), Vec::<Value>::new());
        let result = json!({ "role": "tool", "tool_call_id": "a", "content": "2", "id": "r" });
        let ended = calls.end(&result);
        assert_eq!(
            (&ended[0]["event"], &ended[0]["output"]["content"]),
            (&json!("tool-finished"), &json!("2"))
        );
        assert_eq!(calls.end(&result), Vec::<Value>::new());
        let failed = json!({ "role": "tool", "tool_call_id": "b", "content": "no", "failed": true });
        assert_eq!(calls.end(&failed)[0]["event"], "tool-error");
    }

    #[test]
    fn only_calls_that_wait_begin() {
        let model =
            json!({ "role": "assistant", "tool_calls": [{ "id": "a", "name": "add", "arguments": "" }] });
        let result = json!({ "role": "tool", "tool_call_id": "a", "content": "2" });
        let user = json!({ "role": "user", "content": "never mind" });
        for messages in [json!([model, result]), json!([model, user]), json!([]), json!("text")] {
            assert_eq!(Calls::default().begin(&input(messages)), Vec::<Value>::new());
        }
    }
}
