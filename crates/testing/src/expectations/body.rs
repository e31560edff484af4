//! The parts of the body of a request.

use std::collections::BTreeMap;

use serde_json::Value;

pub(super) fn messages(body: &Value) -> &[Value] {
    body["messages"].as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn is_system(message: &Value) -> bool {
    message["role"] == "system" || message["role"] == "developer"
}

/// Returns the text of a message, and of the text parts of one with several parts.
pub(super) fn content(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// Returns the names of the offered tools.
pub(super) fn tools(body: &Value) -> Vec<String> {
    let tools = body["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["function"]["name"].as_str()).map(str::to_owned).collect()
}

/// Returns the names of tools by the ids of their calls.
pub(super) fn called(messages: &[Value]) -> BTreeMap<&str, &str> {
    let calls = messages.iter().flat_map(|message| message["tool_calls"].as_array().into_iter().flatten());
    calls.filter_map(|call| Some((call["id"].as_str()?, call["function"]["name"].as_str()?))).collect()
}

/// Returns the results after the last message of the model, each with the name of its tool.
pub(super) fn results(messages: &[Value]) -> Vec<(String, String)> {
    let called = called(messages);
    let last = messages.iter().rposition(|message| message["role"] == "assistant").unwrap_or_default();
    let results = messages[last..].iter().filter(|message| message["role"] == "tool");
    let named = results.map(|result| {
        let tool = result["tool_call_id"].as_str().and_then(|id| called.get(id));
        (tool.copied().unwrap_or("?").to_owned(), content(result))
    });
    named.collect()
}
