//! The description of the channels of a [`JsonState`](super::JsonState).

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use superstep_engine::ChannelSet;

use super::{JsonReducer, Spec, schema::Schema};
use crate::{Channel, stored_update::keys::is_reserved};

/// The channels of a [`JsonState`](super::JsonState), by name.
///
/// Its JSON form is an object with an entry for each channel, `{}` for one that is replaced by each write.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JsonChannels(pub BTreeMap<String, JsonChannel>);

/// A channel of a [`JsonChannels`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JsonChannel {
    /// The reducer of the channel.
    pub reducer: JsonReducer,
    /// The initial value, also used when the channel is cleared. Without it, lists are empty, sums 0, unions
    /// `{}`, and any other channel has no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// The JSON Schema of writes, in the form of the value: for a list, of the list of written items.
    /// Requires the feature `json-schema`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The names that a barrier waits for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// The former names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub was: Vec<String>,
    /// `true` if a thread must have a value of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// `true` if it is never stored.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub untracked: bool,
}

/// An invalid description of channels.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("SS180: invalid channels: {}", .problems.join("; "))]
pub struct BadChannels {
    /// The problems, each with its channel.
    pub problems: Vec<String>,
}

crate::debug_by_chain!(BadChannels);

impl JsonChannels {
    /// Creates a description without channels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a channel, or replaces the one of this name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, channel: impl Into<JsonChannel>) -> Self {
        self.0.insert(name.into(), channel.into());
        self
    }

    /// Reads channels from a JSON Schema of the whole state: one for each of its `properties`, which becomes
    /// the schema of its writes. `default` and `required` have their usual meaning. The keyword `x-reducer`
    /// chooses the reducer; `x-untracked` excludes the channel from storage. Referenced definitions are
    /// copied.
    ///
    /// # Errors
    /// If it does not describe an object, or a keyword has an invalid value.
    pub fn from_schema(schema: &Value) -> Result<Self, BadChannels> {
        let bad = |problem: &str| BadChannels { problems: vec![problem.to_owned()] };
        let properties = schema.get("properties").and_then(Value::as_object);
        let properties = properties.ok_or_else(|| bad("the schema has no object of `properties`"))?;
        let required = schema.get("required").and_then(Value::as_array);
        let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|it| it == name));
        let (mut channels, mut problems) = (Self::new(), Vec::new());
        for (name, part) in properties {
            let keyword = |keyword: &str| part.get(keyword).cloned().unwrap_or(Value::Null);
            let reducer = match keyword("x-reducer") {
                Value::Null => Ok(JsonReducer::LastValue),
                reducer => serde_json::from_value(reducer),
            };
            let reducer = reducer.unwrap_or_else(|error| {
                problems.push(format!("channel `{name}`: `x-reducer`: {error}"));
                JsonReducer::LastValue
            });
            let channel = JsonChannel {
                reducer,
                default: part.get("default").cloned(),
                schema: Some(with_definitions(part, schema)),
                required: is_required(name),
                untracked: keyword("x-untracked") == json!(true),
                ..JsonChannel::default()
            };
            channels = channels.with(name, channel);
        }
        if problems.is_empty() { Ok(channels) } else { Err(BadChannels { problems }) }
    }

    /// Validates the description and converts it.
    pub(super) fn spec(&self) -> Result<Spec, BadChannels> {
        let mut spec = Spec::default();
        let mut problems = Vec::new();
        if self.0.len() > ChannelSet::CAPACITY {
            problems.push(format!("they are {}, and at most {} can be", self.0.len(), ChannelSet::CAPACITY));
        }
        let mut names: Vec<&str> = self.0.keys().map(String::as_str).collect();
        for (name, channel) in &self.0 {
            let mut problem = |problem: String| problems.push(format!("channel `{name}`: {problem}"));
            for name in [name].into_iter().chain(&channel.was) {
                if name.is_empty() || is_reserved(name) {
                    problem(format!("`{name}` is not a valid channel name"));
                }
            }
            for was in &channel.was {
                if names.contains(&was.as_str()) {
                    problem(format!("`{was}` is already the name of a channel, or a duplicate"));
                }
                names.push(was);
            }
            if channel.untracked && (channel.required || !channel.was.is_empty()) {
                problem("it is never stored, so options about its stored form have no effect".into());
            }
            if (channel.reducer == JsonReducer::Barrier) == channel.names.is_empty() {
                problem("a barrier requires `names`, and no other channel has them".into());
            }
            match channel.initial() {
                Ok(value) => spec.initial.push(value),
                Err(cause) => problem(format!("its default: {cause}")),
            }
            match channel.schema.as_ref().map(Schema::new).transpose() {
                Ok(schema) => spec.schemas.push(schema),
                Err(cause) => problem(format!("its schema {cause}")),
            }
            let ephemeral = channel.reducer.is_ephemeral();
            spec.ephemeral |= ephemeral;
            spec.untracked |= channel.untracked;
            let exclusive = channel.reducer.is_exclusive();
            spec.described.push(channel.clone());
            spec.channels.push(Channel {
                name: Cow::Owned(name.clone()),
                was: channel.was.iter().cloned().map(Cow::Owned).collect(),
                ephemeral,
                exclusive,
                version: 1,
                migrate: None,
                required: channel.required,
                untracked: channel.untracked,
            });
        }
        if problems.is_empty() { Ok(spec) } else { Err(BadChannels { problems }) }
    }
}

impl From<JsonReducer> for JsonChannel {
    fn from(reducer: JsonReducer) -> Self {
        Self { reducer, ..Self::default() }
    }
}

/// Returns the schema of a property, with what it may refer to in the schema around it.
fn with_definitions(part: &Value, whole: &Value) -> Value {
    let Value::Object(part) = part else { return part.clone() };
    let mut schema: Map<String, Value> = part.clone();
    for keyword in ["$schema", "$defs", "definitions"] {
        if let (Some(definitions), false) = (whole.get(keyword), schema.contains_key(keyword)) {
            schema.insert(keyword.to_owned(), definitions.clone());
        }
    }
    Value::Object(schema)
}
