//! The parts of a chunk. Every field is optional, and a value of an unexpected type counts as missing.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::{Value, json, value::RawValue};

use super::{
    content::Content,
    fields::{each_field, objects, text},
};
use crate::{Usage, http::KEEP_ALIVE, texts::halves::Wtf8};

/// The maximum number of pieces of tool calls in one chunk. Each takes many times its size on the wire.
pub(super) const MAX_PIECES: usize = 4096;

/// One `data:` payload of a chat-completions stream.
///
/// Only used fields are read. Servers leave out `created`, send `null` or a text instead of a list, end with a chunk without
/// choices, and send events of their own. None of that invalidates an answer.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// One answer is requested; a second choice would be mixed into the first.
    pub(super) choice: Option<Choice>,
    pub(super) usage: Option<Usage>,
    pub(super) error: Option<Value>,
    /// The text of an event that is not an object.
    pub(super) foreign: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    pub(super) delta: Piece,
    /// The message of servers that do not stream, or the whole one at the end of a stream.
    pub(super) message: Piece,
    pub(super) reason: Option<String>,
    /// The reason of the server behind a proxy.
    pub(super) native_reason: Option<String>,
    pub(super) error: Option<Value>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Piece {
    pub(super) content: Content,
    pub(super) reasoning: Wtf8,
    pub(super) calls: Vec<CallPiece>,
    /// The fields that this program does not know, as a JSON object.
    pub(super) extra: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct CallPiece {
    pub(super) index: usize,
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) arguments: Wtf8,
    pub(super) extra: Option<String>,
}

impl<'de> Deserialize<'de> for Chunk {
    fn deserialize<D: Deserializer<'de>>(chunk: D) -> Result<Self, D::Error> {
        Self::read(&Box::<RawValue>::deserialize(chunk)?).map_err(D::Error::custom)
    }
}

impl Chunk {
    /// Creates a chunk without content from the text of an event that is not a chunk.
    pub(super) fn foreign(data: &str) -> Self {
        Self { foreign: Some(data.trim().to_owned()).filter(|data| !data.is_empty()), ..Self::default() }
    }

    /// Reads a chunk, which Google wraps in a list if it is an error.
    fn read(raw: &RawValue) -> Result<Self, String> {
        let Some((_, raw)) = objects(raw).into_iter().next() else {
            let is_text = raw.get() != "null" && !raw.get().starts_with('[');
            return Ok(if is_text { Self::foreign(raw.get().trim_matches('"')) } else { Self::default() });
        };
        let mut chunk = Self::default();
        let (mut choices, mut status) = (None, None);
        each_field(raw.get(), |name, value| match &*name {
            "choices" => choices = Some(value),
            "usage" => chunk.usage = usage(value),
            "error" => chunk.error = error(value),
            // MiniMax sends it with each chunk.
            "base_resp" => status = error(value),
            _ => {}
        });
        if let Some((_, choice)) = choices.and_then(|choices| objects(choices).into_iter().next()) {
            chunk.choice = Some(Choice::read(choice)?);
        }
        let fails = |status: &Value| status.get("status_code").and_then(number).is_some_and(|code| code > 0);
        chunk.error = chunk.error.or_else(|| status.filter(fails));
        if chunk.choice.is_none() && chunk.error.is_none() {
            chunk.error = unwrapped(raw);
        }
        Ok(chunk)
    }
}

impl Choice {
    fn read(raw: &RawValue) -> Result<Self, String> {
        let mut choice = Self::default();
        let (mut delta, mut message) = (None, None);
        each_field(raw.get(), |name, value| match &*name {
            "delta" => delta = Some(value),
            "message" => message = Some(value),
            "finish_reason" => choice.reason = text(value).filter(|reason| !reason.is_empty()),
            "native_finish_reason" => choice.native_reason = text(value),
            "error" => choice.error = error(value),
            _ => {}
        });
        choice.delta = delta.map(Piece::read).transpose()?.unwrap_or_default();
        choice.message = message.map(Piece::read).transpose()?.unwrap_or_default();
        Ok(choice)
    }
}

impl Piece {
    fn read(raw: &RawValue) -> Result<Self, String> {
        let mut found = BTreeMap::new();
        let mut extra = BTreeMap::new();
        each_field(raw.get(), |name, value| match &*name {
            "content" | "refusal" | "reasoning_content" | "reasoning" | "tool_calls" | "function_call" => {
                found.insert(name, value);
            }
            "role" | "name" | "annotations" | "audio" | "logprobs" | "token_ids" | "tool_call_id" => {}
            _ => add_extra(&mut extra, name, value),
        });
        let content = |name: &str| found.get(name).copied().map_or(Ok(Content::default()), Content::read);
        let mut read = Self { content: content("content")?, extra: object(&extra), ..Self::default() };
        let refusal = content("refusal")?;
        read.content.refusal.push(&refusal.text);
        read.content.refusal.push(&refusal.refusal);
        // A server that sends both fields sends the same text twice.
        for name in ["reasoning_content", "reasoning"] {
            if read.reasoning.is_empty() {
                let Content { text, reasoning, .. } = content(name)?;
                read.reasoning = text;
                read.reasoning.push(&reasoning);
            }
        }
        read.reasoning.push(&read.content.reasoning);
        let calls = found.get("tool_calls").map(|calls| objects(calls)).unwrap_or_default();
        if calls.len() > MAX_PIECES {
            return Err(format!("a list of more than {MAX_PIECES} elements"));
        }
        read.calls = calls.into_iter().map(|(at, call)| CallPiece::read(at, call)).collect();
        // A server that sends the older form too sends the same call twice.
        if let (true, Some(function)) = (read.calls.is_empty(), found.get("function_call")) {
            let mut call = CallPiece::default();
            call.read_function(function, &mut BTreeMap::new());
            read.calls.push(call);
        }
        read.calls.retain(|call| !call.is_empty());
        Ok(read)
    }
}

impl CallPiece {
    /// Reads the piece at a position of its chunk, which is its index if it has none.
    fn read(position: usize, raw: &RawValue) -> Self {
        let mut call = Self { index: position, ..Self::default() };
        let mut extra = BTreeMap::new();
        let mut inner = BTreeMap::new();
        each_field(raw.get(), |name, value| match &*name {
            "index" => call.index = index(value).unwrap_or(position),
            "id" => call.id = id(value),
            "function" => call.read_function(value, &mut inner),
            "type" => {}
            _ => add_extra(&mut extra, name, value),
        });
        let inner = object(&inner).and_then(|inner| RawValue::from_string(inner).ok());
        if let Some(inner) = &inner {
            extra.insert(Cow::Borrowed("function"), inner);
        }
        call.extra = object(&extra);
        call
    }

    fn read_function<'a>(&mut self, raw: &'a RawValue, extra: &mut Extra<'a>) {
        each_field(raw.get(), |name, value| match &*name {
            "name" => self.name = text(value).filter(|name| !name.is_empty()),
            "arguments" => self.arguments = arguments(value),
            _ => add_extra(extra, name, value),
        });
    }

    fn is_empty(&self) -> bool {
        let Self { index: _, id, name, arguments, extra } = self;
        id.is_none() && name.is_none() && arguments.is_empty() && extra.is_none()
    }
}

/// The unknown fields of a part.
type Extra<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// Adds an unknown field, if it can mean anything to its server: numbers and empty values cannot.
fn add_extra<'a>(extra: &mut Extra<'a>, name: Cow<'a, str>, value: &'a RawValue) {
    let is_filled = |empty: &str| value.get() != empty && value.get().starts_with(&empty[..1]);
    if ["{}", "[]", "\"\""].into_iter().any(is_filled) {
        extra.insert(name, value);
    }
}

fn object(extra: &Extra<'_>) -> Option<String> {
    (!extra.is_empty()).then(|| serde_json::to_string(extra).ok()).flatten()
}

/// Returns an error, unless it is empty: some servers send such a one with each chunk.
fn error(raw: &RawValue) -> Option<Value> {
    // Text that is not valid in Rust is shown as it is written.
    let error = serde_json::from_str(raw.get()).unwrap_or_else(|_| json!(raw.get()));
    (![json!(""), json!(false), json!(0), json!({}), json!([])].contains(&error)).then_some(error)
}

/// Returns the whole chunk if it is an error that is not wrapped.
fn unwrapped(raw: &RawValue) -> Option<Value> {
    let mut fails = false;
    let mut is_well = false;
    each_field(raw.get(), |name, value| match (&*name, value.get()) {
        (
            "message" | "detail" | "msg" | "errors" | "error_msg" | "error_message" | "error_description",
            text,
        ) => {
            fails |= !["\"\"", "[]", "{}"].contains(&text);
        }
        ("error_code", code) => fails |= !["0", "\"0\"", "\"\""].contains(&code),
        ("success", "true") | ("code", "0" | "200" | "\"0\"" | "\"200\"") => is_well = true,
        ("type", _) => is_well |= text(value).is_some_and(|kind| KEEP_ALIVE.contains(&&*kind)),
        _ => {}
    });
    (fails && !is_well).then(|| error(raw)).flatten()
}

/// Reads the reported tokens; `None` if there are none, because a server that reports zeros has not counted them.
fn usage(raw: &RawValue) -> Option<Usage> {
    let mut usage = Usage::default();
    let mut total = 0;
    let tokens =
        |value: &RawValue| serde_json::from_str(value.get()).ok().as_ref().and_then(number).unwrap_or(0);
    each_field(raw.get(), |name, value| match &*name {
        "prompt_tokens" => usage.input_tokens = tokens(value),
        "completion_tokens" => usage.output_tokens = tokens(value),
        "total_tokens" => total = tokens(value),
        "prompt_tokens_details" | "completion_tokens_details" => {
            each_field(value.get(), |name, value| add_part(&mut usage, &name, tokens(value)));
        }
        name => add_part(&mut usage, name, tokens(value)),
    });
    // Some servers have the reasoning in the total only.
    let counted = usage.input_tokens.saturating_add(usage.output_tokens);
    let hidden = total.saturating_sub(counted);
    if hidden > 0 && counted > 0 && [0, hidden].contains(&usage.reasoning_tokens) {
        usage.output_tokens += hidden;
        usage.reasoning_tokens = hidden;
    }
    usage.cached_tokens = usage.cached_tokens.min(usage.input_tokens);
    usage.cache_write_tokens = usage.cache_write_tokens.min(usage.input_tokens - usage.cached_tokens);
    usage.reasoning_tokens = usage.reasoning_tokens.min(usage.output_tokens);
    Some(usage).filter(|usage| *usage != Usage::default())
}

/// Adds a part of the tokens. A server may report one part under several names.
fn add_part(usage: &mut Usage, name: &str, tokens: u64) {
    let part = match name {
        "cached_tokens" | "cache_read_input_tokens" | "prompt_cache_hit_tokens" => &mut usage.cached_tokens,
        "cache_write_tokens" | "cache_creation_tokens" | "cache_creation_input_tokens" => {
            &mut usage.cache_write_tokens
        }
        "reasoning_tokens" => &mut usage.reasoning_tokens,
        _ => return,
    };
    *part = tokens.max(*part);
}

/// Reads the index of a call, which some servers send as a text, or as a negative number instead of none.
fn index(raw: &RawValue) -> Option<usize> {
    number(&serde_json::from_str(raw.get()).ok()?).and_then(|index| usize::try_from(index).ok())
}

/// Reads the id of a call, which some servers send as a number.
fn id(raw: &RawValue) -> Option<String> {
    match serde_json::from_str(raw.get()).ok()? {
        Value::String(id) => Some(id).filter(|id| !id.is_empty()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
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

/// Returns the argument text: the content of a JSON string, or any other JSON as written. Some servers send the object itself.
fn arguments(raw: &RawValue) -> Wtf8 {
    serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().into())
}
