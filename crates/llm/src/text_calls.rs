//! Tool calls that a model wrote as text.
//!
//! Start at [`text_calls`].

use serde_json::{Map, Value};

use crate::{ToolCall, ToolSpec};

/// The calls that `text` consists of: `None` if it is anything else than calls of the `offered` tools.
///
/// Models whose chat template the server does not know, small ones above all, write their calls as text: in `<tool_call>`
/// or `<tools>` tags, in code fences, or bare, each a JSON object with `name` and `arguments` (or `parameters`), alone or in a
/// list; some double the braces. Prose that has such an object in it stays prose.
///
/// # Example
/// ```
/// use superstep_llm::{ToolSpec, text_calls};
///
/// let add = ToolSpec { name: "add".into(), description: String::new(), parameters: serde_json::json!({}) };
/// let text = r#"<tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>"#;
/// assert_eq!(text_calls(text, &[add.clone()]).unwrap()[0].arguments, r#"{"a":2,"b":3}"#);
/// assert_eq!(text_calls(&format!("I would call {text}."), &[add]), None);
/// ```
pub fn text_calls(text: &str, offered: &[ToolSpec]) -> Option<Vec<ToolCall>> {
    let mut rest = text.trim();
    let mut calls = Vec::new();
    while !rest.is_empty() {
        let (block, after) = next_block(rest)?;
        for call in objects(block)? {
            calls.push(read(call, offered, calls.len() + 1)?);
        }
        rest = after.trim_start();
    }
    (!calls.is_empty()).then_some(calls)
}

/// The JSON at the beginning of `text`, without what marks it, and what follows it.
fn next_block(text: &str) -> Option<(&str, &str)> {
    for (open, close) in [("<tool_call>", "</tool_call>"), ("<tools>", "</tools>"), ("```", "```")] {
        let Some(inside) = text.strip_prefix(open) else { continue };
        // The last closing tag is often missing.
        let (block, after) = inside.split_once(close).unwrap_or((inside, ""));
        let language = |char: char| char.is_ascii_alphanumeric() || char == '_';
        let block = if open == "```" { block.trim_start_matches(language) } else { block };
        return Some((block.trim(), after));
    }
    if !text.starts_with(['{', '[']) {
        return None;
    }
    let end = ["<tool_call>", "<tools>", "```"].into_iter().filter_map(|open| text.find(open)).min();
    let (block, after) = text.split_at(end.unwrap_or(text.len()));
    Some((block.trim(), after))
}

/// The objects of a block: one or several, or those of a list.
fn objects(block: &str) -> Option<Vec<Map<String, Value>>> {
    let values = |text: &str| -> Option<Vec<Value>> {
        serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>().ok()
    };
    let doubled = || values(block.strip_prefix('{')?.strip_suffix('}')?.trim());
    let mut objects = Vec::new();
    for value in values(block).or_else(doubled)? {
        let list = match value {
            Value::Array(list) => list,
            value => vec![value],
        };
        for value in list {
            let Value::Object(object) = value else { return None };
            objects.push(object);
        }
    }
    Some(objects)
}

fn read(mut object: Map<String, Value>, offered: &[ToolSpec], number: usize) -> Option<ToolCall> {
    // Some wrap it as the protocol does.
    if let Some(Value::Object(function)) = object.remove("function") {
        object = function;
    }
    let name = object.get("name")?.as_str()?.to_owned();
    let arguments = object.remove("arguments").or_else(|| object.remove("parameters"));
    let arguments = match arguments {
        Some(Value::String(text)) => text,
        Some(arguments @ Value::Object(_)) => arguments.to_string(),
        Some(Value::Null) | None => "{}".to_owned(),
        Some(_) => return None,
    };
    offered
        .iter()
        .any(|tool| tool.name == name)
        .then(|| ToolCall::new(format!("call_{number}"), name, arguments))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(text: &str) -> Option<Vec<(String, String)>> {
        let tool =
            |name: &str| ToolSpec { name: name.into(), description: String::new(), parameters: json!({}) };
        let calls = text_calls(text, &[tool("add"), tool("echo")])?;
        assert!(calls.iter().enumerate().all(|(n, call)| call.id == format!("call_{}", n + 1)));
        Some(calls.into_iter().map(|call| (call.name, call.arguments)).collect())
    }

    #[test]
    fn every_way_to_write_a_call_is_read() {
        let one = Some(vec![("echo".to_owned(), r#"{"x":"1"}"#.to_owned())]);
        let call = r#"{"name": "echo", "arguments": {"x": "1"}}"#;
        for text in [
            call.to_owned(),
            format!("\n<tool_call>\n{call}\n</tool_call>\n"),
            format!("<tool_call>{call}"),
            format!("<tools>{call}</tools>"),
            format!("```json\n{call}\n```"),
            format!("```\n{call}\n```"),
            format!("{{{call}}}"),
            format!("[{call}]"),
            r#"{"name": "echo", "parameters": {"x": "1"}}"#.to_owned(),
            r#"{"name": "echo", "arguments": "{\"x\":\"1\"}"}"#.to_owned(),
            r#"{"type": "function", "function": {"name": "echo", "arguments": {"x": "1"}}}"#.to_owned(),
        ] {
            assert_eq!(found(&text), one, "{text}");
        }
        assert_eq!(found(r#"{"name": "add"}"#).unwrap()[0].1, "{}");
    }

    #[test]
    fn several_calls_are_read_in_their_order() {
        let (a, b) =
            (r#"{"name":"echo","arguments":{"x":"1"}}"#, r#"{"name":"add","arguments":{"a":1,"b":2}}"#);
        for text in [
            format!("{a}\n{b}"),
            format!("[{a},{b}]"),
            format!("<tool_call>{a}</tool_call><tool_call>{b}</tool_call>"),
            format!("<tool_call>\n{a}\n{b}\n</tool_call>"),
            format!("```json\n{a}\n```\n```json\n{b}\n```"),
        ] {
            let names: Vec<_> = found(&text).unwrap().into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, ["echo", "add"], "{text}");
        }
    }

    #[test]
    fn prose_and_other_json_stay_what_they_are() {
        let call = r#"{"name":"echo","arguments":{"x":"1"}}"#;
        for text in [
            "",
            "Hello.",
            "{}",
            "[]",
            "42",
            r#"{"answer": 42}"#,
            r#"{"name":"rm","arguments":{}}"#,
            r#"{"name":"echo","arguments":[1]}"#,
            r#"{"name":"echo","arguments":"#,
            "```json\n{\"a\": 1}\n```",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
        for text in [
            format!("I will call {call}"),
            format!("{call} is what I would call"),
            format!("Look:\n```json\n{call}\n```"),
        ] {
            assert_eq!(found(&text), None, "{text}");
        }
        assert_eq!(found(&format!(r#"[{call},{{"name":"rm","arguments":{{}}}}]"#)), None);
    }
}
