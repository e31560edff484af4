//! The fields of a request, each checked independently.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Problems, Rules, array, text};

/// A predicate on the value of a field.
type Fits = fn(&Value) -> bool;

/// The fields of a body that providers agree on, with their types.
const BODY: [(&str, Fits); 28] = [
    ("model", Value::is_string),
    ("messages", Value::is_array),
    ("tools", Value::is_array),
    ("tool_choice", |value| value.is_string() || value.is_object()),
    ("parallel_tool_calls", Value::is_boolean),
    ("stream", Value::is_boolean),
    ("stream_options", Value::is_object),
    ("temperature", Value::is_number),
    ("top_p", Value::is_number),
    ("max_tokens", Value::is_u64),
    ("max_completion_tokens", Value::is_u64),
    ("n", Value::is_u64),
    ("seed", Value::is_i64),
    ("stop", |value| value.is_string() || value.is_array()),
    ("frequency_penalty", Value::is_number),
    ("presence_penalty", Value::is_number),
    ("logit_bias", Value::is_object),
    ("logprobs", Value::is_boolean),
    ("top_logprobs", Value::is_u64),
    ("response_format", Value::is_object),
    ("reasoning_effort", Value::is_string),
    ("user", Value::is_string),
    ("metadata", Value::is_object),
    ("store", Value::is_boolean),
    ("service_tier", Value::is_string),
    ("modalities", Value::is_array),
    ("prediction", Value::is_object),
    ("verbosity", Value::is_string),
];

const MAX_NAME_LENGTH: usize = 64;

pub(super) fn check(rules: &Rules, body: &Value, found: &mut Problems) {
    let Some(fields) = body.as_object() else { return found.add("body", "is not a JSON object") };
    for (name, value) in fields {
        match BODY.iter().find(|(known, _)| known == name) {
            Some((_, fits)) if fits(value) => {}
            Some(_) => found.add(name, format_args!("cannot be {value}")),
            None if rules.extra_fields.contains(name) => {}
            None => found.add(name, "is not a field of a request"),
        }
    }
    if text(body, "model").is_empty() {
        found.add("model", "is missing");
    }
    if fields.contains_key("max_tokens") && fields.contains_key("max_completion_tokens") {
        found.add("max_tokens", "is given beside max_completion_tokens");
    }
    if fields.contains_key("stream_options") && body["stream"] != true {
        found.add("stream_options", "is for streams only");
    }
    if rules.no_stream_options && fields.contains_key("stream_options") {
        found.add("stream_options", "is not supported");
    }
    for (at, message) in array(body, "messages").iter().enumerate() {
        self::message(rules, &format!("messages[{at}]"), message, found);
    }
    tools(body, found);
}

fn message(rules: &Rules, place: &str, message: &Value, found: &mut Problems) {
    let Some(fields) = message.as_object() else { return found.add(place, "is not a JSON object") };
    let role = text(message, "role");
    let own: &[&str] = match role {
        "system" | "developer" | "user" => &["name"],
        "assistant" => &["name", "tool_calls", "reasoning_content", "refusal"],
        "tool" => &["tool_call_id"],
        _ => return found.add(place, format_args!("{} is not a role", message["role"])),
    };
    for name in fields.keys().filter(|name| !["role", "content"].contains(&name.as_str())) {
        if !own.contains(&name.as_str()) {
            found.add(place, format_args!("`{name}` is not a field of a message of role `{role}`"));
        }
    }
    let has_calls = !array(message, "tool_calls").is_empty();
    match &message["content"] {
        Value::String(content) if role != "assistant" || !content.trim().is_empty() || has_calls => {}
        Value::Array(parts) if !parts.is_empty() => self::parts(place, parts, found),
        Value::Null if has_calls => {}
        Value::String(_) | Value::Null if role == "assistant" => {
            found.add(place, "an assistant message without content and calls");
        }
        other => found.add(place, format_args!("the content of role `{role}` cannot be {other}")),
    }
    for field in ["reasoning_content", "refusal", "name"] {
        if message.get(field).is_some_and(|value| !value.is_string()) {
            found.add(place, format_args!("`{field}` is not a text"));
        }
    }
    match message.get("tool_calls") {
        None => {}
        Some(Value::Array(calls)) if !calls.is_empty() => {
            for (at, call) in calls.iter().enumerate() {
                self::call(rules, &format!("{place}.tool_calls[{at}]"), call, found);
            }
        }
        Some(other) => found.add(place, format_args!("`tool_calls` cannot be {other}")),
    }
    if role == "tool" && text(message, "tool_call_id").is_empty() {
        found.add(place, "a result without the id of its call");
    }
}

fn parts(place: &str, parts: &[Value], found: &mut Problems) {
    for part in parts {
        let kind = text(part, "type");
        if !["text", "image_url", "input_audio", "file"].contains(&kind) || part.get(kind).is_none() {
            found.add(place, format_args!("{part} is not a part of a content"));
        }
    }
}

fn call(rules: &Rules, place: &str, call: &Value, found: &mut Problems) {
    only(place, call, &["id", "type", "function"], found);
    if text(call, "id").is_empty() {
        found.add(place, "a call without an id");
    }
    if call["type"] != "function" {
        found.add(place, format_args!("the type of a call cannot be {}", call["type"]));
    }
    let function = &call["function"];
    only(place, function, &["name", "arguments"], found);
    if !rules.verbatim {
        name(place, function, found);
    }
    match &function["arguments"] {
        Value::String(_) if rules.verbatim => {}
        Value::String(arguments) => match serde_json::from_str::<Value>(arguments) {
            Ok(Value::Object(_)) => {}
            Ok(_) => found.add(place, format_args!("the arguments {arguments:?} are not a JSON object")),
            Err(error) => {
                found.add(place, format_args!("the arguments {arguments:?} are not valid JSON: {error}"))
            }
        },
        other => found.add(place, format_args!("arguments are a text, not {other}")),
    }
}

fn tools(body: &Value, found: &mut Problems) {
    if body.get("tools").is_some() && array(body, "tools").is_empty() {
        found.add("tools", "is empty; leave it out");
    }
    if body.get("tool_choice").is_some() && body.get("tools").is_none() {
        found.add("tool_choice", "is given without tools");
    }
    let mut names = BTreeSet::new();
    for (at, tool) in array(body, "tools").iter().enumerate() {
        let place = format!("tools[{at}]");
        only(&place, tool, &["type", "function"], found);
        if tool["type"] != "function" {
            found.add(&place, format_args!("the type of a tool cannot be {}", tool["type"]));
        }
        let function = &tool["function"];
        only(&place, function, &["name", "description", "parameters", "strict"], found);
        name(&place, function, found);
        if !names.insert(text(function, "name")) {
            found.add(&place, format_args!("two tools are named `{}`", text(function, "name")));
        }
        if function.get("description").is_some_and(|description| !description.is_string()) {
            found.add(&place, "its description is not a text");
        }
        if let Some(schema) = function.get("parameters") {
            self::schema(&place, schema, found);
        }
    }
}

/// Checks that a schema has named fields. The validator of arguments checks its dialect.
fn schema(place: &str, schema: &Value, found: &mut Problems) {
    if schema["type"] != "object" {
        return found.add(place, "its parameters have no `\"type\": \"object\"`");
    }
    match &schema["properties"] {
        Value::Null => {}
        Value::Object(fields) => {
            for (name, field) in fields.iter().filter(|(_, field)| !field.is_object() && !field.is_boolean())
            {
                found.add(place, format_args!("the schema of its parameter `{name}` cannot be {field}"));
            }
        }
        other => found.add(place, format_args!("its properties cannot be {other}")),
    }
    match &schema["required"] {
        Value::Null => {}
        Value::Array(names) if names.iter().all(Value::is_string) => {}
        other => found.add(place, format_args!("its required parameters cannot be {other}")),
    }
}

/// Checks the name of a tool by the strictest provider's rules.
fn name(place: &str, function: &Value, found: &mut Problems) {
    let name = text(function, "name");
    let fits = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    if name.is_empty() || name.len() > MAX_NAME_LENGTH || !name.chars().all(fits) {
        found.add(
            place,
            format_args!("{} is not a tool name; it has 1 to 64 of a-z, A-Z, 0-9, _ and -", function["name"]),
        );
    }
}

fn only(place: &str, value: &Value, known: &[&str], found: &mut Problems) {
    match value.as_object() {
        None => found.add(place, format_args!("{value} is not a JSON object")),
        Some(fields) => {
            for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
                found.add(place, format_args!("there is no field `{name}`"));
            }
        }
    }
}
