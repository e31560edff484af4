//! The conversion of a [`Request`] into the body of a request.
//!
//! Start at [`Body`].

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde::Serialize;
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use super::{
    WIRE,
    config::ResponsesConfig,
    items::{Items, MAX_ID_LENGTH},
    repairs::{Field, Form, Parts},
};
use crate::{
    Message, MessageData, Request, Role, ToolSpec,
    derived::DerivedFrom,
    messages::{
        extras::{fnv, valid},
        wire_ids::wire_ids,
    },
    tools::tool::ToolSpecs,
};

/// The minimum of output tokens that the protocol accepts.
const MIN_OUTPUT_TOKENS: u32 = 16;

/// The body of a streamed request.
///
/// Equal requests give equal bytes, and a longer conversation begins with the bytes of the shorter one, as prompt caches require.
/// The whole conversation is sent: nothing is stored at the server.
#[derive(Serialize)]
pub(super) struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    input: Vec<Cow<'a, RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    include: Option<[&'static str; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<String>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(flatten)]
    extra: &'a BTreeMap<String, Value>,
    /// `true` if items of earlier answers are part of the input.
    #[serde(skip)]
    pub(super) has_items: bool,
}

#[derive(Serialize)]
struct Text<'a> {
    format: Format<'a>,
}

/// Not strict: that would refuse schemas with optional fields. The caller validates the answer.
#[derive(Serialize)]
struct Format<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'static str,
    schema: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

#[derive(Serialize)]
struct Reasoning<'a> {
    effort: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'static str>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_obfuscation: bool,
}

impl<'a> Body<'a> {
    /// Builds the body of a request to this server.
    pub(super) fn of(config: &'a ResponsesConfig, server: &str, request: &'a Request, form: &Form) -> Self {
        let (instructions, input, has_items) = conversation(config, server, request, form);
        let sends = |field| !form.left_out.contains(&field);
        let strict = sends(Field::Strict).then_some(false);
        let forbids = request.tools.is_empty() && !request.earlier_tools.is_empty();
        let tools = if forbids { &request.earlier_tools } else { &request.tools };
        let max_tokens = request.max_tokens.or(config.max_tokens);
        let format = |schema| Format { kind: "json_schema", name: "reply", schema, strict };
        Self {
            model: &config.model,
            instructions,
            input,
            tools: (!tools.is_empty()).then(|| offered(tools, strict.is_some())),
            tool_choice: forbids.then_some("none"),
            parallel_tool_calls: (!config.parallel_calls && !tools.is_empty()).then_some(false),
            text: request.output_schema.as_ref().map(|schema| Text { format: format(schema) }),
            reasoning: config
                .effort
                .as_deref()
                .map(|effort| Reasoning { effort, summary: sends(Field::Summary).then_some("auto") }),
            temperature: request.temperature.or(config.temperature),
            max_output_tokens: max_tokens.map(|most| most.max(MIN_OUTPUT_TOKENS)),
            include: sends(Field::Include).then_some(["reasoning.encrypted_content"]),
            store: sends(Field::Store).then_some(false),
            prompt_cache_key: sends(Field::PromptCacheKey).then(|| cache_key(&request.messages)).flatten(),
            stream: true,
            stream_options: sends(Field::StreamOptions)
                .then_some(StreamOptions { include_obfuscation: false }),
            extra: &config.extra,
            has_items,
        }
    }
}

/// Returns the instructions and the input, and whether items of earlier answers are part of it.
fn conversation<'a>(
    config: &ResponsesConfig,
    server: &str,
    request: &'a Request,
    form: &Form,
) -> (Option<&'a str>, Vec<Cow<'a, RawValue>>, bool) {
    let messages = &request.messages[..];
    let mut ids = wire_ids(messages, |byte| byte.is_ascii_graphic(), MAX_ID_LENGTH);
    let (instructions, rest) = match messages.split_first() {
        // An input must not be empty.
        Some((first, rest)) if first.role == Role::System && !rest.is_empty() => {
            (Some(&*first.content), rest)
        }
        _ => (None, messages),
    };
    ids.drain(..messages.len() - rest.len());
    let place = (WIRE, server, &*config.model);
    let (mut input, mut seen) = (Vec::new(), BTreeSet::new());
    let mut has_items = false;
    for (message, ids) in rest.iter().zip(&ids) {
        let is_exact = form.parts != Parts::Plain && valid(message, place).is_some();
        let exact = is_exact.then(|| Items::exact(message, ids, form.parts == Parts::Exact)).flatten();
        // A message of a copied part of a conversation has the ids of the original.
        let exact = exact.filter(|items| items.ids.iter().all(|id| seen.insert(id.clone())));
        has_items |= exact.is_some();
        let items = exact.unwrap_or_else(|| Items::plain(message, ids, config.accepts));
        match items {
            Cow::Borrowed(items) => input.extend(items.json.iter().map(|json| Cow::Borrowed(&**json))),
            Cow::Owned(items) => input.extend(items.json.into_iter().map(Cow::Owned)),
        }
    }
    (instructions, input, has_items)
}

/// Returns the key under which the provider caches the conversation: a hash of the first message of the user, or of the agent on the
/// user's behalf. A request has no id of its thread, and this is what the requests of a thread have in common until it is compacted.
fn cache_key(messages: &[Message]) -> Option<String> {
    let mut questions = messages.iter().filter(|message| message.role == Role::User);
    let first = questions.clone().find(|message| !message.synthetic).or_else(|| questions.next())?;
    Some(first.derived::<CacheKey>().0.clone())
}

struct CacheKey(String);

impl DerivedFrom<MessageData> for CacheKey {
    fn derive(message: &MessageData) -> Self {
        let bytes = || message.id.bytes().chain([0xFF]).chain(message.content.bytes());
        Self(format!("{:016x}{:016x}", fnv(bytes()), fnv([0xFE].into_iter().chain(bytes()))))
    }
}

fn offered(tools: &ToolSpecs, has_strict: bool) -> &RawValue {
    if has_strict { &tools.derived::<Offered<true>>().0 } else { &tools.derived::<Offered<false>>().0 }
}

/// The JSON of offered tools.
struct Offered<const STRICT: bool>(Box<RawValue>);

impl<const STRICT: bool> DerivedFrom<[ToolSpec]> for Offered<STRICT> {
    fn derive(tools: &[ToolSpec]) -> Self {
        let tools: Vec<_> = tools
            .iter()
            .map(|spec| Tool { kind: "function", spec, strict: STRICT.then_some(false) })
            .collect();
        Self(to_raw_value(&tools).expect("what is sent has a JSON form"))
    }
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    spec: &'a ToolSpec,
    /// Without it, some servers take it as true, which refuses schemas with optional fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}
