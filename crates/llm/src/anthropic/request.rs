//! The conversion of a [`Request`] into the body of a request for a message.
//!
//! Start at [`Built::new`].

mod conversation;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde::Serialize;
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

use self::conversation::{Conversation, Turn};
use super::{
    blocks::blocks,
    config::{AnthropicConfig, CacheTime, Thinking},
};
use crate::{
    Request, Role, ToolSpec,
    derived::DerivedFrom,
    messages::{
        extras::{fnv, valid},
        wire_ids::in_call_order,
    },
    models::ModelInfo,
    openai::message::WirePolicy,
    tools::tool::ToolSpecs,
};

/// The protocol of the messages.
pub(super) const WIRE: &str = "anthropic";

/// The maximum of output tokens of a model that is not in the table.
const MAX_TOKENS: u32 = 8192;

/// The version of the API on Vertex AI, where the model is in the address.
const VERTEX_VERSION: &str = "vertex-2023-10-16";

/// The least number of tokens to think, which the server requires.
const MIN_BUDGET: u32 = 1024;

/// The beta that lets the server drop reasoning that is bound to another conversation, instead of refusing the request.
pub(super) const BINDING: &str = "thinking-binding-controls-2026-08-01";

/// The differences of one request from another of the same conversation.
#[derive(Clone, Debug, Default)]
pub(super) struct Form {
    /// The reasoning of earlier answers stays out.
    pub(super) no_thinking: bool,
    /// Betas that the server refuses by name.
    pub(super) lost_betas: Vec<String>,
    /// The content of an answer that the server paused, which it continues.
    pub(super) paused: Vec<Box<RawValue>>,
}

/// A request in the form of the protocol.
pub(super) struct Built<'a> {
    pub(super) body: Body<'a>,
    pub(super) betas: Vec<String>,
    /// The hash of all that the answer's reasoning is signed over.
    pub(super) prefix: String,
    /// The request has reasoning of earlier answers.
    pub(super) has_thinking: bool,
}

#[derive(Serialize)]
pub(super) struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    anthropic_version: Option<&'static str>,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Cow<'a, RawValue>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Cow<'a, RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    messages: Vec<Turn<'a>>,
    stream: bool,
    #[serde(flatten)]
    extra: &'a BTreeMap<String, Value>,
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<Value>,
}

impl<'a> Built<'a> {
    /// Builds the body of a streamed request to a server. Equal requests give equal bytes, and a longer conversation begins with the
    /// blocks of the shorter one, as the cache and the signatures require.
    pub(super) fn new(
        config: &'a AnthropicConfig,
        server: &str,
        request: &'a Request,
        offered: &'a Offered,
        form: &Form,
    ) -> Self {
        let tools = offered.specs.derived::<ToolForms>();
        let known = config.models.find(&config.model).map(|known| &**known);
        let is_lost = |beta: &str| form.lost_betas.iter().any(|lost| lost == beta);
        let (system, rest) = match request.messages.split_first() {
            Some((first, rest)) if first.role == Role::System => (Some(first), rest),
            _ => (None, &request.messages[..]),
        };
        let system = system.filter(|system| !system.content.trim().is_empty());
        let system = system.map(|system| blocks(system, false)).unwrap_or_default();
        let mid_system = known.is_some_and(|known| known.can("mid_system"));
        let mut conversation = Conversation::new(system, tools.hash, mid_system);
        for message in in_call_order(rest) {
            let origin = valid(message, (WIRE, server, &config.model));
            let fits = origin.is_some_and(|origin| !form.no_thinking && conversation.fits(&origin.prefix));
            conversation.add(message.role, blocks(message, origin.is_some()), fits);
        }
        let (prefix, has_thinking) = (conversation.prefix(), conversation.has_thinking());
        let mut messages = conversation.end(&form.paused);
        let thinking = thinking(config.thinking, known, &messages, !is_lost(BINDING));
        let is_bound = thinking.as_ref().is_some_and(|thinking| thinking.get("block_binding").is_some());
        let is_sampled = thinking.is_none() && known.is_none_or(|known| !known.cannot("sampling"));
        let mut sent_tools: Vec<_> = tools.json.iter().map(|tool| Cow::Borrowed(&**tool)).collect();
        let mut system: Vec<_> = system.iter().map(|block| Cow::Borrowed(&*block.json)).collect();
        mark(config.cache, &mut sent_tools, &mut system, &mut messages);
        let betas = config.betas.iter().map(String::as_str).chain(is_bound.then_some(BINDING));
        let is_on_vertex = config.token.is_some();
        let body = Body {
            model: (!is_on_vertex).then_some(&config.model),
            anthropic_version: is_on_vertex.then_some(VERTEX_VERSION),
            max_tokens: max_tokens(config, known, request, thinking.as_ref()),
            system,
            tool_choice: (offered.are_forbidden && !sent_tools.is_empty()).then(|| json!({"type": "none"})),
            tools: sent_tools,
            thinking,
            output_config: OutputConfig::of(config, request),
            temperature: request.temperature.or(config.temperature).filter(|_| is_sampled),
            messages,
            stream: true,
            extra: &config.extra,
        };
        let betas = betas.filter(|beta| !is_lost(beta)).map(str::to_owned).collect();
        Self { body, betas, prefix, has_thinking }
    }
}

/// Returns the reasoning to request. It is constant within a thread, unless the model would have to have reasoned already.
fn thinking(
    thinking: Thinking,
    known: Option<&ModelInfo>,
    messages: &[Turn<'_>],
    has_binding: bool,
) -> Option<Value> {
    let can = |ability: &str| known.is_some_and(|known| known.can(ability));
    let mut adaptive = json!({"type": "adaptive", "display": "summarized"});
    if can("bound") && has_binding {
        adaptive["block_binding"] = json!({"prefix_mismatch_behavior": "drop_block"});
    }
    match thinking {
        Thinking::Off => None,
        Thinking::Auto => can("adaptive").then_some(adaptive),
        Thinking::Adaptive => Some(adaptive),
        // The last answer was that of another model, or has lost its reasoning.
        Thinking::Budget(_) if is_round_without_thinking(messages) => None,
        Thinking::Budget(tokens) => Some(json!({"type": "enabled", "budget_tokens": tokens.max(MIN_BUDGET)})),
    }
}

/// Returns whether the last messages are the results of calls before which the model did not think.
fn is_round_without_thinking(messages: &[Turn<'_>]) -> bool {
    let is_open = messages.last().is_some_and(|last| last.has_results);
    let answer = messages.iter().rfind(|turn| turn.role == Role::Assistant);
    is_open && answer.is_some_and(|answer| !answer.begins_with_thinking)
}

fn max_tokens(
    config: &AnthropicConfig,
    known: Option<&ModelInfo>,
    request: &Request,
    thinking: Option<&Value>,
) -> u32 {
    let of_model =
        known.and_then(|known| known.max_output).map(|most| u32::try_from(most).unwrap_or(u32::MAX));
    let most = request.max_tokens.or(config.max_tokens).or(of_model).unwrap_or(MAX_TOKENS);
    let budget = thinking.and_then(|thinking| thinking.get("budget_tokens")?.as_u64()).unwrap_or(0);
    // The answer follows the reasoning within the same limit, which must be higher.
    let budget = u32::try_from(budget).unwrap_or(u32::MAX);
    if most > budget { most } else { budget.saturating_add(MIN_BUDGET) }
}

impl<'a> OutputConfig<'a> {
    fn of(config: &'a AnthropicConfig, request: &Request) -> Option<Self> {
        let format = request.output_schema.as_ref();
        let format = format.map(|schema| json!({"type": "json_schema", "schema": schema}));
        let effort = config.effort.as_deref();
        (effort.is_some() || format.is_some()).then_some(Self { effort, format })
    }
}

/// Marks the ends of what the provider caches: the tools, the system prompt, the conversation, and that of the previous request.
///
/// # Source
/// Anthropic, "Prompt caching": at most four marks, those of an hour before those of five minutes, none on reasoning.
fn mark<'a>(
    cache: CacheTime,
    tools: &mut [Cow<'a, RawValue>],
    system: &mut [Cow<'a, RawValue>],
    messages: &mut [Turn<'a>],
) {
    let hour = match cache {
        CacheTime::Off => return,
        CacheTime::FiveMinutes => r#"{"type":"ephemeral"}"#,
        CacheTime::Hour => r#"{"type":"ephemeral","ttl":"1h"}"#,
    };
    for block in tools.last_mut().into_iter().chain(system.last_mut()) {
        *block = marked(block, hour);
    }
    let users = messages.iter_mut().rev().filter(|turn| turn.role == Role::User);
    for block in users.take(2).filter_map(|turn| turn.content.last_mut()) {
        *block = marked(block, r#"{"type":"ephemeral"}"#);
    }
}

/// Returns an object with a mark for the cache.
fn marked<'a>(block: &RawValue, mark: &str) -> Cow<'a, RawValue> {
    let inner = block.get().strip_suffix('}').expect("a block is an object");
    let json = format!("{inner},\"cache_control\":{mark}}}");
    Cow::Owned(RawValue::from_string(json).expect("the fields of an object and one more"))
}

/// The tools of a request.
pub(super) struct Offered {
    specs: ToolSpecs,
    /// The model must not call them.
    are_forbidden: bool,
}

impl Offered {
    /// Returns the tools of a request. One without any has those of earlier requests, else those that the conversation calls, and none
    /// may be called: the server requires the tools of all calls, and reasoning is signed over them.
    pub(super) fn of(request: &Request) -> Self {
        if !request.tools.is_empty() {
            return Self { specs: request.tools.clone(), are_forbidden: false };
        }
        if !request.earlier_tools.is_empty() {
            return Self { specs: request.earlier_tools.clone(), are_forbidden: true };
        }
        let calls = request.messages.iter().flat_map(|message| &message.tool_calls);
        let names: BTreeSet<_> = calls.map(|call| WirePolicy::Wrap.name(&call.name)).collect();
        let spec = |name: Cow<'_, str>| ToolSpec {
            name: name.into_owned(),
            description: String::new(),
            parameters: json!({"type": "object"}),
        };
        Self { specs: names.into_iter().map(spec).collect::<Vec<_>>().into(), are_forbidden: true }
    }
}

/// The JSON of tools, and its hash.
struct ToolForms {
    json: Vec<Box<RawValue>>,
    hash: u64,
}

#[derive(Serialize)]
struct WireTool<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: Cow<'a, Value>,
}

impl DerivedFrom<[ToolSpec]> for ToolForms {
    fn derive(tools: &[ToolSpec]) -> Self {
        let json: Vec<_> = tools.iter().map(|tool| WireTool::of(tool).json()).collect();
        let hash = fnv(json.iter().flat_map(|tool| tool.get().bytes()));
        Self { json, hash }
    }
}

impl<'a> WireTool<'a> {
    fn of(spec: &'a ToolSpec) -> Self {
        let mut input_schema = Cow::Borrowed(&spec.parameters);
        if input_schema["type"] != "object" {
            let mut fields = input_schema.as_object().cloned().unwrap_or_default();
            fields.insert("type".to_owned(), "object".into());
            input_schema = Cow::Owned(fields.into());
        }
        Self { name: &spec.name, description: &spec.description, input_schema }
    }

    fn json(&self) -> Box<RawValue> {
        to_raw_value(self).expect("what is sent has a JSON form")
    }
}

#[cfg(test)]
mod tests;
