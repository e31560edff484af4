//! Tool calls that a model writes as text.

mod cut_off;
pub(crate) mod reader;
pub(crate) mod thinking;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub(crate) use self::cut_off::cut_off_calls;
use crate::{
    ToolCall, ToolSpec,
    text_calls::thinking::THOUGHTS,
    texts::nesting::{MAX_VALUES, values_in_prose},
    tools::arguments::ArgumentCheck,
};

/// The tags before and after a call.
const TAGS: [(&str, &str); 2] = [("<tool_call>", "</tool_call>"), ("<tools>", "</tools>")];
const FUNCTION: &str = "<function=";
const MISTRAL: &str = "[TOOL_CALLS]";
const FENCE: &str = "```";

/// The maximum number of calls in a text; a text with more is ordinary text.
const MAX_CALLS: usize = 128;

/// The maximum number of false starts of calls, before the rest of a text is skipped.
const MAX_TRIES: usize = 256;

/// Tool calls found in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextCalls {
    /// The calls, in order.
    pub calls: Vec<ToolCall>,
    /// The text without the calls.
    pub text: String,
}

/// Finds the calls in `text`; `None` if it has no call of an `offered` tool.
///
/// Models whose chat template the server does not support, especially small ones, write their calls as text:
/// in `<tool_call>` or `<tools>` tags, as `<function=NAME>`, after `[TOOL_CALLS]`, in code fences, or bare. A
/// call is a JSON object with `name` and `arguments` (or `parameters`), alone or in a list, or the syntax of
/// `<function=NAME>` and `[TOOL_CALLS]`; some double the braces.
///
/// Calls may follow prose if they are marked and their arguments match the schema of the tool: tags on lines
/// of their own or at the end of one, fences at the end of the text. A call in the middle of a sentence or in
/// backticks is a mention, and prose with a bare object remains prose. A call in `<think>`, `<thinking>` or
/// `[THINK]` tags is only considered: text between them, to the end if the closing tag is missing, or from the
/// beginning if the opening one is, has no calls.
///
/// # Example
/// ```
/// use superstep_llm::{ToolSpec, wire::text_calls};
///
/// let parameters = serde_json::json!({"type": "object"});
/// let add = ToolSpec { name: "add".into(), description: String::new(), parameters };
/// let text = r#"Let me see. <tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>"#;
/// let found = text_calls(text, &[add.clone()]).unwrap();
/// assert_eq!((found.text.as_str(), found.calls[0].arguments.as_str()), ("Let me see.", r#"{"a":2,"b":3}"#));
/// assert_eq!(text_calls(&format!("I would call {text}."), &[add]), None);
/// ```
pub fn text_calls(text: &str, offered: &[ToolSpec]) -> Option<TextCalls> {
    text_calls_of(text, offered, Forms::All)
}

/// The forms of calls in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forms {
    All,
    /// Neither bare nor in a fence, for a text that is to be JSON: such an object is the answer.
    Marked,
}

/// Finds the calls of these forms; see [`text_calls`].
pub(crate) fn text_calls_of(text: &str, offered: &[ToolSpec], forms: Forms) -> Option<TextCalls> {
    // Its objects take a hundred times their text in memory.
    if values_in_prose(text) > MAX_VALUES {
        return None;
    }
    let mut found = whole(text.trim(), offered, forms).or_else(|| behind_prose(text, offered, forms))?;
    number(&mut found.calls);
    (1..=MAX_CALLS).contains(&found.calls.len()).then_some(found)
}

/// Sets the ids of calls.
fn number(calls: &mut [ToolCall]) {
    for (number, call) in (1..).zip(calls) {
        call.id = format!("call_{number}");
    }
}

/// Returns the calls of a text without prose. Arguments that do not fit are retained for the error that the model
/// reads.
fn whole(text: &str, offered: &[ToolSpec], forms: Forms) -> Option<TextCalls> {
    let mut calls = Vec::new();
    let mut rest = text;
    while !rest.is_empty() && calls.len() <= MAX_CALLS {
        let bare = || if forms == Forms::All { objects(rest) } else { None };
        let (block, behind) = marked(rest, offered, forms).or_else(bare)?;
        calls.extend(block.into_iter().map(|call| read(call, offered)).collect::<Option<Vec<_>>>()?);
        rest = behind.trim_start();
    }
    (!calls.is_empty()).then(|| TextCalls { calls, text: String::new() })
}

/// A block of calls in a text.
struct Block {
    begins: usize,
    ends: usize,
    calls: Vec<ToolCall>,
    fenced: bool,
}

/// The position of a call that is cut off, with the calls from there.
type CutOff = Option<(usize, Vec<ToolCall>)>;

/// Returns the blocks of calls in a text; of one that `is_cut`, also the calls that extend to its end.
fn blocks(text: &str, offered: &[ToolSpec], forms: Forms, is_cut: bool) -> (Vec<Block>, CutOff) {
    let mut blocks: Vec<Block> = Vec::new();
    let mut checks = Checks::default();
    let (mut at, mut tries) = (0, 0);
    while let Some(next) = text[at..].find(['<', '[', '`']) {
        let begins = at + next;
        let here = &text[begins..];
        if let Some(ends) = thought(here) {
            at = begins + ends;
            continue;
        }
        if let Some((_, close)) = THOUGHTS.iter().find(|(_, close)| here.starts_with(close)) {
            // The template of the model has the opening tag.
            blocks.clear();
            at = begins + close.len();
            continue;
        }
        let fenced = here.starts_with(FENCE);
        if !fenced && here.starts_with('`') {
            // Text in backticks is a mention.
            let ticks = &here[1..];
            at = begins + 1 + ticks.find(['`', '\n']).map_or(ticks.len(), |end| end + 1);
            continue;
        }
        if fenced || starts_call(here) {
            let block = marked(here, offered, forms).and_then(|(calls, behind)| {
                let calls = calls.into_iter().map(|call| read(call, offered)).collect::<Option<Vec<_>>>()?;
                let ends = text.len() - behind.len();
                let fits = ends_line(behind) && calls.iter().all(|call| checks.fits(call, offered));
                fits.then_some(Block { begins, ends, calls, fenced })
            });
            if let Some(block) = block {
                at = block.ends;
                blocks.push(block);
                continue;
            }
            if let Some(last) = if is_cut { cut_off::cut(here, offered, forms) } else { None } {
                return (blocks, Some((begins, last)));
            }
            tries += 1;
            if tries > MAX_TRIES {
                break;
            }
        }
        at = match here.strip_prefix(FENCE) {
            // Text in other fences is code.
            Some(inside) => {
                begins + FENCE.len() + inside.find(FENCE).map_or(inside.len(), |end| end + FENCE.len())
            }
            None => begins + 1,
        };
    }
    (blocks, None)
}

fn behind_prose(text: &str, offered: &[ToolSpec], forms: Forms) -> Option<TextCalls> {
    let (blocks, _) = blocks(text, offered, forms, false);
    let mut prose = Vec::new();
    let mut kept = Vec::new();
    let mut ends = text.len();
    for block in blocks.into_iter().rev() {
        let behind = text[block.ends..ends].trim();
        // Prose continues after an example.
        if block.fenced && (!behind.is_empty() || prose.iter().any(|text: &&str| !text.is_empty())) {
            continue;
        }
        prose.push(behind);
        ends = block.begins;
        kept.push(block.calls);
    }
    prose.push(text[..ends].trim());
    let prose: Vec<&str> = prose.into_iter().rev().filter(|text| !text.is_empty()).collect();
    Some(TextCalls { calls: kept.into_iter().rev().flatten().collect(), text: prose.join("\n\n") })
}

/// Returns the length of the reasoning at the beginning of `text`, with its tags.
fn thought(text: &str) -> Option<usize> {
    let (open, close) = THOUGHTS.iter().find(|(open, _)| text.starts_with(open))?;
    Some(text[open.len()..].find(close).map_or(text.len(), |ends| open.len() + ends + close.len()))
}

fn starts_call(text: &str) -> bool {
    TAGS.iter().any(|(open, _)| text.starts_with(open))
        || text.starts_with(FUNCTION)
        || text.starts_with(MISTRAL)
}

/// Returns whether a line ends here, or another call begins.
fn ends_line(text: &str) -> bool {
    let text = text.trim_start_matches([' ', '\t']);
    text.is_empty() || text.starts_with(['\n', '\r']) || starts_call(text)
}

/// The compiled schemas of tools.
#[derive(Default)]
struct Checks(BTreeMap<String, Option<ArgumentCheck>>);

impl Checks {
    fn fits(&mut self, call: &ToolCall, offered: &[ToolSpec]) -> bool {
        let check = self.0.entry(call.name.clone()).or_insert_with(|| {
            let spec = offered.iter().find(|spec| spec.name == call.name)?;
            ArgumentCheck::new(spec).ok()
        });
        check.as_ref().is_some_and(|check| check.check(&call.arguments).is_ok())
    }
}

/// Calls, each as an object with a name and arguments, and the text after them.
type Objects<'a> = (Vec<Map<String, Value>>, &'a str);

/// Returns the marked calls at the beginning of `text`.
fn marked<'a>(text: &'a str, offered: &[ToolSpec], forms: Forms) -> Option<Objects<'a>> {
    for (open, close) in TAGS {
        let Some(inside) = text.strip_prefix(open) else { continue };
        let inside = inside.trim_start();
        let (calls, behind) = function(inside, offered).or_else(|| objects(inside))?;
        let behind = behind.trim_start();
        // The last closing tag is often missing.
        return match behind.strip_prefix(close) {
            Some(behind) => Some((calls, behind)),
            None => (behind.is_empty() || starts_call(behind)).then_some((calls, behind)),
        };
    }
    if let Some(inside) = text.strip_prefix(FENCE).filter(|_| forms == Forms::All) {
        let (calls, behind) = objects(language(inside))?;
        let behind = behind.trim_start();
        let behind = if behind.is_empty() { behind } else { behind.strip_prefix(FENCE)? };
        return Some((calls, behind));
    }
    function(text, offered).or_else(|| mistral(text))
}

/// Returns the text of a fence behind the name of its language.
fn language(inside: &str) -> &str {
    inside.trim_start_matches(|char: char| char.is_ascii_alphanumeric() || char == '_').trim_start()
}

/// Parses consecutive JSON objects, or lists of them.
fn objects(text: &str) -> Option<Objects<'_>> {
    let doubled = text.strip_prefix('{').filter(|inside| inside.trim_start().starts_with('{'));
    let mut rest = doubled.unwrap_or(text).trim_start();
    let mut objects = Vec::new();
    while rest.starts_with(['{', '[']) && objects.len() <= MAX_CALLS {
        // Other text in brackets is not a call.
        if !objects.is_empty() && rest.starts_with(MISTRAL) {
            break;
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let list = match values.next()?.ok()? {
            Value::Array(list) => list,
            value => vec![value],
        };
        rest = rest[values.byte_offset()..].trim_start();
        for value in list {
            let Value::Object(object) = value else { return None };
            objects.push(object);
        }
    }
    let rest = if doubled.is_some() { rest.strip_prefix('}')? } else { rest };
    (!objects.is_empty()).then_some((objects, rest))
}

/// Parses `<function=NAME>` with JSON in it, or with parameters in tags of their own.
fn function<'a>(text: &'a str, offered: &[ToolSpec]) -> Option<Objects<'a>> {
    let (mut calls, mut rest) = (Vec::new(), text);
    while let Some(inside) = rest.strip_prefix(FUNCTION).filter(|_| calls.len() <= MAX_CALLS) {
        let (name, inside) = inside.split_once('>')?;
        let mut inside = inside.trim_start();
        let mut arguments = Map::new();
        if inside.starts_with('{') {
            let (objects, behind) = objects(inside)?;
            let [object] = <[_; 1]>::try_from(objects).ok()?;
            (arguments, inside) = (object, behind);
        }
        let (given, behind) = parameters(inside, name.trim(), offered);
        arguments.extend(given);
        inside = behind;
        rest = match inside.trim_start().strip_prefix("</function>") {
            Some(behind) => behind,
            None if inside.trim().is_empty() => "",
            None => return None,
        };
        calls.push(call(name.trim(), arguments.into()));
        // Another call, if it is valid; other text is not inspected here.
        if rest.trim_start().starts_with(FUNCTION) {
            rest = rest.trim_start();
        }
    }
    (!calls.is_empty()).then_some((calls, rest))
}

/// Parses parameters in tags, and returns the text after them.
fn parameters<'a>(mut text: &'a str, tool: &str, offered: &[ToolSpec]) -> (Map<String, Value>, &'a str) {
    let mut arguments = Map::new();
    while let Some((key, value)) = text.strip_prefix("<parameter=").and_then(|inside| inside.split_once('>'))
        && let Some((value, behind)) = value.split_once("</parameter>")
    {
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        arguments.insert(key.trim().to_owned(), typed(value, tool, key.trim(), offered));
        text = behind.trim_start();
    }
    (arguments, text)
}

/// Converts an unmarked value to the type of the schema.
fn typed(value: &str, tool: &str, key: &str, offered: &[ToolSpec]) -> Value {
    let spec = offered.iter().find(|spec| spec.name == tool);
    let kind = spec.and_then(|spec| spec.parameters.get("properties")?.get(key)?.get("type"));
    match kind {
        Some(Value::String(kind)) if kind == "string" => value.into(),
        _ => serde_json::from_str(value).unwrap_or_else(|_| value.into()),
    }
}

/// Parses `[TOOL_CALLS]`, followed by a list, or by a name and the arguments.
fn mistral(text: &str) -> Option<Objects<'_>> {
    let (mut calls, mut rest) = (Vec::new(), text);
    while let Some(inside) = rest.strip_prefix(MISTRAL).filter(|_| calls.len() <= MAX_CALLS) {
        let inside = inside.trim_start();
        if inside.starts_with(['[', '{']) {
            let (list, behind) = objects(inside)?;
            calls.extend(list);
            rest = behind;
        } else {
            let (name, arguments) = mistral_name(inside);
            let arguments = arguments.trim_start();
            let arguments = arguments.strip_prefix("[ARGS]").unwrap_or(arguments).trim_start();
            let mut values = serde_json::Deserializer::from_str(arguments).into_iter::<Map<String, Value>>();
            let object = values.next()?.ok()?;
            rest = &arguments[values.byte_offset()..];
            calls.push(call(name, object.into()));
        }
        if rest.trim_start().starts_with(MISTRAL) {
            rest = rest.trim_start();
        }
    }
    (!calls.is_empty()).then_some((calls, rest))
}

/// Splits the name of a tool from the text after it.
fn mistral_name(text: &str) -> (&str, &str) {
    let is_name = |char: char| char.is_ascii_alphanumeric() || "_-.".contains(char);
    text.split_at(text.len() - text.trim_start_matches(is_name).len())
}

fn call(name: &str, arguments: Value) -> Map<String, Value> {
    Map::from_iter([("name".to_owned(), name.into()), ("arguments".to_owned(), arguments)])
}

/// Reads the call of an object, if it is one of an offered tool. The id is assigned later.
fn read(mut object: Map<String, Value>, offered: &[ToolSpec]) -> Option<ToolCall> {
    // Some wrap it in the form of the protocol.
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
    offered.iter().any(|tool| tool.name == name).then(|| ToolCall::new("", name, arguments))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(text: &str) -> Option<Vec<(String, String)>> {
        let found = text_calls(text, &tools())?;
        assert_eq!(found.text, "", "{text}");
        let calls = found.calls;
        assert!(calls.iter().enumerate().all(|(n, call)| call.id == format!("call_{}", n + 1)));
        Some(calls.into_iter().map(|call| (call.name, call.arguments)).collect())
    }

    fn tools() -> [ToolSpec; 2] {
        let tool =
            |name: &str, parameters| ToolSpec { name: name.into(), description: String::new(), parameters };
        [
            tool("add", json!({"type": "object", "properties": {"a": {"type": "integer"}}})),
            tool(
                "echo",
                json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}),
            ),
        ]
    }

    /// Returns the prose, and the names and arguments of the calls.
    fn split(text: &str) -> Option<(String, Vec<String>)> {
        let found = text_calls(text, &tools())?;
        let calls = found.calls.into_iter().map(|call| format!("{}{}", call.name, call.arguments));
        Some((found.text, calls.collect()))
    }

    #[test]
    fn every_form_of_a_call_is_read() {
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
            r#"<function=echo>{"x": "1"}</function>"#.to_owned(),
            "<function=echo>\n<parameter=x>\n1\n</parameter>\n</function>".to_owned(),
            "<tool_call>\n<function=echo>\n<parameter=x>1</parameter>\n</function>\n</tool_call>".to_owned(),
            format!("[TOOL_CALLS] [{call}]"),
            format!("[TOOL_CALLS]{call}"),
            r#"[TOOL_CALLS]echo[ARGS]{"x": "1"}"#.to_owned(),
            r#"[TOOL_CALLS]echo{"x": "1"}"#.to_owned(),
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
            r#"<function=echo>{"x":"1"}</function>
<function=add>{"a":1}</function>"#
                .to_owned(),
            r#"[TOOL_CALLS]echo{"x":"1"}[TOOL_CALLS]add{"a":1}"#.to_owned(),
            format!("{a}[TOOL_CALLS]{b}"),
            format!("```json\n{a}\n```\n```json\n{b}\n```"),
        ] {
            let names: Vec<_> = found(&text).unwrap().into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, ["echo", "add"], "{text}");
        }
    }

    #[test]
    fn prose_and_other_json_are_unchanged() {
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
            format!("I would call <tool_call>{call}</tool_call>."),
            format!("Write `<tool_call>{call}</tool_call>`\nto call it"),
            format!("Write\n```xml\n<tool_call>{call}</tool_call>\n```"),
            format!("Look:\n```json\n{call}\n```\nThat calls it."),
            format!("Look:\n```json\n{call}\n```\nThat calls it.\n```sh\nls\n```"),
            "So.\n<tool_call>{\"name\":\"echo\",\"arguments\":{\"x\":1}}</tool_call>".to_owned(),
            "So.\n<tool_call>{\"name\":\"rm\",\"arguments\":{}}</tool_call>".to_owned(),
            "So.\n<function=echo>{}</function>".to_owned(),
            "So.\n[TOOL_CALLS]rm{}".to_owned(),
            "a < b [1] `c` ``` <tool_call> <function= [TOOL_CALLS]".to_owned(),
            format!("[{}]", vec![call; MAX_CALLS + 1].join(",")),
        ] {
            assert_eq!(found(&text), None, "{text}");
        }
        assert_eq!(found(&format!(r#"[{call},{{"name":"rm","arguments":{{}}}}]"#)), None);
    }

    #[test]
    fn marked_calls_are_found_behind_prose() {
        let call = r#"{"name":"echo","arguments":{"x":"1"}}"#;
        let one = |prose: &str| Some((prose.to_owned(), vec![r#"echo{"x":"1"}"#.to_owned()]));
        for text in [
            format!("I look.\n\n<tool_call>\n{call}\n</tool_call>"),
            format!("I look. <tool_call>{call}</tool_call>\n"),
            format!("I look.\n<tool_call>{call}"),
            "I look.\n<function=echo>{\"x\":\"1\"}</function>".to_owned(),
            "I look.\n<tool_call>\n<function=echo>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>".to_owned(),
            format!("I look.[TOOL_CALLS][{call}]"),
            "I look.\n[TOOL_CALLS]echo[ARGS]{\"x\":\"1\"}".to_owned(),
            format!("I look.\n```json\n{call}\n```\n"),
        ] {
            assert_eq!(split(&text), one("I look."), "{text}");
        }
        // Other marked, fenced or bracketed text does not hide it.
        let code = "See `<tool_call>` and:\n```sh\n<tool_call>\n```\nNow [1] <b>";
        assert_eq!(split(&format!("{code}\n<tool_call>{call}</tool_call>")), one(code));
        let hallucinated = format!("One.\n<tool_call>{call}</tool_call>\nThe result is 5.");
        assert_eq!(split(&hallucinated), one("One.\n\nThe result is 5."));
        let unfit = r#"<tool_call>{"name":"echo","arguments":{}}</tool_call>"#;
        assert_eq!(
            split(&format!("So. {unfit}\n<tool_call>{call}</tool_call> <tool_call>{call}</tool_call>"))
                .unwrap()
                .1
                .len(),
            2
        );
        let tag_in_it = r#"So <tool_call>{"name":"echo","arguments":{"x":"</tool_call>"}}</tool_call>"#;
        assert_eq!(split(tag_in_it).unwrap().1, [r#"echo{"x":"</tool_call>"}"#]);
    }

    #[test]
    fn calls_in_reasoning_are_not_made() {
        let call = r#"<tool_call>{"name":"echo","arguments":{"x":"1"}}</tool_call>"#;
        for (open, close) in THOUGHTS {
            for text in [
                format!("{open}I could run\n{call}\nbut better not.{close}\nHello"),
                format!("{open}{call}{close}"),
                format!("{open}I could run\n{call}"),
                format!("I could run\n{call}\nbut better not.{close}\nHello"),
                format!("{call}\n{close}\nHello"),
                format!("Hm. {open}It's ` or ```\n{call}{close}\nHello"),
                format!("{open}I could run\n```json\n{}\n```", &call[11..call.len() - 12]),
            ] {
                assert_eq!(split(&text), None, "{text}");
            }
            let thought = format!("{open}Or `{call}`?{close}");
            let other = r#"<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>"#;
            let found = Some((thought.clone(), vec![r#"add{"a":1}"#.to_owned()]));
            assert_eq!(split(&format!("{thought}\n{other}")), found);
            let found = Some((format!("Hm.\n{call}\n{close}"), vec![r#"add{"a":1}"#.to_owned()]));
            assert_eq!(split(&format!("Hm.\n{call}\n{close}\n{other}")), found);
            let quoted =
                format!(r#"So <tool_call>{{"name":"echo","arguments":{{"x":"{close}{open}"}}}}</tool_call>"#);
            assert_eq!(split(&quoted).unwrap().1.len(), 1, "{quoted}");
        }
    }

    #[test]
    fn a_text_that_is_to_be_json_has_only_marked_calls() {
        let call = r#"{"name":"echo","arguments":{"x":"1"}}"#;
        for text in [
            call.to_owned(),
            format!("[{call}]"),
            format!("```json\n{call}\n```"),
            format!("So:\n```\n{call}\n```"),
        ] {
            assert!(text_calls_of(&text, &tools(), Forms::All).is_some(), "{text}");
            assert_eq!(text_calls_of(&text, &tools(), Forms::Marked), None, "{text}");
        }
        for text in [
            format!("<tool_call>{call}</tool_call>"),
            format!("So.\n<tool_call>{call}</tool_call>"),
            format!("[TOOL_CALLS][{call}]"),
            r#"<function=echo>{"x":"1"}</function>"#.to_owned(),
        ] {
            assert_eq!(text_calls_of(&text, &tools(), Forms::Marked).unwrap().calls.len(), 1, "{text}");
        }
    }

    #[test]
    fn a_text_with_very_many_values_has_no_calls() {
        let call = |values: usize| {
            let values = vec!["0"; values].join(",");
            format!(r#"<tool_call>{{"name":"echo","arguments":{{"x":"1","y":[{values}]}}}}</tool_call>"#)
        };
        assert!(text_calls(&call(MAX_VALUES - 10), &tools()).is_some());
        assert_eq!(text_calls(&call(MAX_VALUES), &tools()), None);
    }

    #[test]
    fn a_text_that_is_made_to_be_read_again_and_again_is_read_in_time() {
        for piece in [
            "<tool_call>",
            "<tool_call>{\"a\":[",
            "<tool_call>{\"\":\"",
            "```",
            "```json\n{",
            "`",
            "[TOOL_CALLS][",
            "[[[",
            "<function=echo>",
            "<function=echo><parameter=a>",
            "<tool_call>[{},",
            "{{",
            "<think>",
            "</think>",
            "<think></thinking>",
            "[THINK]</think>",
        ] {
            let text = piece.repeat(400_000 / piece.len());
            assert_eq!(split(&text), None, "{piece}");
        }
    }
}
