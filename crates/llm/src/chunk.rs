//! Lenient parsing of chat-completions chunks.

mod content;
mod halves;

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, SeqAccess, Visitor},
};
use serde_json::{Value, json, value::RawValue};

use self::{
    content::Content,
    halves::{Halves, Wtf8},
};
use crate::{Delta, FinishReason, ModelError, ModelErrorKind, Usage, assemble::truncated, wire::excerpt};

/// One `data:` payload of a chat-completions stream.
///
/// Only used fields are read, and all of them are optional: servers leave out `created`, send `null` for
/// lists, or end with a chunk without choices.
#[derive(Clone, Debug, Deserialize)]
pub struct Chunk {
    /// One answer is requested; a second choice would be mixed into the first.
    #[serde(default, deserialize_with = "first")]
    choices: Option<Choice>,
    #[serde(default, deserialize_with = "usage")]
    usage: Option<Usage>,
    #[serde(default)]
    error: Option<Value>,
    /// Some servers send an unwrapped error.
    #[serde(default)]
    message: Option<Value>,
    #[serde(default)]
    detail: Option<Value>,
    #[serde(default, rename = "type")]
    kind: Option<Value>,
    #[serde(default)]
    code: Option<Value>,
}

impl Chunk {
    /// Returns the error in the chunk, if it is an error. Some servers send an empty one with each chunk.
    fn error(&mut self) -> Option<Value> {
        let says = |text: &Option<Value>| text.as_ref().is_some_and(|text| !text.is_null());
        let is_empty = |error: &Value| [json!(""), json!(false), json!({}), json!([])].contains(error);
        match self.error.take().filter(|error| !is_empty(error)) {
            Some(error) => Some(error),
            None if self.choices.is_none() && (says(&self.message) || says(&self.detail)) => {
                let Self { message, detail, kind, code, .. } = self;
                Some(json!({"message": message, "detail": detail, "type": kind, "code": code}))
            }
            None => None,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Option<Piece>,
    /// The message of servers that do not stream.
    #[serde(default)]
    message: Option<Piece>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Piece {
    #[serde(default)]
    content: Option<Content>,
    #[serde(default)]
    refusal: Option<Content>,
    #[serde(default)]
    reasoning_content: Option<Wtf8>,
    #[serde(default)]
    reasoning: Option<Wtf8>,
    #[serde(default, deserialize_with = "few")]
    tool_calls: Vec<CallPiece>,
    /// The only call, in the older form without an id.
    #[serde(default)]
    function_call: Option<FunctionPiece>,
}

#[derive(Clone, Debug, Deserialize)]
struct CallPiece {
    #[serde(default, deserialize_with = "index")]
    index: Option<usize>,
    #[serde(default, deserialize_with = "id")]
    id: Option<String>,
    #[serde(default)]
    function: Option<FunctionPiece>,
}

#[derive(Clone, Debug, Deserialize)]
struct FunctionPiece {
    #[serde(default)]
    name: Option<String>,
    /// Some servers send the arguments as the object itself.
    #[serde(default)]
    arguments: Option<Box<RawValue>>,
}

/// The maximum number of pieces of tool calls in one chunk. Each takes many times its size on the wire.
const MAX_PIECES: usize = 4096;

/// Reads the first element of a list, or null.
fn first<'de, D: Deserializer<'de>, T: Deserialize<'de>>(list: D) -> Result<Option<T>, D::Error> {
    Ok(list.deserialize_any(Elements { read: 1, refuse: usize::MAX, of: PhantomData })?.into_iter().next())
}

/// Reads a list of a bounded number of elements, or null.
fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(list: D) -> Result<Vec<T>, D::Error> {
    list.deserialize_any(Elements { read: MAX_PIECES, refuse: MAX_PIECES, of: PhantomData })
}

/// A visitor that reads up to `read` elements of a list, ignores the others, and rejects a list of more than `refuse`.
struct Elements<T> {
    read: usize,
    refuse: usize,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Elements<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while elements.len() < self.read
            && let Some(element) = list.next_element()?
        {
            elements.push(element);
        }
        let mut seen = elements.len();
        while list.next_element::<IgnoredAny>()?.is_some() {
            seen += 1;
            if seen > self.refuse {
                return Err(Error::custom(format_args!("a list of more than {} elements", self.refuse)));
            }
        }
        Ok(elements)
    }
}

/// Reads the reported tokens; `None` if there are none, because a server that reports zeros has not counted them. No value
/// makes an answer unreadable.
fn usage<'de, D: Deserializer<'de>>(usage: D) -> Result<Option<Usage>, D::Error> {
    let usage = Value::deserialize(usage)?;
    let tokens = |field: &str| usage.get(field).and_then(number).unwrap_or(0);
    let usage = Usage { input_tokens: tokens("prompt_tokens"), output_tokens: tokens("completion_tokens") };
    Ok(Some(usage).filter(|usage| *usage != Usage::default()))
}

/// Reads the index of a call, which some servers send as a text, or as a negative number instead of none.
fn index<'de, D: Deserializer<'de>>(index: D) -> Result<Option<usize>, D::Error> {
    Ok(number(&Value::deserialize(index)?).and_then(|index| usize::try_from(index).ok()))
}

/// Reads the id of a call, which some servers send as a number.
fn id<'de, D: Deserializer<'de>>(id: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(id)? {
        Value::String(id) => Ok(Some(id)),
        Value::Number(id) => Ok(Some(id.to_string())),
        _ => Ok(None),
    }
}

/// Returns a count in any notation; `None` if it is not one.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        // The cast saturates, and drops fractions.
        value => value.as_u64().or_else(|| value.as_f64().filter(|n| *n >= 0.0).map(|n| n as u64)),
    }
}

/// Converts the chunks of one stream into [`Delta`]s and tracks whether the stream may end.
#[derive(Clone, Debug, Default)]
pub struct ChunkReader {
    /// The answer is complete: later data cannot invalidate it.
    finished: bool,
    /// The finish reason of an answer that the server gave up.
    failed: Option<String>,
    /// `true` if there was text, and if there were tool calls.
    has_text: bool,
    has_calls: bool,
    /// `true` if a part of the text is a refusal.
    refuses: bool,
    joints: Joints,
}

impl ChunkReader {
    /// Reads the text of one `data:` line.
    ///
    /// # Errors
    /// [`ModelErrorKind::Malformed`] if it is not a chunk; the server's own error if it contains one. Neither
    /// after a complete answer.
    pub fn read(&mut self, data: &str) -> Result<Vec<Delta>, ModelError> {
        match serde_json::from_str(data) {
            Ok(chunk) => self.take(chunk),
            Err(cause) => self.unless_complete(malformed(&cause.to_string(), data)),
        }
    }

    /// Reads one chunk.
    ///
    /// # Errors    The server's own error if the chunk carries one; after it the stream is over. Not after a complete answer.
    pub fn take(&mut self, mut chunk: Chunk) -> Result<Vec<Delta>, ModelError> {
        if let Some(error) = chunk.error() {
            return self.unless_complete(ModelError::from_stream(&error));
        }
        let mut deltas = Vec::new();
        if let Some(choice) = chunk.choices {
            if let Some(piece) = choice.delta.or(choice.message) {
                let refuses = piece.append_to(&mut self.joints, &mut deltas);
                if refuses && self.finished {
                    deltas.push(Delta::Finish(FinishReason::Refusal));
                }
                self.refuses |= refuses;
            }
            for delta in &deltas {
                self.has_text |= matches!(delta, Delta::Text(_));
                self.has_calls |= matches!(delta, Delta::ToolCall { .. });
            }
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                match is_failure(&reason) {
                    true => self.failed = Some(reason),
                    false => {
                        self.finished = true;
                        self.joints.end(&mut deltas);
                        deltas.push(Delta::Finish(self.reason(reason)));
                    }
                }
            }
        }
        deltas.extend(chunk.usage.map(Delta::Usage));
        Ok(deltas)
    }

    /// Returns an error, unless the answer is complete.
    pub(crate) fn unless_complete(&self, error: ModelError) -> Result<Vec<Delta>, ModelError> {
        if self.finished { Ok(Vec::new()) } else { Err(error) }
    }

    /// Returns the reason for which the answer ended. A refusal has that of an ordinary text at OpenAI, and any other elsewhere.
    fn reason(&self, reason: String) -> FinishReason {
        let reason = finish_reason(reason);
        let refuses = self.refuses && reason != FinishReason::ContentFilter;
        if refuses { FinishReason::Refusal } else { reason }
    }

    /// Returns the deltas for a `[DONE]` that ends an answer without a finish reason: none unless there was
    /// text, and no tool call, which may be truncated.
    pub fn done(&mut self) -> Vec<Delta> {
        let mut deltas = Vec::new();
        if !self.finished && self.failed.is_none() && self.has_text && !self.has_calls {
            self.finished = true;
            self.joints.end(&mut deltas);
            deltas.push(Delta::Finish(self.reason("stop".into())));
        }
        deltas
    }

    /// Ends the stream; `fault` is the error of a broken connection, if any.
    ///
    /// After the finish reason the answer is complete: a missing `[DONE]` or a broken connection is then
    /// ignored.
    ///
    /// # Errors
    /// `fault`, or [`ModelErrorKind::TruncatedStream`], if no finish reason has arrived. [`ModelErrorKind::Server`] if the
    /// finish reason was a failure of the server.
    pub fn end(&self, fault: Option<ModelError>) -> Result<(), ModelError> {
        match (&self.failed, fault) {
            _ if self.finished => Ok(()),
            (Some(reason), _) => Err(given_up(reason)),
            (None, fault) => Err(fault.unwrap_or_else(truncated)),
        }
    }
}

/// The halves of characters at the ends of an answer's texts.
#[derive(Clone, Debug, Default)]
struct Joints {
    text: Halves,
    reasoning: Halves,
    /// The halves of the arguments, by the index of their call.
    arguments: BTreeMap<usize, Halves>,
}

impl Joints {
    fn arguments(&mut self, index: usize, piece: Wtf8) -> String {
        let mut halves = self.arguments.remove(&index).unwrap_or_default();
        let arguments = halves.join(piece);
        if halves.is_pending() {
            self.arguments.insert(index, halves);
        }
        arguments
    }

    /// Appends the replacements of halves without their others.
    fn end(&mut self, deltas: &mut Vec<Delta>) {
        deltas.extend(self.reasoning.end().map(|char| Delta::Reasoning(char.into())));
        deltas.extend(self.text.end().map(|char| Delta::Text(char.into())));
        for (index, mut halves) in std::mem::take(&mut self.arguments) {
            let arguments = halves.end().into_iter().collect();
            deltas.push(Delta::ToolCall { index, id: None, name: None, arguments });
        }
    }
}

impl Piece {
    /// Appends the deltas of a choice. Returns whether a part is a refusal.
    fn append_to(self, joints: &mut Joints, deltas: &mut Vec<Delta>) -> bool {
        let content = self.content.unwrap_or_default();
        // A server that sends both fields sends the same text twice.
        let reasoning = self.reasoning_content.filter(|text| !text.is_empty()).or(self.reasoning);
        let mut reasoning = reasoning.unwrap_or_default();
        reasoning.push(&content.reasoning);
        let reasoning = joints.reasoning.join(reasoning);
        if !reasoning.is_empty() {
            deltas.push(Delta::Reasoning(reasoning));
        }
        let mut refusal = self.refusal.map(|refusal| refusal.text).unwrap_or_default();
        refusal.push(&content.refusal);
        let refuses = !refusal.is_empty();
        for text in [content.text, refusal] {
            let text = joints.text.join(text);
            if !text.is_empty() {
                deltas.push(Delta::Text(text));
            }
        }
        // A server that sends both forms sends the same call twice.
        let only = self.function_call.filter(|_| self.tool_calls.is_empty());
        let only = only.map(|function| CallPiece { index: None, id: None, function: Some(function) });
        for (position, call) in self.tool_calls.into_iter().chain(only).enumerate() {
            let (name, arguments) = match call.function {
                Some(function) => (function.name, function.arguments),
                None => (None, None),
            };
            let (index, id) = (call.index.unwrap_or(position), call.id);
            let arguments = arguments.map(|raw| text_of(&raw)).unwrap_or_default();
            let arguments = joints.arguments(index, arguments);
            deltas.push(Delta::ToolCall { index, id, name, arguments });
        }
        refuses
    }
}

/// Returns the argument text: the content of a JSON string, or any other JSON as written.
fn text_of(raw: &RawValue) -> Wtf8 {
    match raw.get() {
        "null" => Wtf8::default(),
        text => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
    }
}

/// Converts a finish reason, in the words of different servers.
fn finish_reason(reason: String) -> FinishReason {
    match reason.to_ascii_lowercase().as_str() {
        "stop" => FinishReason::Stop,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "length" | "max_tokens" | "max_output_tokens" | "model_length" => FinishReason::Length,
        "content_filter" | "sensitive" | "safety" => FinishReason::ContentFilter,
        "refusal" => FinishReason::Refusal,
        _ => FinishReason::Other(reason),
    }
}

/// Returns whether a finish reason states that the server could not complete the answer.
fn is_failure(reason: &str) -> bool {
    ["error", "abort", "network_error", "insufficient_system_resource"]
        .iter()
        .any(|failure| reason.eq_ignore_ascii_case(failure))
}

/// Creates the error of an answer that the server gave up.
fn given_up(reason: &str) -> ModelError {
    let reason = excerpt(reason);
    let message = format!(
        "the server gave up the answer (finish reason `{reason}`), which is incomplete; send the request again"
    );
    ModelError::new(ModelErrorKind::Server, message)
}

/// Creates the error of an unreadable chunk.
pub(crate) fn malformed(cause: &str, data: &str) -> ModelError {
    let message =
        format!("the server sent a chunk that is not a chat completion ({cause}): {}", excerpt(data));
    ModelError::new(ModelErrorKind::Malformed, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(data: &str) -> Vec<Delta> {
        ChunkReader::default().read(data).unwrap()
    }

    #[test]
    fn a_chunk_may_lack_everything() {
        assert_eq!(read("{}"), []);
        assert_eq!(read(r#"{"choices":null,"usage":null}"#), []);
        assert_eq!(read(r#"{"choices":[{}]}"#), []);
        assert_eq!(
            read(r#"{"choices":[{"delta":{"content":null,"tool_calls":null},"finish_reason":""}]}"#),
            []
        );
    }

    #[test]
    fn reasoning_is_read_from_either_field_once() {
        let expected = [Delta::Reasoning("hm".into())];
        assert_eq!(read(r#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#), expected);
        assert_eq!(read(r#"{"choices":[{"delta":{"reasoning":"hm","content":""}}]}"#), expected);
        assert_eq!(read(r#"{"choices":[{"delta":{"reasoning":"hm","reasoning_content":"hm"}}]}"#), expected);
    }

    #[test]
    fn calls_without_an_index_are_distinguished_by_position() {
        let data = r#"{"choices":[{"delta":{"tool_calls":[
            {"id":"a","function":{"name":"echo","arguments":null}},
            {"id":"b","function":{"name":"echo","arguments":{"x":1}}}]}}]}"#;
        let call = |index, id: &str, arguments: &str| Delta::ToolCall {
            index,
            id: Some(id.into()),
            name: Some("echo".into()),
            arguments: arguments.into(),
        };
        assert_eq!(read(data), [call(0, "a", ""), call(1, "b", r#"{"x":1}"#)]);
    }

    #[test]
    fn a_call_in_the_older_form_is_a_call_unless_it_is_there_in_the_newer_one() {
        let mut reader = ChunkReader::default();
        let mut read = |delta: &str, end: &str| {
            let data = format!(r#"{{"choices":[{{"delta":{delta},"finish_reason":{end}}}]}}"#);
            reader.read(&data).unwrap()
        };
        let call = |name: Option<&str>, arguments: &str| Delta::ToolCall {
            index: 0,
            id: None,
            name: name.map(str::to_owned),
            arguments: arguments.into(),
        };
        let begin = r#"{"content":null,"function_call":{"name":"echo","arguments":""}}"#;
        assert_eq!(read(begin, "null"), [call(Some("echo"), "")]);
        assert_eq!(read(r#"{"function_call":{"arguments":"{}"}}"#, "null"), [call(None, "{}")]);
        assert_eq!(read("{}", r#""function_call""#), [Delta::Finish(FinishReason::ToolCalls)]);
        let both = r#"{"function_call":{"name":"echo"},"tool_calls":[{"function":{"name":"echo"}}]}"#;
        assert_eq!(read(both, "null"), [call(Some("echo"), "")]);
    }

    #[test]
    fn content_may_be_a_list_of_parts() {
        let data = r#"{"choices":[{"delta":{"content":[
            {"type":"thinking","thinking":[{"type":"text","text":"hm"}]},
            {"type":"text","text":"Hel"},{"type":"output_text","text":"lo"},"!",{"type":"image","url":{"a":[1]}},null]}}]}"#;
        assert_eq!(read(data), [Delta::Reasoning("hm".into()), Delta::Text("Hello!".into())]);
        let data = r#"{"choices":[{"delta":{"content":{"type":"text","text":"one"}}}]}"#;
        assert_eq!(read(data), [Delta::Text("one".into())]);
    }

    #[test]
    fn an_error_is_read_with_anything_around_it() {
        for (data, kind) in [
            (r#"{"error":{"message":"slow down","code":429}}"#, ModelErrorKind::RateLimited),
            (
                r#"{"object":"error","message":"slow down","type":"x","code":429}"#,
                ModelErrorKind::RateLimited,
            ),
            (r#"{"detail":"slow down"}"#, ModelErrorKind::Server),
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"slow down"}}"#,
                ModelErrorKind::Server,
            ),
        ] {
            let error = ChunkReader::default().read(data).unwrap_err();
            assert_eq!(
                (error.kind, error.message.as_str()),
                (kind, "the server aborted the response: slow down"),
                "{data}"
            );
        }
    }

    #[test]
    fn an_empty_error_is_not_an_error() {
        for error in ["null", "false", r#""""#, "{}", "[]"] {
            let data = format!(r#"{{"choices":[{{"delta":{{"content":"a"}}}}],"error":{error}}}"#);
            assert_eq!(read(&data), [Delta::Text("a".into())], "{error}");
        }
        assert!(ChunkReader::default().read(r#"{"choices":[],"error":true}"#).is_err());
    }

    #[test]
    fn a_refusal_is_text_of_an_answer_that_ends_as_one() {
        let refused = [Delta::Text("I cannot".into()), Delta::Finish(FinishReason::Refusal)];
        for data in [
            r#"{"choices":[{"delta":{"content":null,"refusal":"I cannot"},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"delta":{"content":null,"refusal":"I cannot"},"finish_reason":"length"}]}"#,
            r#"{"choices":[{"delta":{"content":null,"refusal":"I cannot"},"finish_reason":"eos"}]}"#,
            r#"{"choices":[{"delta":{"content":[{"type":"refusal","refusal":"I cannot"}]},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"message":{"content":null,"refusal":"I cannot"},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"delta":{"content":"I cannot"},"finish_reason":"refusal"}]}"#,
        ] {
            assert_eq!(read(data), refused, "{data}");
        }
        let mut reader = ChunkReader::default();
        reader.read(r#"{"choices":[{"delta":{"refusal":"I cannot"}}]}"#).unwrap();
        let end = reader.read(r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#).unwrap();
        assert_eq!(end, [Delta::Finish(FinishReason::Refusal)]);
    }

    #[test]
    fn a_refusal_counts_with_every_finish_reason_of_a_complete_answer() {
        let ends = |chunks: &[&str]| {
            let mut reader = ChunkReader::default();
            let deltas = chunks.iter().flat_map(|data| reader.read(data).unwrap());
            let ends = deltas.filter_map(|delta| match delta {
                Delta::Finish(reason) => Some(reason),
                _ => None,
            });
            ends.collect::<Vec<_>>().pop()
        };
        let refusal = r#"{"choices":[{"delta":{"refusal":"I cannot"}}]}"#;
        let call =
            r#"{"choices":[{"delta":{"tool_calls":[{"id":"c","function":{"name":"x","arguments":"{}"}}]}}]}"#;
        let end = |reason: &str| format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":"{reason}"}}]}}"#);
        for (reason, wanted) in [
            ("stop", FinishReason::Refusal),
            ("tool_calls", FinishReason::Refusal),
            ("length", FinishReason::Refusal),
            ("eos", FinishReason::Refusal),
            ("content_filter", FinishReason::ContentFilter),
        ] {
            assert_eq!(ends(&[refusal, call, &end(reason)]), Some(wanted.clone()), "{reason}");
            assert_eq!(ends(&[call, refusal, &end(reason)]), Some(wanted), "{reason}");
        }
        assert_eq!(ends(&[call, &end("tool_calls"), refusal]), Some(FinishReason::Refusal));
    }

    #[test]
    fn a_character_may_be_cut_between_its_escapes() {
        let read = |chunks: &[&str]| {
            let mut reader = ChunkReader::default();
            chunks.iter().flat_map(|data| reader.read(data).unwrap()).collect::<Vec<_>>()
        };
        let end = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
        let finish = Delta::Finish(FinishReason::Stop);
        for (first, second) in [
            (r#""content":"a\ud83d""#, r#""content":"\ude00""#),
            (
                r#""content":[{"type":"text","text":"a\ud83d"}]"#,
                r#""content":[{"type":"text","text":"\ude00"}]"#,
            ),
        ] {
            let [first, second] =
                [first, second].map(|delta| format!(r#"{{"choices":[{{"delta":{{{delta}}}}}]}}"#));
            let text = [Delta::Text("a".into()), Delta::Text("😀".into()), finish.clone()];
            assert_eq!(read(&[&first, "{}", &second, end]), text);
            let text = [Delta::Text("a".into()), Delta::Text("\u{FFFD}".into()), finish.clone()];
            assert_eq!(read(&[&first, end]), text);
        }
        let thought = |text: &str| format!(r#"{{"choices":[{{"delta":{{"reasoning_content":"{text}"}}}}]}}"#);
        assert_eq!(read(&[&thought(r"\ud83d"), &thought(r"\ude00")]), [Delta::Reasoning("😀".into())]);
        let arguments = |index: usize, text: &str| {
            format!(
                r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":{index},"function":{{"arguments":"{text}"}}}}]}}}}]}}"#
            )
        };
        let pieces = [
            arguments(0, r#"{\"x\":\"\ud83d"#),
            arguments(1, r#"{\"x\":\"\ud83d"#),
            arguments(0, r#"\ude00\"}"#),
            end.to_owned(),
        ];
        let call = |index, arguments: &str| Delta::ToolCall {
            index,
            id: None,
            name: None,
            arguments: arguments.into(),
        };
        let wanted =
            [call(0, r#"{"x":""#), call(1, r#"{"x":""#), call(0, "😀\"}"), call(1, "\u{FFFD}"), finish];
        assert_eq!(read(&pieces.each_ref().map(String::as_str)), wanted);
        let mut reader = ChunkReader::default();
        reader.read(r#"{"choices":[{"delta":{"content":"a\ud83d"}}]}"#).unwrap();
        assert_eq!(reader.done(), [Delta::Text("\u{FFFD}".into()), Delta::Finish(FinishReason::Stop)]);
    }

    #[test]
    fn done_ends_a_text_and_nothing_else() {
        let done = |chunks: &[&str]| {
            let mut reader = ChunkReader::default();
            chunks.iter().for_each(|data| drop(reader.read(data).unwrap()));
            (reader.done(), reader.end(None).is_ok())
        };
        let text = r#"{"choices":[{"delta":{"content":"a"}}]}"#;
        let call = r#"{"choices":[{"delta":{"tool_calls":[{"id":"c","function":{"name":"x"}}]}}]}"#;
        assert_eq!(done(&[text]), (vec![Delta::Finish(FinishReason::Stop)], true));
        assert_eq!(done(&[text, call]), (vec![], false));
        assert_eq!(done(&[]), (vec![], false));
    }

    #[test]
    fn a_chunk_of_very_many_calls_is_refused_and_of_very_many_choices_read_once() {
        let calls = |n: usize| {
            let calls = vec!["{}"; n].join(",");
            format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{calls}]}}}}]}}"#)
        };
        assert_eq!(read(&calls(MAX_PIECES)).len(), MAX_PIECES);
        let error = ChunkReader::default().read(&calls(MAX_PIECES + 1)).unwrap_err();
        assert!(error.message.contains("a list of more than 4096 elements"), "{error}");
        assert_eq!(read(r#"{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}"#).len(), 1);
    }

    #[test]
    fn an_unknown_finish_reason_ends_the_answer_as_it_is_written() {
        let mut reader = ChunkReader::default();
        let deltas = reader.read(r#"{"choices":[{"delta":{},"finish_reason":"eos"}]}"#).unwrap();
        assert_eq!(deltas, [Delta::Finish(FinishReason::Other("eos".into()))]);
        assert!(reader.end(None).is_ok());
    }

    #[test]
    fn finish_reasons_of_other_servers_mean_the_same() {
        let read = |reason: &str| {
            let mut reader = ChunkReader::default();
            let data = format!(r#"{{"choices":[{{"delta":{{"content":"a"}},"finish_reason":"{reason}"}}]}}"#);
            (reader.read(&data).unwrap().pop(), reader.done(), reader.end(None).map_err(|error| error.kind))
        };
        for (finish, reasons) in [
            (FinishReason::Length, ["length", "max_tokens", "MAX_TOKENS", "model_length"]),
            (FinishReason::ContentFilter, ["content_filter", "sensitive", "SAFETY", "safety"]),
        ] {
            for reason in reasons {
                assert_eq!(read(reason), (Some(Delta::Finish(finish.clone())), vec![], Ok(())), "{reason}");
            }
        }
        for reason in ["error", "ERROR", "abort", "network_error", "insufficient_system_resource"] {
            let text = Some(Delta::Text("a".into()));
            assert_eq!(read(reason), (text, vec![], Err(ModelErrorKind::Server)), "{reason}");
        }
    }

    #[test]
    fn tokens_are_read_in_any_notation_and_invalidate_nothing() {
        let usage = |usage: &str| read(&format!(r#"{{"choices":[],"usage":{usage}}}"#)).pop();
        let tokens = |input_tokens, output_tokens| Some(Delta::Usage(Usage { input_tokens, output_tokens }));
        for (text, wanted) in [
            (r#"{"prompt_tokens":12,"completion_tokens":2}"#, tokens(12, 2)),
            (r#"{"prompt_tokens":12.0,"completion_tokens":2.5}"#, tokens(12, 2)),
            (r#"{"prompt_tokens":"12","completion_tokens":" 2"}"#, tokens(12, 2)),
            (r#"{"prompt_tokens":12,"completion_tokens":-1}"#, tokens(12, 0)),
            (r#"{"prompt_tokens":1e30,"completion_tokens":null}"#, tokens(u64::MAX, 0)),
            (r#"{"prompt_tokens":0,"completion_tokens":3,"more":{"x":[1]}}"#, tokens(0, 3)),
            (r#"{"prompt_tokens":0,"completion_tokens":0}"#, None),
            (r#"{"prompt_tokens":-1,"completion_tokens":"many"}"#, None),
            ("{}", None),
            ("[]", None),
            ("[3, 4]", None),
            (r#""none""#, None),
            ("false", None),
            ("7", None),
        ] {
            assert_eq!(usage(text), wanted, "{text}");
        }
    }

    #[test]
    fn indexes_and_ids_are_read_in_any_notation() {
        let call = |index: &str, id: &str| {
            let call =
                format!(r#"{{"index":{index},"id":{id},"function":{{"name":"x","arguments":"{{}}"}}}}"#);
            match read(&format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{{}},{call}]}}}}]}}"#)).pop() {
                Some(Delta::ToolCall { index, id, .. }) => (index, id),
                other => panic!("{other:?}"),
            }
        };
        for (index, read) in [("3", 3), (r#""3""#, 3), ("3.0", 3), ("-1", 1), ("null", 1), (r#""a""#, 1)] {
            assert_eq!(call(index, "7"), (read, Some("7".to_owned())), "{index}");
        }
        for (id, read) in [(r#""c""#, Some("c")), ("7", Some("7")), ("null", None), ("{}", None)] {
            assert_eq!(call("0", id).1.as_deref(), read, "{id}");
        }
    }

    #[test]
    fn a_broken_connection_matters_only_before_the_finish_reason() {
        let fault = || Some(ModelError::new(ModelErrorKind::Timeout, "slow"));
        assert_eq!(ChunkReader::default().end(None).unwrap_err().kind, ModelErrorKind::TruncatedStream);
        assert_eq!(ChunkReader::default().end(fault()).unwrap_err().kind, ModelErrorKind::Timeout);
        assert!(ChunkReader { finished: true, ..ChunkReader::default() }.end(fault()).is_ok());
    }

    #[test]
    fn text_that_is_not_a_chunk_is_malformed() {
        let error = ChunkReader::default().read("{\"choices\":[{").unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Malformed);
        assert!(error.message.ends_with(": {\"choices\":[{"), "{}", error.message);
    }
}
