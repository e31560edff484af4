//! Reads the chunks of a chat-completions stream, as leniently as real servers need it.

use serde::Deserialize;
use serde_json::Value;

use crate::{Delta, FinishReason, ModelError, ModelErrorKind, Usage, assemble::truncated, excerpt};

/// One `data:` payload of a chat-completions stream.
///
/// Only what is used is read, and nothing of it has to be there: servers leave out `created`, send `null` for lists,
/// or end with a chunk that has no choices.
#[derive(Clone, Debug, Deserialize)]
pub struct Chunk {
    #[serde(default)]
    choices: Option<Vec<Choice>>,
    #[serde(default)]
    usage: Option<WireUsage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Clone, Debug, Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Option<Piece>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Piece {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    reasoning_content: Option<String>,
    #[serde(default)]
    reasoning: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<CallPiece>>,
}

#[derive(Clone, Debug, Deserialize)]
struct CallPiece {
    #[serde(default)]
    index: Option<usize>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: Option<FunctionPiece>,
}

#[derive(Clone, Debug, Deserialize)]
struct FunctionPiece {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<Arguments>,
}

/// Some servers send the arguments as the object itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Arguments {
    Text(String),
    Json(Value),
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
}

/// Turns the chunks of one stream into [`Delta`]s and knows whether the stream may end.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChunkReader {
    finished: bool,
    /// Finished, and not for an error: nothing that comes later takes the answer back.
    complete: bool,
}

impl ChunkReader {
    /// Reads the text of one `data:` line.
    ///
    /// # Errors    [`ModelErrorKind::Malformed`] if it is no chunk; the server's own error if it carries one. Neither after a
    /// complete answer.
    pub fn read(&mut self, data: &str) -> Result<Vec<Delta>, ModelError> {
        match serde_json::from_str(data) {
            Ok(chunk) => self.take(chunk),
            Err(cause) => self.unless_complete(malformed(&cause.to_string(), data)),
        }
    }

    /// Reads one chunk.
    ///
    /// # Errors    The server's own error if the chunk carries one; after it the stream is over. Not after a complete answer.
    pub fn take(&mut self, chunk: Chunk) -> Result<Vec<Delta>, ModelError> {
        if let Some(error) = chunk.error {
            return self.unless_complete(ModelError::from_stream(&error));
        }
        let mut deltas = Vec::new();
        // One answer is asked for; a second choice would be mixed into the first.
        if let Some(choice) = chunk.choices.unwrap_or_default().into_iter().next() {
            if let Some(piece) = choice.delta {
                piece.append_to(&mut deltas);
            }
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                self.finished = true;
                self.complete = reason != "error";
                deltas.push(Delta::Finish(finish_reason(reason)));
            }
        }
        if let Some(usage) = chunk.usage {
            deltas.push(Delta::Usage(Usage {
                input_tokens: usage.prompt_tokens.unwrap_or(0),
                output_tokens: usage.completion_tokens.unwrap_or(0),
            }));
        }
        Ok(deltas)
    }

    /// What is wrong with something in the stream, if that matters.
    pub(crate) fn unless_complete(&self, error: ModelError) -> Result<Vec<Delta>, ModelError> {
        if self.complete { Ok(Vec::new()) } else { Err(error) }
    }

    /// Ends the stream; `fault` is what broke the connection, if anything did.
    ///
    /// After the finish reason the answer is complete: neither a missing `[DONE]` nor a broken connection changes that.
    /// # Errors    `fault`, or [`ModelErrorKind::TruncatedStream`], if no finish reason was seen.
    pub fn end(self, fault: Option<ModelError>) -> Result<(), ModelError> {
        if self.finished { Ok(()) } else { Err(fault.unwrap_or_else(truncated)) }
    }
}

impl Piece {
    fn append_to(self, deltas: &mut Vec<Delta>) {
        // A server that sends both fields says the same thing twice.
        let reasoning = self.reasoning_content.filter(|text| !text.is_empty()).or(self.reasoning);
        if let Some(text) = reasoning.filter(|text| !text.is_empty()) {
            deltas.push(Delta::Reasoning(text));
        }
        if let Some(text) = self.content.filter(|text| !text.is_empty()) {
            deltas.push(Delta::Text(text));
        }
        for (position, call) in self.tool_calls.unwrap_or_default().into_iter().enumerate() {
            let (name, arguments) = match call.function {
                Some(function) => (function.name, function.arguments),
                None => (None, None),
            };
            deltas.push(Delta::ToolCall {
                index: call.index.unwrap_or(position),
                id: call.id,
                name,
                arguments: match arguments {
                    None | Some(Arguments::Json(Value::Null)) => String::new(),
                    Some(Arguments::Text(text)) => text,
                    Some(Arguments::Json(value)) => value.to_string(),
                },
            });
        }
    }
}

fn finish_reason(reason: String) -> FinishReason {
    match reason.as_str() {
        "stop" => FinishReason::Stop,
        "tool_calls" => FinishReason::ToolCalls,
        "length" => FinishReason::Length,
        "content_filter" => FinishReason::ContentFilter,
        _ => FinishReason::Other(reason),
    }
}

/// The error of a chunk that cannot be read.
pub(crate) fn malformed(cause: &str, data: &str) -> ModelError {
    let message = format!("the server sent a chunk that is no chat completion ({cause}): {}", excerpt(data));
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
    fn calls_without_an_index_are_told_apart_by_their_position() {
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
    fn an_unknown_finish_reason_ends_the_answer_as_it_is_written() {
        let mut reader = ChunkReader::default();
        let deltas = reader.read(r#"{"choices":[{"delta":{},"finish_reason":"eos"}]}"#).unwrap();
        assert_eq!(deltas, [Delta::Finish(FinishReason::Other("eos".into()))]);
        assert!(reader.end(None).is_ok());
    }

    #[test]
    fn a_broken_connection_matters_only_before_the_finish_reason() {
        let fault = || Some(ModelError::new(ModelErrorKind::Timeout, "slow"));
        assert_eq!(ChunkReader::default().end(None).unwrap_err().kind, ModelErrorKind::TruncatedStream);
        assert_eq!(ChunkReader::default().end(fault()).unwrap_err().kind, ModelErrorKind::Timeout);
        assert!(ChunkReader { finished: true, complete: true }.end(fault()).is_ok());
    }

    #[test]
    fn text_that_is_no_chunk_is_malformed() {
        let error = ChunkReader::default().read("{\"choices\":[{").unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Malformed);
        assert!(error.message.ends_with(": {\"choices\":[{"), "{}", error.message);
    }
}
