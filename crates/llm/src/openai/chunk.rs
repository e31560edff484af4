//! Lenient parsing of chat-completions chunks.

mod content;
mod fields;
mod finish;
mod parts;

use std::collections::BTreeMap;

pub use self::parts::Chunk;
use self::{
    fields::without_nan,
    finish::{Ending, ending, given_up},
    parts::{CallPiece, Choice, Piece},
};
use crate::{
    Delta, FinishReason, ModelError, ModelErrorKind,
    http::error::excerpt,
    model::assemble::truncated,
    texts::halves::{Halves, Wtf8},
};

/// Converts the chunks of one stream into [`Delta`]s and tracks whether the stream may end.
#[derive(Clone, Debug, Default)]
pub struct ChunkReader {
    /// The answer is complete: later data cannot invalidate it.
    finished: bool,
    /// The finish reason of an answer that the server gave up.
    failed: Option<String>,
    /// The parts that arrived as deltas.
    streamed: Kinds,
    /// The parts that arrived at all.
    seen: Kinds,
    /// `true` if a part of the text is a refusal.
    refuses: bool,
    joints: Joints,
    /// The text of the first event that was not a chunk, for the error of a stream without an end.
    foreign: Option<String>,
}

/// The kinds of parts in an answer.
#[derive(Clone, Copy, Debug, Default)]
struct Kinds {
    text: bool,
    reasoning: bool,
    calls: bool,
}

impl Kinds {
    fn or(self, other: Self) -> Self {
        Self {
            text: self.text || other.text,
            reasoning: self.reasoning || other.reasoning,
            calls: self.calls || other.calls,
        }
    }
}

impl ChunkReader {
    /// Reads the text of one `data:` line.
    ///
    /// Events without content, such as a heartbeat, give no deltas, in any form.
    /// # Errors
    /// [`ModelErrorKind::Malformed`] if it is the beginning of a chunk only; the server's own error if it contains one. Neither
    /// after a complete answer.
    pub fn read(&mut self, data: &str) -> Result<Vec<Delta>, ModelError> {
        let chunk = match serde_json::from_str(data) {
            Ok(chunk) => Ok(chunk),
            Err(cause) => without_nan(data).and_then(|data| serde_json::from_str(&data).ok()).ok_or(cause),
        };
        match chunk {
            Ok(chunk) => self.take(chunk),
            Err(cause) if data.trim_start().starts_with('{') => {
                self.unless_complete(malformed(&cause.to_string(), data))
            }
            Err(_) => self.take(Chunk::foreign(data)),
        }
    }

    /// Reads one chunk.
    ///
    /// # Errors
    /// The server's own error if the chunk carries one; after it the stream is over. Not after a complete answer.
    pub fn take(&mut self, chunk: Chunk) -> Result<Vec<Delta>, ModelError> {
        let Chunk { choice, usage, error, foreign } = chunk;
        let choice = choice.unwrap_or_default();
        if let Some(error) = error.or(choice.error) {
            return self.unless_complete(ModelError::from_stream(&error));
        }
        if self.foreign.is_none() {
            self.foreign = foreign;
        }
        let mut deltas = Vec::new();
        let Choice { delta, message, reason, native_reason, error: _ } = choice;
        let arrived = self.add(delta, &mut deltas);
        self.streamed = self.streamed.or(arrived);
        // A message behind deltas is the whole of them again.
        self.add(message.without(self.streamed), &mut deltas);
        match reason.map(|reason| ending(reason, native_reason)) {
            Some(Ending::Failed(reason)) => self.failed = Some(reason),
            Some(Ending::Finished(reason)) if self.failed.is_none() => {
                self.finished = true;
                self.joints.end(&mut deltas);
                deltas.push(Delta::Finish(self.reason(reason)));
            }
            _ => {}
        }
        deltas.extend(usage.map(Delta::Usage));
        Ok(deltas)
    }

    /// Appends the deltas of a part of a choice. Returns their kinds.
    fn add(&mut self, piece: Piece, deltas: &mut Vec<Delta>) -> Kinds {
        let before = deltas.len();
        let refuses = piece.append_to(&mut self.joints, deltas);
        if refuses && self.finished {
            deltas.push(Delta::Finish(FinishReason::Refusal));
        }
        self.refuses |= refuses;
        let has = |is_it: fn(&Delta) -> bool| deltas[before..].iter().any(is_it);
        let arrived = Kinds {
            text: has(|delta| matches!(delta, Delta::Text(_))),
            reasoning: has(|delta| matches!(delta, Delta::Reasoning(_))),
            calls: has(|delta| matches!(delta, Delta::ToolCall { .. })),
        };
        self.seen = self.seen.or(arrived);
        arrived
    }

    /// Returns an error, unless the answer is complete.
    fn unless_complete(&self, error: ModelError) -> Result<Vec<Delta>, ModelError> {
        if self.finished { Ok(Vec::new()) } else { Err(error) }
    }

    /// Returns whether the answer is complete: only its tokens may follow.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Returns the reason for which the answer ended. A refusal has that of an ordinary text at OpenAI, and any other elsewhere.
    fn reason(&self, reason: FinishReason) -> FinishReason {
        let refuses = self.refuses && reason != FinishReason::ContentFilter;
        if refuses { FinishReason::Refusal } else { reason }
    }

    /// Returns the deltas for a `[DONE]` that ends an answer without a finish reason: none unless there was
    /// text, and no tool call, which may be truncated.
    pub fn done(&mut self) -> Vec<Delta> {
        let mut deltas = Vec::new();
        if !self.finished && self.failed.is_none() && self.seen.text && !self.seen.calls {
            self.finished = true;
            self.joints.end(&mut deltas);
            deltas.push(Delta::Finish(self.reason(FinishReason::Stop)));
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
            (None, Some(fault)) => Err(fault),
            (None, None) => Err(self.truncated()),
        }
    }

    /// Returns the error of a stream without a finish reason, with the text that the server sent instead.
    fn truncated(&self) -> ModelError {
        let mut error = truncated();
        if let Some(foreign) = &self.foreign {
            error.message += &format!("; the server sent: {}", excerpt(foreign));
        }
        error
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
    /// Leaves out the kinds of parts that have arrived.
    fn without(mut self, kinds: Kinds) -> Self {
        if kinds.text {
            (self.content.text, self.content.refusal) = Default::default();
        }
        if kinds.reasoning {
            self.reasoning = Wtf8::default();
        }
        if kinds.calls {
            self.calls.clear();
        }
        self
    }

    /// Appends the deltas of a part of a choice. Returns whether a part of it is a refusal.
    fn append_to(self, joints: &mut Joints, deltas: &mut Vec<Delta>) -> bool {
        let reasoning = joints.reasoning.join(self.reasoning);
        if !reasoning.is_empty() {
            deltas.push(Delta::Reasoning(reasoning));
        }
        let refuses = !self.content.refusal.is_empty();
        for text in [self.content.text, self.content.refusal] {
            let text = joints.text.join(text);
            if !text.is_empty() {
                deltas.push(Delta::Text(text));
            }
        }
        deltas.extend(self.extra.map(|fields| Delta::Extra { call: None, fields }));
        for CallPiece { index, id, name, arguments, extra } in self.calls {
            let arguments = joints.arguments(index, arguments);
            deltas.push(Delta::ToolCall { index, id, name, arguments });
            deltas.extend(extra.map(|fields| Delta::Extra { call: Some(index), fields }));
        }
        refuses
    }
}

/// Creates the error of an unreadable chunk.
pub(crate) fn malformed(cause: &str, data: &str) -> ModelError {
    let message =
        format!("the server sent a chunk that is not a chat completion ({cause}): {}", excerpt(data));
    ModelError::new(ModelErrorKind::Malformed, message)
}

#[cfg(test)]
mod tests {
    use super::{parts::MAX_PIECES, *};
    use crate::Usage;

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
    fn a_chunk_without_content_has_no_deltas_whatever_its_shape() {
        let delta = |delta: &str| format!(r#"{{"choices":[{{"index":0,"delta":{delta}}}]}}"#);
        for data in [
            "null",
            "\"\"",
            "ping",
            "2026-11-28 12:00:00",
            "[]",
            "7",
            r#"{"choices":[null]}"#,
            r#"{"choices":""}"#,
            r#"{"choices":{}}"#,
            r#"{"choices":[{"delta":""}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":false}]}"#,
            r#"{"choices":[{"delta":{"content":""},"logprobs":NaN}]}"#,
            r#"{"type":"ping","message":"still here"}"#,
            &delta(r#"{"tool_calls":[null,null]}"#),
            &delta(r#"{"tool_calls":{}}"#),
            &delta(r#"{"tool_calls":""}"#),
            &delta(r#"{"tool_calls":[{}]}"#),
            &delta(r#"{"function_call":""}"#),
            &delta(r#"{"reasoning":false}"#),
            &delta(r#"{"content":"","content":""}"#),
            &delta(r#"{"content":true,"role":["assistant"]}"#),
        ] {
            assert_eq!(read(data), [], "{data}");
        }
        let text = |text: &str| vec![Delta::Text(text.into())];
        assert_eq!(
            read(&delta(r#"{"content":"a","tool_calls":"x","reasoning":7e999,"refusal":{}}"#)).pop(),
            text("a").pop()
        );
        assert_eq!(read(r#"{"choices":[null,{"delta":{"content":"a"}}]}"#), text("a"));
        assert_eq!(read(r#"{"choices":{"delta":{"content":4.20}}}"#), text("4.20"));
        let parts = read(&delta(r#"{"reasoning_content":[{"type":"text","text":"hm"}]}"#));
        assert_eq!(parts, [Delta::Reasoning("hm".into())]);
    }

    #[test]
    fn a_text_instead_of_an_answer_is_in_the_error() {
        let mut reader = ChunkReader::default();
        assert_eq!(reader.read("upstream is down").unwrap(), []);
        assert_eq!(reader.read("x").unwrap(), []);
        let error = reader.end(None).unwrap_err();
        assert!(error.message.ends_with("; the server sent: upstream is down"), "{error}");
    }

    #[test]
    fn a_whole_message_behind_its_pieces_counts_for_what_they_lack() {
        let read = |chunks: &[&str]| {
            let mut reader = ChunkReader::default();
            chunks.iter().flat_map(|data| reader.read(data).unwrap()).collect::<Vec<_>>()
        };
        let text = |text: &str| Delta::Text(text.into());
        let call = r#"{"index":0,"id":"c","function":{"name":"x","arguments":"{}"}}"#;
        let called = Delta::ToolCall {
            index: 0,
            id: Some("c".into()),
            name: Some("x".into()),
            arguments: "{}".into(),
        };
        let piece = |delta: &str| format!(r#"{{"choices":[{{"delta":{delta}}}]}}"#);
        let whole = format!(
            r#"{{"choices":[{{"delta":{{}},"message":{{"content":"Hello","tool_calls":[{call}]}},"finish_reason":"stop"}}]}}"#
        );
        let finish = Delta::Finish(FinishReason::Stop);
        let (hel, lo) = (piece(r#"{"content":"Hel"}"#), piece(r#"{"content":"lo"}"#));
        assert_eq!(read(&[&hel, &lo, &whole]), [text("Hel"), text("lo"), called.clone(), finish.clone()]);
        let calls = piece(&format!(r#"{{"tool_calls":[{call}]}}"#));
        assert_eq!(read(&[&calls, &whole]), [called.clone(), text("Hello"), finish.clone()]);
        assert_eq!(read(&[&whole]), [text("Hello"), called, finish]);
        // Pieces under the name of a message.
        let message = |content: &str| format!(r#"{{"choices":[{{"message":{{"content":"{content}"}}}}]}}"#);
        assert_eq!(read(&[&message("Hel"), &message("lo")]), [text("Hel"), text("lo")]);
    }

    #[test]
    fn unknown_fields_of_a_message_and_of_a_call_are_passed_on() {
        let data = r#"{"choices":[{"delta":{"role":"assistant","content":"a","reasoning_details":[{"type":"x"}],"n":1,"e":[],"s":"",
            "tool_calls":[{"index":2,"type":"function","extra_content":{"google":{"thought_signature":"S"}},
            "function":{"name":"x","arguments":"{}","mark":"M"}}]}}]}"#;
        let extra = |call, fields: &str| Delta::Extra { call, fields: fields.into() };
        let call = Delta::ToolCall { index: 2, id: None, name: Some("x".into()), arguments: "{}".into() };
        assert_eq!(
            read(data),
            [
                Delta::Text("a".into()),
                extra(None, r#"{"reasoning_details":[{"type":"x"}]}"#),
                call,
                extra(
                    Some(2),
                    r#"{"extra_content":{"google":{"thought_signature":"S"}},"function":{"mark":"M"}}"#
                ),
            ]
        );
    }

    #[test]
    fn the_error_of_a_choice_counts_whatever_its_finish_reason_is() {
        let end = |choice: &str| {
            let mut reader = ChunkReader::default();
            let read = reader.read(&format!(r#"{{"choices":[{{"delta":{{"content":"a"}},{choice}}}]}}"#));
            read.and_then(|_| reader.end(None)).map_err(|error| (error.kind, error.message))
        };
        let (kind, message) =
            end(r#""finish_reason":"stop","error":{"code":429,"message":"why"}"#).unwrap_err();
        assert_eq!((kind, message.contains("why")), (ModelErrorKind::RateLimited, true));
        assert_eq!(
            end(r#""finish_reason":"stop","native_finish_reason":"network_error""#).unwrap_err().0,
            ModelErrorKind::Server
        );
        assert!(end(r#""finish_reason":"stop","native_finish_reason":"STOP","error":null"#).is_ok());
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
            let calls = vec![r#"{"id":"c"}"#; n].join(",");
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
        let tokens =
            |input_tokens, output_tokens| Some(Delta::Usage(Usage::new(input_tokens, output_tokens)));
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
    fn parts_of_the_tokens_are_read_under_the_names_of_all_servers() {
        let whole = Usage::new(100, 20);
        for (text, wanted) in [
            (
                r#""total_tokens":120,"prompt_tokens_details":{"cached_tokens":"60","cache_write_tokens":30.0},"completion_tokens_details":{"reasoning_tokens":7}"#,
                Usage { cached_tokens: 60, cache_write_tokens: 30, reasoning_tokens: 7, ..whole },
            ),
            (r#""prompt_cache_hit_tokens":64"#, Usage { cached_tokens: 64, ..whole }),
            (
                r#""cache_read_input_tokens":5,"cache_creation_input_tokens":8,"prompt_tokens_details":{"cached_tokens":5}"#,
                Usage { cached_tokens: 5, cache_write_tokens: 8, ..whole },
            ),
            (r#""prompt_tokens_details":{"cached_tokens":900}"#, Usage { cached_tokens: 100, ..whole }),
            (r#""prompt_tokens_details":null,"completion_tokens_details":[3]"#, whole),
            (
                r#""total_tokens":150,"completion_tokens_details":{"reasoning_tokens":30}"#,
                Usage { reasoning_tokens: 30, ..Usage::new(100, 50) },
            ),
            (r#""total_tokens":150"#, Usage { reasoning_tokens: 30, ..Usage::new(100, 50) }),
        ] {
            let data =
                format!(r#"{{"choices":[],"usage":{{"prompt_tokens":100,"completion_tokens":20,{text}}}}}"#);
            assert_eq!(read(&data).pop(), Some(Delta::Usage(wanted)), "{text}");
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
