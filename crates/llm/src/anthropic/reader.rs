//! The events of an answer.
//!
//! Start at [`Reader`].

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::refusals::error_in_stream;
use crate::{
    Delta, FinishReason, ModelError, Usage,
    exchange::json::{UNDECODABLE, parse},
    http::error::excerpt,
    messages::origin::{Fields, OriginItem},
    model::assemble::truncated,
};

/// Converts the events of one answer into [`Delta`]s. Unknown events, blocks and fields are accepted.
#[derive(Debug)]
pub(super) struct Reader {
    /// The place of the answer's parts.
    origin: Delta,
    open: BTreeMap<usize, Open>,
    /// The content so far, for an answer that the server pauses.
    content: Vec<Box<RawValue>>,
    /// The number of parts and of calls of this answer, over all pauses.
    items: usize,
    calls: usize,
    /// A block of reasoning is not as it was sent, so that none of this answer goes back.
    is_void: bool,
    has_text: bool,
    usage: Usage,
    /// The tokens before a pause.
    spent: Usage,
    end: Option<End>,
}

/// The end of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The answer is complete.
    Finished,
    /// The server wants its content back to continue.
    Paused,
}

/// A block that is not complete.
#[derive(Debug)]
enum Open {
    Text { text: String, rest: Fields },
    Thinking { text: String, signature: String },
    Call { index: usize, id: String, name: String, start: Option<String>, arguments: String, rest: Fields },
    Other(Box<RawValue>),
}

/// The fields of an event that are stored byte for byte.
#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
}

/// The maximum number of times that a paused answer is continued.
pub(super) const MAX_PAUSES: usize = 10;

impl Reader {
    pub(super) fn new(server: String, model: String, prefix: String) -> Self {
        let origin = Delta::Origin { wire: super::request::WIRE.to_owned(), server, model, prefix };
        Self {
            origin,
            open: BTreeMap::new(),
            content: Vec::new(),
            items: 0,
            calls: 0,
            is_void: false,
            has_text: false,
            usage: Usage::default(),
            spent: Usage::default(),
            end: None,
        }
    }

    pub(super) fn end(&self) -> Option<End> {
        self.end
    }

    /// Returns the content of the paused answer, and expects the rest of it.
    pub(super) fn resume(&mut self) -> Vec<Box<RawValue>> {
        self.end = None;
        self.open.clear();
        self.spent = self.spent + std::mem::take(&mut self.usage);
        self.content.clone()
    }

    /// Reads the data of one event.
    ///
    /// # Errors
    /// The server's own error if it is one; [`ModelErrorKind::Malformed`] if it is not JSON. Neither after the end.
    pub(super) fn read(&mut self, data: &str) -> Result<Vec<Delta>, ModelError> {
        let mut deltas = Vec::new();
        if self.end.is_some() || !data.trim_start().starts_with('{') {
            return Ok(deltas);
        }
        let (data, event) = parse(data)?;
        let index = event["index"].as_u64().and_then(|index| usize::try_from(index).ok()).unwrap_or(0);
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => {
                let message = &event["message"];
                // The rest of a paused answer has the parts before too.
                deltas.extend((self.items == 0).then(|| self.origin.clone()));
                deltas.extend(dropped(message));
                deltas.extend(self.usage(&message["usage"]));
            }
            "content_block_start" => self.start(index, &data, &event["content_block"], &mut deltas),
            "content_block_delta" => self.piece(index, &event["delta"], is_damaged(&data), &mut deltas),
            "content_block_stop" => self.stop(index, &mut deltas),
            "message_delta" => {
                deltas.extend(dropped(&event));
                deltas.extend(self.usage(&event["usage"]));
                self.finish(&event["delta"], &mut deltas);
            }
            "error" => return Err(error_in_stream(&event)),
            "" if event.get("error").is_some() => return Err(error_in_stream(&event)),
            _ => {}
        }
        Ok(deltas)
    }

    /// Returns the error of a stream without an end.
    pub(super) fn truncated(&self) -> Result<(), ModelError> {
        if self.end.is_some() { Ok(()) } else { Err(truncated()) }
    }

    fn start(&mut self, index: usize, data: &str, block: &Value, deltas: &mut Vec<Delta>) {
        let text = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
        let rest = |own: &[&str]| {
            let mut rest = block.as_object().cloned().unwrap_or_default();
            rest.retain(|name, _| name != "type" && !own.contains(&&**name));
            rest
        };
        let open = match block["type"].as_str().unwrap_or_default() {
            "text" => {
                let mut rest = rest(&["text"]);
                rest.retain(|_, value| !value.is_null());
                Open::Text { text: String::new(), rest }
            }
            "thinking" => Open::Thinking { text: String::new(), signature: text("signature") },
            "tool_use" => {
                let call = self.calls;
                self.calls += 1;
                let (id, name) = (text("id"), text("name"));
                let [some_id, some_name] =
                    [&id, &name].map(|text| Some(text.clone()).filter(|text| !text.is_empty()));
                deltas.push(Delta::ToolCall {
                    index: call,
                    id: some_id,
                    name: some_name,
                    arguments: String::new(),
                });
                let whole = block["input"].as_object().filter(|input| !input.is_empty());
                let start = whole.map(|input| Value::from(input.clone()).to_string());
                let rest = rest(&["id", "name", "input"]);
                Open::Call { index: call, id, name, start, arguments: String::new(), rest }
            }
            "" => return,
            _ => {
                let raw = serde_json::from_str::<Raw<'_>>(data).ok().and_then(|raw| raw.content_block);
                let Some(raw) = raw else { return };
                Open::Other(raw.to_owned())
            }
        };
        self.open.insert(index, open);
        // Some servers send the beginning with the block.
        let beginning = match block["type"].as_str() {
            Some("text") => json!({"type": "text_delta", "text": block["text"]}),
            Some("thinking") => json!({"type": "thinking_delta", "thinking": block["thinking"]}),
            _ => return,
        };
        self.piece(index, &beginning, is_damaged(data), deltas);
    }

    fn piece(&mut self, index: usize, delta: &Value, is_damaged: bool, deltas: &mut Vec<Delta>) {
        let piece = |name: &str| delta[name].as_str().unwrap_or_default();
        let kind = delta["type"].as_str().unwrap_or_default();
        if kind == "text_delta" && !self.open.contains_key(&index) {
            self.open.insert(index, Open::Text { text: String::new(), rest: Fields::new() });
        }
        match (self.open.get_mut(&index), kind) {
            (Some(Open::Text { text, .. }), "text_delta") if !piece("text").is_empty() => {
                text.push_str(piece("text"));
                self.has_text = true;
                deltas.push(Delta::Text(piece("text").to_owned()));
            }
            (Some(Open::Text { rest, .. }), "citations_delta") => {
                if let Value::Array(citations) = rest.entry("citations").or_insert_with(|| json!([])) {
                    citations.push(delta["citation"].clone());
                }
            }
            (Some(Open::Thinking { text, .. }), "thinking_delta") if !piece("thinking").is_empty() => {
                text.push_str(piece("thinking"));
                self.is_void |= is_damaged;
                deltas.push(Delta::Reasoning(piece("thinking").to_owned()));
            }
            (Some(Open::Thinking { signature, .. }), "signature_delta") => {
                signature.push_str(piece("signature"));
            }
            (Some(Open::Call { index, arguments, .. }), "input_json_delta")
                if !piece("partial_json").is_empty() =>
            {
                arguments.push_str(piece("partial_json"));
                let arguments = piece("partial_json").to_owned();
                deltas.push(Delta::ToolCall { index: *index, id: None, name: None, arguments });
            }
            _ => {}
        }
    }

    fn stop(&mut self, index: usize, deltas: &mut Vec<Delta>) {
        let Some(open) = self.open.remove(&index) else { return };
        let fields = |rest: &Fields| serde_json::to_string(rest).expect("fields have a JSON form");
        let (item, block) = match open {
            Open::Text { text, rest } => {
                let item = OriginItem::Text { bytes: text.len(), rest: fields(&rest) };
                (item, with(rest, [("type", "text".into()), ("text", text.into())]))
            }
            Open::Thinking { text, signature } => {
                self.is_void |= signature.is_empty();
                let block = json!({"type": "thinking", "thinking": text, "signature": signature}).to_string();
                (OriginItem::Opaque(block.clone()), block)
            }
            Open::Call { index, id, name, start, arguments, rest } => {
                let input = match (arguments.is_empty(), start) {
                    (true, start) => {
                        let arguments = start.unwrap_or_else(|| "{}".to_owned());
                        deltas.push(Delta::ToolCall {
                            index,
                            id: None,
                            name: None,
                            arguments: arguments.clone(),
                        });
                        arguments
                    }
                    (false, _) => arguments,
                };
                let input = serde_json::from_str(&input).unwrap_or_else(|_| json!({"_raw": input}));
                let item = OriginItem::Call { rest: fields(&rest) };
                let own =
                    [("type", "tool_use".into()), ("id", id.into()), ("name", name.into()), ("input", input)];
                (item, with(rest, own))
            }
            Open::Other(raw) => (OriginItem::Opaque(raw.get().to_owned()), raw.get().to_owned()),
        };
        self.content.extend(RawValue::from_string(block));
        if self.is_void {
            // Its parts so far are void, and so is this one.
            deltas.push(self.origin.clone());
            return;
        }
        deltas.push(Delta::Item { index: self.items, item });
        self.items += 1;
    }

    /// Returns the tokens so far. Later reports have the whole of each number, or leave it out.
    fn usage(&mut self, reported: &Value) -> Option<Delta> {
        let of = |field: &Value, before: u64| field.as_u64().unwrap_or(before);
        if !reported.is_object() {
            return None;
        }
        let before = self.usage;
        let cache = before.cached_tokens.saturating_add(before.cache_write_tokens);
        let plain = before.input_tokens.saturating_sub(cache);
        let plain = of(&reported["input_tokens"], plain);
        let cached_tokens = of(&reported["cache_read_input_tokens"], before.cached_tokens);
        let cache_write_tokens = of(&reported["cache_creation_input_tokens"], before.cache_write_tokens);
        let of_an_hour =
            of(&reported["cache_creation"]["ephemeral_1h_input_tokens"], before.cache_write_1h_tokens);
        self.usage = Usage {
            input_tokens: plain.saturating_add(cached_tokens).saturating_add(cache_write_tokens),
            output_tokens: of(&reported["output_tokens"], before.output_tokens),
            cached_tokens,
            cache_write_tokens,
            cache_write_1h_tokens: of_an_hour.min(cache_write_tokens),
            reasoning_tokens: of(
                &reported["output_tokens_details"]["thinking_tokens"],
                before.reasoning_tokens,
            ),
        };
        Some(Delta::Usage(self.spent + self.usage))
    }

    fn finish(&mut self, delta: &Value, deltas: &mut Vec<Delta>) {
        let Some(reason) = delta["stop_reason"].as_str() else { return };
        let finish = match reason {
            "pause_turn" => {
                self.end = Some(End::Paused);
                return;
            }
            "end_turn" | "stop_sequence" => FinishReason::Stop,
            "tool_use" => FinishReason::ToolCalls,
            "max_tokens" => FinishReason::Length,
            "model_context_window_exceeded" => FinishReason::ContextFull,
            "refusal" => {
                let details = &delta["stop_details"];
                let reason = details["explanation"].as_str().or_else(|| details["category"].as_str());
                if let Some(reason) = reason.filter(|_| !self.has_text) {
                    deltas.push(Delta::Text(reason.to_owned()));
                }
                deltas.push(Delta::Item { index: self.items, item: OriginItem::Refused });
                FinishReason::Refusal
            }
            // The call is not whole, so that it must not run.
            _ if self.open.values().any(|open| matches!(open, Open::Call { .. })) => FinishReason::Length,
            other => FinishReason::Other(other.to_owned()),
        };
        self.end = Some(End::Finished);
        deltas.push(Delta::Finish(finish));
    }
}

/// Returns the notices of a message or an event about reasoning that the server dropped.
fn dropped(message: &Value) -> impl Iterator<Item = Delta> {
    let changes = message["input_transformations"].as_array().into_iter().flatten();
    changes.filter(|change| change["type"] == "thinking_dropped").map(|change| {
        let text = |name: &str| excerpt(change[name].as_str().unwrap_or_default());
        Delta::ReasoningDropped { path: text("path"), reason: text("reason"), all: false }
    })
}

fn with<const N: usize>(mut fields: Fields, own: [(&str, Value); N]) -> String {
    fields.extend(own.map(|(name, value)| (name.to_owned(), value)));
    Value::from(fields).to_string()
}

/// Returns whether a part of a text could not be decoded.
fn is_damaged(data: &str) -> bool {
    data.contains(UNDECODABLE)
}

#[cfg(test)]
mod tests;
