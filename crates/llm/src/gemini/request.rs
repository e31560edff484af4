//! The conversion of a [`Request`] into the body of a request for content.
//!
//! Start at [`Built::new`].

mod conversation;

use std::{borrow::Cow, collections::BTreeMap};

use serde::Serialize;
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

use self::conversation::{Content, Conversation};
use super::{
    WIRE,
    config::{GENERATION, GeminiConfig},
};
use crate::{
    Request, Role, ToolSpec,
    derived::DerivedFrom,
    messages::{extras::valid, origin::Fields, wire_ids::in_call_order},
};

/// A request in the form of the protocol.
pub(super) struct Built<'a> {
    pub(super) body: Body<'a>,
    /// The request has signed parts of earlier answers.
    pub(super) has_signatures: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Value>,
    contents: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<[Tools<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_config: Option<Value>,
    #[serde(skip_serializing_if = "Fields::is_empty")]
    generation_config: Fields,
    #[serde(flatten)]
    extra: BTreeMap<&'a str, &'a Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    function_declarations: &'a [Box<RawValue>],
}

impl<'a> Built<'a> {
    /// Builds the body of a streamed request to a server. Equal requests give equal bytes, and a longer conversation begins with the
    /// parts of the shorter one, as the cache requires. Without `signatures`, no part of an earlier answer has its own.
    pub(super) fn new(
        config: &'a GeminiConfig,
        server: &str,
        request: &'a Request,
        signatures: bool,
    ) -> Self {
        // A step without tools has those of the earlier ones, so that the cache has them too.
        let are_forbidden = request.tools.is_empty();
        let offered = if are_forbidden { &request.earlier_tools } else { &request.tools };
        let tools = &offered.derived::<Declarations>().0;
        let (system, rest) = match request.messages.split_first() {
            Some((first, rest)) if first.role == Role::System => (Some(first), rest),
            _ => (None, &request.messages[..]),
        };
        let system = system.map(|system| &*system.content).filter(|system| !system.trim().is_empty());
        let mut conversation = Conversation::new(signs_calls(&config.model));
        let mut has_signatures = false;
        for message in in_call_order(rest) {
            let place = (WIRE, server, &*config.model);
            let is_valid = signatures && valid(message, place).is_some();
            has_signatures |= is_valid;
            conversation.add(message, is_valid);
        }
        let extra = config.extra.iter().map(|(name, value)| (&**name, value));
        let body = Body {
            system_instruction: system.map(|text| json!({"parts": [{ "text": text }]})),
            contents: conversation.end(),
            tools: (!tools.is_empty()).then_some([Tools { function_declarations: tools }]),
            tool_config: (are_forbidden && !tools.is_empty())
                .then(|| json!({"functionCallingConfig": {"mode": "NONE"}})),
            generation_config: generation(config, request),
            extra: extra.filter(|(name, _)| *name != GENERATION).collect(),
        };
        Self { body, has_signatures }
    }
}

/// Returns whether a model signs its calls, requires their signatures, and accepts images within results: those since Gemini 3.
fn signs_calls(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    !["gemini-1", "gemini-2"].into_iter().any(|before| name.starts_with(before))
}

/// Returns the settings of the answer.
fn generation(config: &GeminiConfig, request: &Request) -> Fields {
    let mut fields = match config.extra.get(GENERATION) {
        Some(Value::Object(fields)) => fields.clone(),
        _ => Fields::new(),
    };
    // The shortest decimal form, not that of the `f64` nearest to the `f32`.
    let decimal = |number: f32| number.to_string().parse::<f64>().ok();
    let schema = request.output_schema.as_ref();
    let own = [
        ("temperature", request.temperature.or(config.temperature).and_then(decimal).map(Value::from)),
        ("maxOutputTokens", request.max_tokens.or(config.max_tokens).map(Value::from)),
        ("responseMimeType", schema.map(|_| "application/json".into())),
        ("responseJsonSchema", schema.cloned()),
        ("thinkingConfig", thinking(config)),
    ];
    fields.extend(own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    fields
}

fn thinking(config: &GeminiConfig) -> Option<Value> {
    let mut fields = Fields::new();
    if let Some(effort) = &config.effort {
        fields.insert("thinkingLevel".to_owned(), effort.to_uppercase().into());
    }
    if let Some(budget) = config.thinking_budget {
        fields.insert("thinkingBudget".to_owned(), budget.into());
    }
    if fields.is_empty() {
        return None;
    }
    fields.insert("includeThoughts".to_owned(), (config.thinking_budget != Some(0)).into());
    Some(fields.into())
}

/// The JSON of tools.
struct Declarations(Vec<Box<RawValue>>);

impl DerivedFrom<[ToolSpec]> for Declarations {
    fn derive(tools: &[ToolSpec]) -> Self {
        Self(tools.iter().map(declaration).collect())
    }
}

fn declaration(spec: &ToolSpec) -> Box<RawValue> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Declaration<'a> {
        name: &'a str,
        description: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        parameters_json_schema: Option<Cow<'a, Value>>,
    }
    let schema = &spec.parameters;
    // An object without properties may be refused, and a tool without parameters needs no schema.
    let has_parameters = schema.as_object().is_some_and(|schema| {
        let empty = [json!({}), json!(false)];
        let has = |name: &str| schema.get(name).is_some_and(|value| !empty.contains(value));
        ["properties", "$ref", "anyOf", "oneOf", "allOf", "additionalProperties", "patternProperties"]
            .into_iter()
            .any(has)
    });
    let parameters_json_schema = has_parameters.then(|| {
        if schema["type"] == "object" {
            return Cow::Borrowed(schema);
        }
        let mut schema = schema.clone();
        schema["type"] = "object".into();
        Cow::Owned(schema)
    });
    let declaration =
        Declaration { name: &spec.name, description: &spec.description, parameters_json_schema };
    to_raw_value(&declaration).expect("what is sent has a JSON form")
}

#[cfg(test)]
mod tests;
