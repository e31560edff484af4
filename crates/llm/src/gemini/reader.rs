//! The chunks of an answer.
//!
//! Start at [`Reader`].

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};

use super::{WIRE, parts::CALL, refusals::error_in_stream};
use crate::{
    Delta, FinishReason, ModelError, ModelErrorKind, Usage,
    exchange::json::parse,
    http::error::excerpt,
    messages::origin::{Fields, OriginItem},
    model::assemble::truncated,
};

/// Converts the chunks of one answer into [`Delta`]s. Unknown parts and fields are accepted.
#[derive(Debug)]
pub(super) struct Reader {
    /// The place of the answer's parts, until the first chunk.
    origin: Option<Delta>,
    /// The part that the next one may continue.
    open: Open,
    /// The number of parts and of calls.
    items: usize,
    calls: usize,
    has_text: bool,
    /// A chunk had a candidate or the reason why there is none.
    has_answer: bool,
    usage: Usage,
    finish: Option<FinishReason>,
}

/// A part that arrives in pieces.
#[derive(Debug)]
enum Open {
    No,
    /// The length of a text.
    Text(usize),
    Thought(String),
}

/// The parts of a chunk, which are stored byte for byte.
#[derive(Deserialize)]
struct RawChunk<'a> {
    #[serde(borrow)]
    candidates: Vec<RawCandidate<'a>>,
}

#[derive(Deserialize)]
struct RawCandidate<'a> {
    #[serde(borrow)]
    content: Option<RawContent<'a>>,
}

#[derive(Deserialize)]
struct RawContent<'a> {
    #[serde(borrow)]
    parts: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPart<'a> {
    #[serde(borrow)]
    function_call: RawCall<'a>,
}

#[derive(Deserialize)]
struct RawCall<'a> {
    #[serde(borrow)]
    args: &'a RawValue,
}

impl Reader {
    pub(super) fn new(server: String, model: String) -> Self {
        let origin = Delta::Origin { wire: WIRE.to_owned(), server, model, prefix: String::new() };
        Self {
            origin: Some(origin),
            open: Open::No,
            items: 0,
            calls: 0,
            has_text: false,
            has_answer: false,
            usage: Usage::default(),
            finish: None,
        }
    }

    /// Returns whether the reason for the end has arrived. Usage and a last signature may follow.
    pub(super) fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// Reads one chunk.
    ///
    /// # Errors
    /// The server's own error if it is one; [`ModelErrorKind::Malformed`] if it is not JSON, or if the model's call is not valid.
    /// After the end, only the latter.
    pub(super) fn read(&mut self, data: &str) -> Result<Vec<Delta>, ModelError> {
        if !data.trim_start().starts_with(['{', '[']) || data.trim() == "[DONE]" {
            return Ok(Vec::new());
        }
        let (data, chunk) = match parse(data) {
            Err(_) if self.is_finished() => return Ok(Vec::new()),
            parsed => parsed?,
        };
        let error = [&chunk["error"], &chunk[0]["error"]].into_iter().find(|error| !error.is_null());
        if let Some(error) = error {
            return if self.is_finished() { Ok(Vec::new()) } else { Err(error_in_stream(error)) };
        }
        let mut deltas: Vec<_> = self.origin.take().into_iter().collect();
        deltas.extend(self.usage(&chunk["usageMetadata"]));
        self.blocked(&chunk["promptFeedback"], &mut deltas);
        let Some(candidate) = chunk["candidates"].get(0) else { return Ok(deltas) };
        self.has_answer = true;
        let raw = serde_json::from_str::<RawChunk<'_>>(&data);
        let raw = raw.ok().and_then(|raw| raw.candidates.into_iter().next()?.content?.parts);
        for part in raw.into_iter().flatten() {
            self.part(part, &mut deltas);
        }
        self.finish(candidate)?;
        Ok(deltas)
    }

    /// Returns the last deltas at the end of the response.
    ///
    /// # Errors
    /// The fault of the connection, or that of an answer without an end.
    pub(super) fn end(&mut self, fault: Option<ModelError>) -> Result<Vec<Delta>, ModelError> {
        let Some(finish) = self.finish.take() else {
            let has_chunks = self.origin.is_none();
            return Err(match fault {
                Some(fault) => fault,
                None if has_chunks && !self.has_answer => {
                    malformed("the model gave no answer: the response has no candidates")
                }
                None => truncated(),
            });
        };
        let mut deltas = Vec::new();
        self.close(&mut deltas);
        deltas.push(Delta::Finish(finish));
        Ok(deltas)
    }

    fn part(&mut self, raw: &RawValue, deltas: &mut Vec<Delta>) {
        let Some(mut part) = parsed::<Fields>(raw) else { return };
        part.retain(|_, value| !value.is_null());
        if let Some(Value::Object(call)) = part.get(CALL) {
            let call = call.clone();
            part.remove(CALL);
            self.call(raw, call, part, deltas);
            return;
        }
        let text = part.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_thought = part.get("thought") == Some(&Value::Bool(true));
        let is_text = part.contains_key("text");
        part.retain(|name, _| name != "text" && name != "thought");
        match (is_thought, &mut self.open) {
            _ if part.is_empty() && text.is_empty() => {}
            (true, open) => {
                if !text.is_empty() {
                    deltas.push(Delta::Reasoning(text.clone()));
                }
                match open {
                    Open::Thought(so_far) if part.is_empty() => so_far.push_str(&text),
                    _ => {
                        self.close(deltas);
                        if part.is_empty() {
                            self.open = Open::Thought(text);
                        } else {
                            self.item(OriginItem::Opaque(raw.get().to_owned()), deltas);
                        }
                    }
                }
            }
            (false, open) if is_text => {
                if !matches!(open, Open::Text(_)) && (!text.is_empty() || !part.is_empty()) {
                    self.close(deltas);
                }
                self.text(text, &part, deltas);
            }
            (false, _) => {
                self.close(deltas);
                self.item(OriginItem::Opaque(raw.get().to_owned()), deltas);
            }
        }
    }

    /// Adds a piece of the text. A piece with a signature is a part of its own.
    fn text(&mut self, text: String, rest: &Fields, deltas: &mut Vec<Delta>) {
        if !rest.is_empty() {
            self.close(deltas);
        }
        let bytes = text.len();
        if !text.is_empty() {
            self.has_text = true;
            deltas.push(Delta::Text(text));
        }
        if !rest.is_empty() {
            self.item(OriginItem::Text { bytes, rest: json(rest) }, deltas);
        } else if bytes > 0 {
            let before = if let Open::Text(before) = self.open { before } else { 0 };
            self.open = Open::Text(before + bytes);
        }
    }

    fn call(&mut self, raw: &RawValue, mut call: Fields, mut rest: Fields, deltas: &mut Vec<Delta>) {
        let mut text = |name: &str| match call.remove(name) {
            Some(Value::String(text)) => Some(text).filter(|text| !text.is_empty()),
            _ => None,
        };
        let (id, name) = (text("id"), text("name"));
        if name.is_none() {
            return;
        }
        self.close(deltas);
        call.retain(|name, value| name != "args" && !value.is_null());
        call.extend(id.clone().map(|id| ("id".to_owned(), id.into())));
        if !call.is_empty() {
            rest.insert(CALL.to_owned(), call.into());
        }
        let args = serde_json::from_str::<RawPart<'_>>(raw.get()).ok();
        let args = args.map(|part| part.function_call.args.get()).filter(|args| *args != "null");
        let arguments = args.unwrap_or("{}").to_owned();
        deltas.push(Delta::ToolCall { index: self.calls, id, name, arguments });
        self.calls += 1;
        self.item(OriginItem::Call { rest: json(&rest) }, deltas);
    }

    /// Ends the part that arrives in pieces.
    fn close(&mut self, deltas: &mut Vec<Delta>) {
        let item = match std::mem::replace(&mut self.open, Open::No) {
            Open::No => return,
            Open::Text(bytes) => OriginItem::Text { bytes, rest: "{}".to_owned() },
            Open::Thought(text) => OriginItem::Opaque(json!({"thought": true, "text": text}).to_string()),
        };
        self.item(item, deltas);
    }

    fn item(&mut self, item: OriginItem, deltas: &mut Vec<Delta>) {
        deltas.push(Delta::Item { index: self.items, item });
        self.items += 1;
    }

    /// Returns the tokens so far. Later reports have the whole of each number, or leave it out.
    fn usage(&mut self, reported: &Value) -> Option<Delta> {
        let before = self.usage;
        let of = |name: &str, before: u64| reported[name].as_u64().unwrap_or(before);
        let reasoning_tokens = of("thoughtsTokenCount", before.reasoning_tokens);
        let text = of("candidatesTokenCount", before.output_tokens.saturating_sub(before.reasoning_tokens));
        let prompt = of("promptTokenCount", before.input_tokens);
        self.usage = Usage {
            input_tokens: prompt.saturating_add(of("toolUsePromptTokenCount", 0)),
            output_tokens: text.saturating_add(reasoning_tokens),
            cached_tokens: of("cachedContentTokenCount", before.cached_tokens),
            cache_write_tokens: 0,
            cache_write_1h_tokens: 0,
            reasoning_tokens,
        };
        (reported.is_object() && self.usage != Usage::default()).then_some(Delta::Usage(self.usage))
    }

    /// Reads the reason why the request was not answered.
    fn blocked(&mut self, feedback: &Value, deltas: &mut Vec<Delta>) {
        if feedback["blockReason"].as_str().is_none_or(|reason| reason.ends_with("_UNSPECIFIED")) {
            return;
        }
        if let Some(message) = feedback["blockReasonMessage"].as_str().filter(|_| !self.has_text) {
            self.text(message.to_owned(), &Fields::new(), deltas);
        }
        self.has_answer = true;
        self.finish = Some(FinishReason::ContentFilter);
    }

    fn finish(&mut self, candidate: &Value) -> Result<(), ModelError> {
        let Some(reason) = candidate["finishReason"].as_str() else { return Ok(()) };
        self.finish = Some(match reason {
            "" | "FINISH_REASON_UNSPECIFIED" => return Ok(()),
            "STOP" if self.calls > 0 => FinishReason::ToolCalls,
            "STOP" => FinishReason::Stop,
            "MAX_TOKENS" | "CONTINUATION" => FinishReason::Length,
            "SAFETY"
            | "RECITATION"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "LANGUAGE"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION"
            | "MODEL_ARMOR"
            | "ESCALATION"
            | "PUP_LIMITED_DISABLED" => FinishReason::ContentFilter,
            "MALFORMED_FUNCTION_CALL"
            | "UNEXPECTED_TOOL_CALL"
            | "MISSING_THOUGHT_SIGNATURE"
            | "MALFORMED_RESPONSE" => {
                let details = candidate["finishMessage"].as_str().map(excerpt);
                let details = details.map(|details| format!(": {details}")).unwrap_or_default();
                return Err(malformed(&format!("the model's answer ended with `{reason}`{details}")));
            }
            other => FinishReason::Other(other.to_owned()),
        });
        Ok(())
    }
}

fn parsed<T: DeserializeOwned>(raw: &RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

fn json(fields: &Fields) -> String {
    serde_json::to_string(fields).expect("fields have a JSON form")
}

fn malformed(message: &str) -> ModelError {
    ModelError::new(ModelErrorKind::Malformed, message)
}

#[cfg(test)]
mod tests;
