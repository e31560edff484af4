//! The input of a run.
//!
//! Start at [`RunAgentInput`].

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{error::ApiError, wire::messages};

/// The body of a request. Unknown fields are ignored, and so are the tools of the client: a graph has its own.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunAgentInput {
    pub(crate) thread_id: String,
    pub(crate) run_id: String,
    /// The whole conversation, as the client has it.
    messages: Vec<Message>,
    #[serde(default)]
    state: Value,
    #[serde(default)]
    forwarded_props: Value,
    #[serde(default)]
    resume: Option<Vec<Resume>>,
}

#[derive(Debug, JsonSchema, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    #[serde(default)]
    id: String,
    role: String,
    #[serde(default)]
    content: Value,
    #[serde(default)]
    tool_calls: Vec<Call>,
    #[serde(default)]
    tool_call_id: String,
    #[serde(default)]
    error: Option<String>,
}

#[derive(Debug, JsonSchema, Deserialize)]
struct Call {
    id: String,
    function: Function,
}

#[derive(Debug, JsonSchema, Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    arguments: String,
}

#[derive(Debug, JsonSchema, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resume {
    interrupt_id: String,
    status: ResumeStatus,
    #[serde(default)]
    payload: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ResumeStatus {
    Resolved,
    Cancelled,
}

/// A question of the thread that waits, with its id.
pub(crate) struct Question {
    pub(crate) id: String,
    pub(crate) question: Value,
}

impl RunAgentInput {
    /// Returns the request of the runs API that does the same, on a thread with these values and open questions.
    ///
    /// # Errors
    /// `Ok(Err(..))` if the answers are not one for each open question; 422 for messages that are not valid.
    pub(crate) fn request(
        self,
        graph: &str,
        values: &Map<String, Value>,
        open: &[Question],
    ) -> Result<Result<Value, String>, ApiError> {
        let mut request = json!({
            "assistant_id": graph,
            "if_not_exists": "create",
            "stream_mode": ["values", "messages-tuple", "tasks", "custom"],
            "config": { "configurable": self.forwarded_props.get("configurable").unwrap_or(&Value::Null) },
            "metadata": { "agui_run_id": self.run_id },
        });
        let answers = self.resume.unwrap_or_default();
        // Clients before 1.0 answer by a command for LangGraph.
        let command = &self.forwarded_props["command"]["resume"];
        if answers.is_empty() && !open.is_empty() && !command.is_null() {
            request["command"] = json!({ "resume": command });
            return Ok(Ok(request));
        }
        if !open.is_empty() || !answers.is_empty() {
            let resume = match resume(answers, open) {
                Ok(resume) => resume,
                Err(problem) => return Ok(Err(problem)),
            };
            request["command"] = json!({ "resume": resume });
            return Ok(Ok(request));
        }
        let mut input = Map::new();
        if let Value::Object(state) = self.state {
            // The client sends all of the state that it has; what is as it was is no write.
            let is_new = |(name, value): &(String, Value)| {
                name != messages::CHANNEL && !value.is_null() && values.get(name) != Some(value)
            };
            input.extend(state.into_iter().filter(is_new));
        }
        let known: BTreeSet<&str> = values
            .get(messages::CHANNEL)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|message| message["id"].as_str())
            .collect();
        let new = self.messages.into_iter().filter(|message| !known.contains(&*message.id));
        let new: Vec<Value> = new.filter_map(Message::into_wire).collect();
        input.insert(messages::CHANNEL.to_owned(), new.into());
        request["input"] = input.into();
        Ok(Ok(request))
    }
}

/// Returns the answers by the ids of their questions: one for each, and no other.
fn resume(answers: Vec<Resume>, open: &[Question]) -> Result<Map<String, Value>, String> {
    let mut found = Map::new();
    for Resume { interrupt_id, status, payload } in answers {
        let Some(asked) = open.iter().find(|asked| asked.id == interrupt_id) else {
            return Err(format!("no question `{interrupt_id}` waits for an answer"));
        };
        let answer = match status {
            ResumeStatus::Resolved => payload,
            ResumeStatus::Cancelled if is_approval(&asked.question) => {
                json!({ "deny": "the user cancelled" })
            }
            ResumeStatus::Cancelled => json!({ "cancelled": true }),
        };
        if found.insert(interrupt_id.clone(), answer).is_some() {
            return Err(format!("question `{interrupt_id}` has two answers"));
        }
    }
    match open.iter().find(|asked| !found.contains_key(&asked.id)) {
        Some(missing) => Err(format!("question `{}` waits for an answer; send it in `resume`", missing.id)),
        None => Ok(found),
    }
}

/// Returns whether a question is that of an agent about a call.
pub(crate) fn is_approval(question: &Value) -> bool {
    question["tool"].is_string() && question["call_id"].is_string()
}

impl Message {
    /// Returns the form of the runs API; `None` for what is for user interfaces only.
    fn into_wire(self) -> Option<Value> {
        let kind = match self.role.as_str() {
            "user" => "human",
            "assistant" => "ai",
            "system" | "developer" => "system",
            "tool" => "tool",
            _ => return None,
        };
        let mut wire = json!({ "type": kind, "id": self.id, "content": self.content });
        if self.content.is_null() {
            wire["content"] = "".into();
        }
        if !self.tool_calls.is_empty() {
            let calls = self.tool_calls.into_iter().map(|Call { id, function }| {
                let args =
                    serde_json::from_str::<Map<String, Value>>(&function.arguments).unwrap_or_default();
                json!({ "id": id, "name": function.name, "args": args, "type": "tool_call" })
            });
            wire["tool_calls"] = calls.collect();
        }
        if kind == "tool" {
            wire["tool_call_id"] = self.tool_call_id.into();
            wire["status"] = if self.error.is_some() { "error" } else { "success" }.into();
        }
        Some(wire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(more: Value) -> RunAgentInput {
        let mut body = json!({ "threadId": "t", "runId": "r", "messages": [], "unknown": 1 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(body).unwrap()
    }

    fn open(ids: &[&str]) -> Vec<Question> {
        ids.iter().map(|id| Question { id: (*id).to_owned(), question: json!("?") }).collect()
    }

    #[test]
    fn only_new_messages_and_changed_values_are_written() {
        let values = json!({ "messages": [{ "id": "m1" }], "theme": "dark", "count": 1 });
        let values = values.as_object().unwrap();
        let user = |id: &str| json!({ "id": id, "role": "user", "content": "hi" });
        let messages = json!([user("m1"), user("m2"), { "id": "a", "role": "activity", "content": {} }]);
        let input =
            input(json!({ "messages": messages, "state": { "theme": "light", "count": 1, "messages": [] } }));
        let request = input.request("g", values, &[]).unwrap().unwrap();
        let expected =
            json!({ "messages": [{ "type": "human", "id": "m2", "content": "hi" }], "theme": "light" });
        assert_eq!(request["input"], expected);
    }

    #[test]
    fn each_open_question_has_exactly_one_answer() {
        let answers = |ids: &[&str]| {
            let resume: Vec<_> = ids
                .iter()
                .map(|id| json!({ "interruptId": id, "status": "resolved", "payload": 1 }))
                .collect();
            input(json!({ "resume": resume })).request("g", &Map::new(), &open(&["a", "b"])).unwrap()
        };
        assert_eq!(answers(&["a", "b"]).unwrap()["command"], json!({ "resume": { "a": 1, "b": 1 } }));
        for wrong in [&["a"] as &[&str], &[], &["a", "b", "c"], &["a", "b", "a"]] {
            answers(wrong).unwrap_err();
        }
        let cancelled = json!([{ "interruptId": "a", "status": "cancelled" }]);
        let asked = [Question { id: "a".into(), question: json!({ "tool": "shell", "call_id": "c" }) }];
        let denied =
            input(json!({ "resume": cancelled.clone() })).request("g", &Map::new(), &asked).unwrap().unwrap();
        assert_eq!(denied["command"]["resume"]["a"], json!({ "deny": "the user cancelled" }));
        input(json!({ "resume": cancelled })).request("g", &Map::new(), &[]).unwrap().unwrap_err();
    }
}
