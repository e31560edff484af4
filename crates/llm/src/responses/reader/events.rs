//! The events of an answer, as far as they are used.
//!
//! Start at [`Event`].

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::{ModelError, ModelErrorKind, Usage, http::error::excerpt, texts::halves::Wtf8};

/// One event.
#[derive(Debug)]
pub(super) enum Event<'a> {
    /// An item begins.
    Begun(Place, Item),
    /// An item is complete.
    Done(Place, Item, &'a RawValue),
    /// A piece of a text.
    Piece { place: Place, part: (Channel, usize), text: Wtf8, refuses: bool },
    /// The whole of a text.
    Whole { place: Place, part: (Channel, usize), text: Wtf8, refuses: bool },
    /// The answer ends.
    Ended(Ended<'a>),
    /// The server gives up.
    Failed(Value),
    /// An event without content, or of an unknown kind.
    Other,
    /// Not an event of the protocol.
    Foreign,
}

/// The item that an event is about. Some servers have no indexes.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) index: Option<usize>,
    pub(super) id: Option<String>,
}

/// The kind of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Channel {
    Text,
    Summary,
    Reasoning,
    Arguments,
}

/// An item, whole or at its beginning.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) kind: ItemKind,
    /// `true` if the model did not complete it.
    pub(super) is_cut: bool,
    pub(super) refuses: bool,
    pub(super) call_id: Option<String>,
    pub(super) name: Option<String>,
    /// The texts of its parts.
    pub(super) texts: Vec<(Channel, usize, Wtf8)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemKind {
    Message,
    Call,
    /// Reasoning, and everything else that only the server reads.
    Opaque,
}

/// The end of an answer.
#[derive(Debug)]
pub(super) struct Ended<'a> {
    pub(super) status: Status,
    pub(super) usage: Option<Usage>,
    pub(super) output: Vec<&'a RawValue>,
}

#[derive(Debug)]
pub(super) enum Status {
    Completed,
    /// The answer is cut off, for this reason.
    Incomplete(String),
    Failed(Value),
    Cancelled,
}

#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Fields<'a> {
    output_index: Option<usize>,
    item_id: Option<String>,
    content_index: Option<usize>,
    summary_index: Option<usize>,
    delta: Option<Wtf8>,
    text: Option<Wtf8>,
    refusal: Option<Wtf8>,
    arguments: Option<Wtf8>,
    part: Option<Part>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part {
    text: Option<Wtf8>,
    refusal: Option<Wtf8>,
}

impl<'a> Event<'a> {
    /// Reads the data of an event.
    ///
    /// # Errors
    /// [`ModelErrorKind::Malformed`] if it is the beginning of an event only, or if a field has another type.
    pub(super) fn read(data: &'a str) -> Result<Self, ModelError> {
        if !data.trim_start().starts_with('{') {
            return Ok(if data.trim() == "[DONE]" { Self::Other } else { Self::Foreign });
        }
        let parsed = |cause: serde_json::Error| malformed(&cause.to_string(), data);
        let Kind { kind } = serde_json::from_str(data).map_err(parsed)?;
        if kind == "error" {
            return serde_json::from_str(data).map(Self::Failed).map_err(parsed);
        }
        let Some(name) = kind.strip_prefix("response.") else { return Ok(Self::Other) };
        Self::named(name, data).map_err(parsed)
    }

    fn named(name: &str, data: &'a str) -> serde_json::Result<Self> {
        let (of, what) = name.rsplit_once('.').unwrap_or(("", name));
        let channel = match of {
            "output_text" | "refusal" | "content_part" => Channel::Text,
            "reasoning_summary_text" | "reasoning_summary_part" => Channel::Summary,
            "reasoning_text" => Channel::Reasoning,
            "function_call_arguments" => Channel::Arguments,
            "output_item" if what == "added" || what == "done" => Channel::Text,
            "" if ["completed", "incomplete", "failed", "cancelled"].contains(&what) => Channel::Text,
            _ => return Ok(Self::Other),
        };
        let fields: Fields<'a> = serde_json::from_str(data)?;
        let place = Place { index: fields.output_index, id: fields.item_id };
        let n = if channel == Channel::Summary { fields.summary_index } else { fields.content_index };
        let part = (channel, n.unwrap_or(0));
        let refuses = of == "refusal" || fields.part.as_ref().is_some_and(|part| part.refusal.is_some());
        Ok(match (of, what) {
            ("output_item", _) => {
                let Some(raw) = fields.item else { return Ok(Self::Other) };
                let (id, item) = Item::read(raw.get())?;
                let place = Place { id: place.id.or(id), ..place };
                if what == "added" { Self::Begun(place, item) } else { Self::Done(place, item, raw) }
            }
            ("", _) => Self::Ended(Ended::read(what, fields.response.map_or("{}", RawValue::get))?),
            (_, "delta") => Self::Piece { place, part, text: fields.delta.unwrap_or_default(), refuses },
            (_, "done") => {
                let of_part = fields.part.and_then(|part| part.text.or(part.refusal));
                let text = fields.text.or(fields.refusal).or(fields.arguments).or(of_part);
                Self::Whole { place, part, text: text.unwrap_or_default(), refuses }
            }
            _ => Self::Other,
        })
    }
}

impl Item {
    /// Reads an item and its id. Only the fields of known kinds are read.
    pub(super) fn read(json: &str) -> serde_json::Result<(Option<String>, Self)> {
        #[derive(Deserialize)]
        struct Head<'a> {
            #[serde(rename = "type", borrow, default)]
            kind: Cow<'a, str>,
            id: Option<String>,
            status: Option<String>,
        }

        #[derive(Default, Deserialize)]
        struct Body {
            call_id: Option<String>,
            name: Option<String>,
            arguments: Option<Wtf8>,
            content: Option<Vec<Part>>,
            summary: Option<Vec<Part>>,
        }

        let head: Head<'_> = serde_json::from_str(json)?;
        let kind = match &*head.kind {
            "message" => ItemKind::Message,
            "function_call" => ItemKind::Call,
            _ => ItemKind::Opaque,
        };
        let is_known = kind != ItemKind::Opaque || head.kind == "reasoning";
        let body: Body = if is_known { serde_json::from_str(json)? } else { Body::default() };
        let of_content = if kind == ItemKind::Message { Channel::Text } else { Channel::Reasoning };
        let content = body.content.unwrap_or_default();
        let refuses = content.iter().any(|part| part.refusal.is_some());
        let texts = |channel, parts: Vec<Part>| {
            let texts = parts.into_iter().map(|part| part.text.or(part.refusal)).enumerate();
            texts.filter_map(move |(n, text)| Some((channel, n, text?)))
        };
        let arguments = body.arguments.map(|arguments| (Channel::Arguments, 0, arguments));
        let texts = texts(Channel::Summary, body.summary.unwrap_or_default())
            .chain(texts(of_content, content))
            .chain(arguments.filter(|_| kind == ItemKind::Call))
            .collect();
        let is_cut = head.status.as_deref() == Some("incomplete");
        let (call_id, name) = (body.call_id, body.name);
        Ok((head.id, Self { kind, is_cut, refuses, call_id, name, texts }))
    }
}

impl<'a> Ended<'a> {
    fn read(name: &str, response: &'a str) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Response<'a> {
            status: Option<String>,
            error: Option<Value>,
            incomplete_details: Option<Value>,
            usage: Option<Value>,
            #[serde(borrow)]
            output: Option<Vec<&'a RawValue>>,
        }

        let response: Response<'a> = serde_json::from_str(response)?;
        let known = ["completed", "incomplete", "failed", "cancelled"];
        // The status counts, unless it contradicts the end.
        let status = response.status.as_deref().filter(|status| known.contains(status)).unwrap_or(name);
        let status = match status {
            "completed" => Status::Completed,
            "failed" => Status::Failed(response.error.unwrap_or_default()),
            "cancelled" => Status::Cancelled,
            _ => {
                let reason = response.incomplete_details.unwrap_or_default();
                Status::Incomplete(reason["reason"].as_str().unwrap_or("incomplete").to_owned())
            }
        };
        let usage = response.usage.as_ref().and_then(usage);
        Ok(Self { status, usage, output: response.output.unwrap_or_default() })
    }
}

/// Reads the tokens. A server that reports zeros has not counted.
fn usage(usage: &Value) -> Option<Usage> {
    let tokens = |value: &Value| value.as_u64().unwrap_or(0);
    let (input, output) = (&usage["input_tokens_details"], &usage["output_tokens_details"]);
    let whole = Usage::new(tokens(&usage["input_tokens"]), tokens(&usage["output_tokens"]));
    let cached_tokens = tokens(&input["cached_tokens"]).min(whole.input_tokens);
    let usage = Usage {
        cached_tokens,
        cache_write_tokens: tokens(&input["cache_write_tokens"]).min(whole.input_tokens - cached_tokens),
        reasoning_tokens: tokens(&output["reasoning_tokens"]).min(whole.output_tokens),
        ..whole
    };
    Some(usage).filter(|usage| *usage != Usage::default())
}

/// Creates the error of an event that is not one of the protocol.
pub(super) fn malformed(cause: &str, data: &str) -> ModelError {
    let message =
        format!("the server sent an event that is not one of the Responses API ({cause}): {}", excerpt(data));
    ModelError::new(ModelErrorKind::Malformed, message)
}
