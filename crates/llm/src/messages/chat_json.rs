//! Messages in the JSON form of chat-completions, for exchange with other programs.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{Message, Role, ToolCall};

/// A JSON value that is not a valid chat message.
#[derive(thiserror::Error)]
#[error("invalid chat message: {problem}")]
pub struct ChatJsonError {
    problem: String,
    #[source]
    source: Option<serde_json::Error>,
}

crate::debug_by_chain!(ChatJsonError);

#[derive(Deserialize)]
struct Chat {
    role: String,
    #[serde(default)]
    content: Value,
    #[serde(default)]
    reasoning_content: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<Call>>,
    #[serde(default)]
    tool_call_id: Option<String>,
}

#[derive(Deserialize)]
struct Call {
    id: String,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    arguments: Value,
}

impl Message {
    /// Converts the message to an entry of `messages` in a chat-completions request. The model's output is
    /// not changed; the mark of synthetic messages is left out.
    ///
    /// ```
    /// # use superstep_llm::Message;
    /// let result = Message::tool("c1", "5");
    /// assert_eq!(result.to_chat_json().to_string(), r#"{"content":"5","role":"tool","tool_call_id":"c1"}"#);
    /// ```
    pub fn to_chat_json(&self) -> Value {
        let only_calls = self.content.is_empty() && !self.tool_calls.is_empty();
        let mut chat = Map::from_iter([
            ("role".to_owned(), json!(self.role)),
            ("content".to_owned(), if only_calls { Value::Null } else { json!(self.content) }),
        ]);
        if !self.reasoning.is_empty() {
            chat.insert("reasoning_content".to_owned(), json!(self.reasoning));
        }
        if !self.tool_calls.is_empty() {
            let calls = self.tool_calls.iter().map(|call| {
                let function = json!({ "name": call.name, "arguments": call.arguments });
                json!({ "id": call.id, "type": "function", "function": function })
            });
            chat.insert("tool_calls".to_owned(), calls.collect());
        }
        if self.role == Role::Tool {
            chat.insert("tool_call_id".to_owned(), json!(self.tool_call_id));
        }
        Value::Object(chat)
    }

    /// Parses the output of [`to_chat_json`](Self::to_chat_json), and common variants: content in parts, of
    /// which the texts are used; arguments as JSON instead of text; the role `developer`, which means system.
    ///
    /// # Errors
    /// [`ChatJsonError`] if it is not such a message.
    pub fn from_chat_json(chat: &Value) -> Result<Self, ChatJsonError> {
        let wrong = |problem: String| ChatJsonError { problem, source: None };
        let Chat { role, content, reasoning_content, tool_calls, tool_call_id } = Chat::deserialize(chat)
            .map_err(|source| ChatJsonError {
                problem: "its fields do not fit".to_owned(),
                source: Some(source),
            })?;
        let role = match role.as_str() {
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" => Role::Tool,
            role => return Err(wrong(format!("unknown role `{role}`"))),
        };
        let content = match content {
            Value::Null => String::new(),
            Value::String(text) => text,
            Value::Array(parts) => {
                let texts: Option<Vec<&str>> = parts.iter().map(|part| part["text"].as_str()).collect();
                texts.ok_or_else(|| wrong("it has parts that are not text".to_owned()))?.concat()
            }
            _ => return Err(wrong("its content is neither text nor parts".to_owned())),
        };
        let calls = tool_calls.unwrap_or_default().into_iter().map(|Call { id, function }| {
            let arguments = match function.arguments {
                Value::Null => String::new(),
                Value::String(text) => text,
                other => other.to_string(),
            };
            ToolCall::new(id, function.name, arguments)
        });
        Ok(Self::user(content).with_tool_calls(calls).with(|message| {
            message.role = role;
            message.reasoning = reasoning_content.unwrap_or_default();
            message.tool_call_id = tool_call_id.unwrap_or_default();
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_written_and_read_losslessly() {
        let thought = Message::assistant("").with_tool_calls([ToolCall::new("c1", "add", "{\"a\": 2}")]);
        let thought = thought.with(|message| message.reasoning = "sum".to_owned());
        for message in [
            Message::system("s"),
            Message::user("u"),
            thought,
            Message::tool("c1", "2"),
            Message::assistant(""),
        ] {
            let json = message.to_chat_json();
            assert_eq!(Message::from_chat_json(&json).unwrap(), message, "{json}");
        }
    }

    #[test]
    fn messages_of_other_programs_are_read() {
        let read = |json: Value| Message::from_chat_json(&json).unwrap();
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        assert_eq!(read(json!({"role": "user", "content": parts})).content, "ab");
        assert_eq!(read(json!({"role": "developer", "content": "x"})).role, Role::System);
        let call = json!({"id": "c1", "function": {"name": "f", "arguments": {"a": 1}}});
        let message = read(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        assert_eq!(message.tool_calls, [ToolCall::new("c1", "f", "{\"a\":1}")]);
    }

    #[test]
    fn invalid_messages_are_rejected() {
        for (json, wanted) in [
            (json!("hi"), "invalid chat message: its fields do not fit"),
            (json!({"role": "judge", "content": "x"}), "invalid chat message: unknown role `judge`"),
            (
                json!({"role": "user", "content": 5}),
                "invalid chat message: its content is neither text nor parts",
            ),
            (
                json!({"role": "user", "content": [{"type": "image_url"}]}),
                "invalid chat message: it has parts that are not text",
            ),
        ] {
            assert_eq!(Message::from_chat_json(&json).unwrap_err().to_string(), wanted);
        }
    }
}
