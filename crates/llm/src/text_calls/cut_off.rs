//! Calls in a text that the output limit cut off.
//!
//! Start at [`cut_off_calls`].

use serde_json::{Map, Value};

use super::{
    FENCE, FUNCTION, Forms, MAX_CALLS, MISTRAL, TAGS, TextCalls, blocks, call, language, mistral_name,
    number, parameters, read, text_calls_of,
};
use crate::{
    ToolCall, ToolSpec,
    texts::{
        nesting::{MAX_VALUES, values_in_prose},
        partial_json::partial_json,
    },
};

const PARAMETER: &str = "<parameter=";
const END_OF_FUNCTION: &str = "</function>";
const ARGUMENTS: &str = "[ARGS]";

/// Finds the calls in a text that was cut off; `None` if it has none.
///
/// The last one may be incomplete: it has the arguments that arrived. If not even its name is complete, it is removed from the
/// text, and there may be no other call.
pub(crate) fn cut_off_calls(text: &str, offered: &[ToolSpec], forms: Forms) -> Option<TextCalls> {
    // The objects take a hundred times their text in memory.
    if offered.is_empty() || values_in_prose(text) > MAX_VALUES {
        return None;
    }
    let last = bare(text, offered, forms).or_else(|| blocks(text, offered, forms, true).1);
    let Some((begins, last)) = last else { return text_calls_of(text, offered, forms) };
    let before = &text[..begins];
    let prose = || TextCalls { calls: Vec::new(), text: before.trim().to_owned() };
    let mut found = text_calls_of(before, offered, forms).unwrap_or_else(prose);
    found.calls.extend(last);
    number(&mut found.calls);
    (found.calls.len() <= MAX_CALLS).then_some(found)
}

/// Returns the calls of a text that begins with JSON.
fn bare(text: &str, offered: &[ToolSpec], forms: Forms) -> Option<(usize, Vec<ToolCall>)> {
    let json = text.trim_start();
    if forms != Forms::All || !json.starts_with(['{', '[']) || json.starts_with(MISTRAL) {
        return None;
    }
    let calls = objects(json, "", offered).filter(|calls| !calls.is_empty())?;
    Some((text.len() - json.len(), calls))
}

/// Returns the calls at the beginning of `text`, if the last one extends to its end and is incomplete.
pub(super) fn cut(text: &str, offered: &[ToolSpec], forms: Forms) -> Option<Vec<ToolCall>> {
    for (open, close) in TAGS {
        let Some(inside) = text.strip_prefix(open) else { continue };
        let inside = inside.trim_start();
        return function(inside, offered).or_else(|| objects(inside, close, offered));
    }
    if let Some(inside) = text.strip_prefix(FENCE).filter(|_| forms == Forms::All) {
        // Other JSON is an example.
        return objects(language(inside), FENCE, offered).filter(|calls| !calls.is_empty());
    }
    function(text, offered).or_else(|| mistral(text, offered))
}

/// Parses JSON objects, or lists of them. The last one is incomplete, or the closing tag is.
fn objects(text: &str, close: &str, offered: &[ToolSpec]) -> Option<Vec<ToolCall>> {
    let inner = text.strip_prefix('{').filter(|inside| inside.trim_start().starts_with('{'));
    let (mut doubled, mut rest) = (inner.is_some(), inner.unwrap_or(text).trim_start());
    let (mut values, mut partial) = (Vec::new(), None);
    loop {
        let is_first = values.is_empty();
        if if is_first { rest.is_empty() } else { close.starts_with(rest) } {
            break;
        }
        if !rest.starts_with(['{', '[']) || values.len() > MAX_CALLS {
            return None;
        }
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        match stream.next()? {
            Ok(value) => values.push(value),
            Err(error) if error.is_eof() => {
                partial = partial_json(rest);
                break;
            }
            Err(_) => return None,
        }
        rest = rest[stream.byte_offset()..].trim_start();
        if let (true, Some(behind)) = (doubled, rest.strip_prefix('}')) {
            (doubled, rest) = (false, behind.trim_start());
        }
        if rest.is_empty() && !doubled {
            // Nothing is missing.
            return None;
        }
    }
    let mut objects = Vec::new();
    let is_partial = partial.is_some();
    for value in values.into_iter().chain(partial) {
        let list = if let Value::Array(list) = value { list } else { vec![value] };
        for value in list {
            let Value::Object(object) = value else { return None };
            objects.push(object);
        }
    }
    let last = if is_partial { objects.pop() } else { None };
    let mut calls = objects.into_iter().map(|object| read(object, offered)).collect::<Option<Vec<_>>>()?;
    if let Some(last) = last {
        match read(last.clone(), offered) {
            Some(call) => calls.push(call),
            None if is_begun(&last, offered) => {}
            None => return None,
        }
    }
    Some(calls)
}

/// Returns whether an incomplete object may become a call of an offered tool.
fn is_begun(object: &Map<String, Value>, offered: &[ToolSpec]) -> bool {
    let object = object.get("function").and_then(Value::as_object).unwrap_or(object);
    let has_arguments = ["arguments", "parameters"].iter().any(|key| object.contains_key(*key));
    let name = object.get("name").map_or(Some(""), Value::as_str);
    !has_arguments && name.is_some_and(|name| begins_a_name(name, offered))
}

fn begins_a_name(text: &str, offered: &[ToolSpec]) -> bool {
    offered.iter().any(|tool| tool.name.starts_with(text))
}

fn named(name: &str, arguments: Map<String, Value>, offered: &[ToolSpec]) -> Option<Vec<ToolCall>> {
    Some(vec![read(call(name, arguments.into()), offered)?])
}

/// Parses an object that is cut off, or followed by a part of `close`.
fn arguments(text: &str, close: &str) -> Option<Map<String, Value>> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Map<String, Value>>();
    match stream.next()? {
        Ok(arguments) => {
            let rest = text[stream.byte_offset()..].trim();
            (!rest.is_empty() && close.starts_with(rest)).then_some(arguments)
        }
        Err(error) if error.is_eof() => partial_json(text)?.as_object().cloned(),
        Err(_) => None,
    }
}

/// Parses `<function=NAME>`, of which the end is missing.
fn function(text: &str, offered: &[ToolSpec]) -> Option<Vec<ToolCall>> {
    let inside = text.strip_prefix(FUNCTION)?;
    let Some((name, inside)) = inside.split_once('>') else {
        return begins_a_name(inside.trim(), offered).then(Vec::new);
    };
    let (name, inside) = (name.trim(), inside.trim_start());
    if inside.starts_with('{') {
        return named(name, arguments(inside, END_OF_FUNCTION)?, offered);
    }
    let (given, rest) = parameters(inside, name, offered);
    let is_begun = rest.starts_with(PARAMETER) && !rest.contains(END_OF_FUNCTION);
    let is_cut = is_begun || [PARAMETER, END_OF_FUNCTION].iter().any(|tag| tag.starts_with(rest));
    // Without anything behind its tag or its parameters, the call may be complete.
    if is_cut && (!rest.is_empty() || given.is_empty()) { named(name, given, offered) } else { None }
}

/// Parses `[TOOL_CALLS]`, of which the end is missing.
fn mistral(text: &str, offered: &[ToolSpec]) -> Option<Vec<ToolCall>> {
    let inside = text.strip_prefix(MISTRAL)?.trim_start();
    if inside.starts_with(['[', '{']) {
        return objects(inside, "", offered);
    }
    let (name, rest) = mistral_name(inside);
    let rest = rest.trim_start();
    if ARGUMENTS.starts_with(rest) {
        let is_whole = offered.iter().any(|tool| tool.name == name);
        return if is_whole {
            named(name, Map::new(), offered)
        } else {
            begins_a_name(name, offered).then(Vec::new)
        };
    }
    let rest = rest.strip_prefix(ARGUMENTS).unwrap_or(rest).trim_start();
    named(name, arguments(rest, "")?, offered)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tools() -> [ToolSpec; 2] {
        let tool = |name: &str| ToolSpec {
            name: name.into(),
            description: String::new(),
            parameters: json!({"type": "object"}),
        };
        [tool("echo"), tool("write_file")]
    }

    /// Returns the prose, and the calls.
    fn split(text: &str) -> Option<(String, Vec<String>)> {
        let TextCalls { calls, text } = cut_off_calls(text, &tools(), Forms::All)?;
        assert!(calls.iter().enumerate().all(|(n, call)| call.id == format!("call_{}", n + 1)));
        Some((text, calls.into_iter().map(|call| format!("{}{}", call.name, call.arguments)).collect()))
    }

    /// The forms of a call of `echo` with the text `abc`.
    const FORMS: [&str; 9] = [
        r#"<tool_call>{"name": "echo", "arguments": {"x": "abc"}}</tool_call>"#,
        r#"<tools>{"name": "echo", "parameters": {"x": "abc"}}</tools>"#,
        r#"<tool_call>{"type": "function", "function": {"name": "echo", "arguments": {"x": "abc"}}}</tool_call>"#,
        r#"<tool_call>{{"name": "echo", "arguments": {"x": "abc"}}}</tool_call>"#,
        r#"<function=echo>{"x": "abc"}</function>"#,
        "<function=echo><parameter=x>abc</parameter></function>",
        r#"[TOOL_CALLS][{"name": "echo", "arguments": {"x": "abc"}}]"#,
        r#"[TOOL_CALLS]echo[ARGS]{"x": "abc"}"#,
        "```json\n{\"name\": \"echo\", \"arguments\": {\"x\": \"abc\"}}\n```",
    ];

    #[test]
    fn a_call_that_is_cut_off_in_its_arguments_is_no_text() {
        for form in FORMS {
            let ends = form.find("bc").unwrap();
            for (cut, before) in
                (ends..form.len()).flat_map(|ends| [(&form[..ends], ""), (&form[..ends], "I write.")])
            {
                let text = format!("{before}\n{cut}");
                let (prose, calls) = split(&text).unwrap_or_else(|| panic!("{text}"));
                assert_eq!((prose.as_str(), calls.len()), (before, 1), "{text}");
                assert!(calls[0].starts_with("echo{"), "{text}: {calls:?}");
            }
        }
        let bare = r#"{"name": "echo", "arguments": {"x": "a"#;
        assert_eq!(split(bare), Some((String::new(), vec![r#"echo{"x":"a"}"#.to_owned()])));
        assert_eq!(cut_off_calls(bare, &tools(), Forms::Marked), None);
    }

    #[test]
    fn a_call_that_is_cut_off_before_its_name_is_left_out() {
        for form in FORMS.iter().filter(|form| !form.starts_with("```")) {
            let name = form.find("echo").unwrap();
            let begins = form.find(['>', ']', '=']).unwrap() + 1;
            for ends in begins..name + 2 {
                let text = format!("I write.\n{}", &form[..ends]);
                assert_eq!(split(&text), Some(("I write.".to_owned(), Vec::new())), "{text}");
            }
        }
    }

    #[test]
    fn complete_calls_before_it_are_calls_too() {
        let (a, b) = (FORMS[0], r#"<tool_call>{"name":"write_file","arguments":{"path":"a","content":"line"#);
        let both =
            vec![r#"echo{"x":"abc"}"#.to_owned(), r#"write_file{"content":"line","path":"a"}"#.to_owned()];
        assert_eq!(split(&format!("{a}\n{b}")), Some((String::new(), both.clone())));
        assert_eq!(split(&format!("Now.\n{a}{b}")), Some(("Now.".to_owned(), both)));
        assert_eq!(split(a), Some((String::new(), vec![r#"echo{"x":"abc"}"#.to_owned()])));
    }

    #[test]
    fn other_text_is_unchanged() {
        for text in [
            "",
            "Once upon a",
            r#"<tool_call>{"name": "rm", "arg"#,
            "{\"answer\": 4",
            "[1, 2",
            "```json\n{\"a\": 1",
            "```rust\nfn main() {",
            r#"<tool_call>{"name": "rm", "arguments": {"x": "a"#,
            "<function=rm><parameter=x>a",
            "[TOOL_CALLS]rm{\"x\":",
            r#"Write `<tool_call>{"name": "echo", "arguments": {"x": "a"#,
            r#"<think>Or <tool_call>{"name": "echo", "arguments": {"x": "a"#,
            r#"I would call <tool_call>{"name": "echo", "arguments": {}}</tool_call>. Then I"#,
            r#"I would call {"name": "echo", "arguments": {"x": "a"#,
        ] {
            assert_eq!(split(text), None, "{text}");
        }
        assert_eq!(cut_off_calls("<tool_call>", &[], Forms::All), None);
    }

    #[test]
    fn a_text_that_is_made_to_be_read_again_and_again_is_read_in_time() {
        for piece in [
            "<tool_call>",
            "<tool_call>{\"a\":[",
            "```json\n{",
            "[TOOL_CALLS][",
            "<function=echo>",
            "{{",
            "[TOOL_CALLS]",
        ] {
            let text = piece.repeat(400_000 / piece.len());
            let _ = split(&text);
        }
    }
}
