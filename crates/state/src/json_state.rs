//! States whose channels are only known at run time.
//!
//! Start at [`JsonState`]; [`JsonChannels`] describes its channels, nodes return [`JsonUpdate`].

mod channels;
mod rule;
mod schema;
mod update;

pub use channels::{BadChannels, JsonChannel, JsonChannels};
pub use rule::JsonReducer;
pub use update::{BadUpdate, JsonUpdate};

use std::{borrow::Cow, fmt, sync::Arc};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use superstep_engine::ChannelSet;

use crate::{
    Channel, FoldError, State, Stored, WriteError,
    json_state::{rule::RuleValue, schema::Schema},
};

/// A state whose channels are described at run time, by a [`JsonChannels`]. Its values are JSON.
///
/// It runs in the same graphs, is stored in the same checkpoints, and folds by the same reducers as a struct
/// that derives [`State`]. Errors that the compiler finds for a struct are found when a node returns its
/// update: an undeclared channel (`RunError::UndeclaredChannel`), a value that does not fit its schema
/// (`RunError::UnfitWrite`) or its reducer (`RunError::Fold`).
///
/// The default state has no channels. Create a graph with `StateGraph::with_initial`.
///
/// `null` means no value: a last-value channel has none after a write of `null`.
///
/// ```
/// use serde_json::json;
/// use superstep_graph::{Cx, JsonChannels, JsonState, JsonUpdate, START, StateGraph};
///
/// let channels: JsonChannels = serde_json::from_value(json!({
///     "log": { "reducer": "append" },
///     "turns": { "reducer": "sum" },
///     "answer": {},
/// }))?;
/// let mut graph = StateGraph::with_initial("g", JsonState::new(&channels)?);
/// let node = graph.add_node("node", async |state: JsonState, _: Cx| {
///     json!({ "log": ["worked"], "turns": 1, "answer": state.get("question") })
/// });
/// graph.add_edge(START, node);
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let end = graph.compile()?.run(JsonUpdate::new().write("turns", 2)).await?;
/// assert_eq!(end.state.to_value(), json!({ "log": ["worked"], "turns": 3 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct JsonState {
    spec: Arc<Spec>,
    /// By position.
    values: Arc<Vec<RuleValue>>,
}

/// A validated description. Channels are ordered by name.
#[derive(Default)]
struct Spec {
    channels: Vec<Channel>,
    /// The initial values, also used for cleared channels.
    initial: Vec<RuleValue>,
    schemas: Vec<Option<Schema>>,
    /// The channels as they were given.
    described: Vec<JsonChannel>,
    ephemeral: bool,
    untracked: bool,
}

impl Spec {
    /// Returns the channel with this name.
    fn position(&self, name: &str) -> Option<usize> {
        self.channels.binary_search_by(|channel| (*channel.name).cmp(name)).ok()
    }
}

impl JsonState {
    /// Creates a state with these channels, without writes.
    ///
    /// # Errors
    /// All problems of the description.
    pub fn new(channels: &JsonChannels) -> Result<Self, BadChannels> {
        let spec = channels.spec()?;
        let values = Arc::new(spec.initial.clone());
        Ok(Self { spec: Arc::new(spec), values })
    }

    /// Returns the value of a channel; `None` if it has none, or if the channel does not exist. Converts
    /// lists to JSON in time linear to their length; [`items`](Self::items) does not.
    pub fn get(&self, channel: &str) -> Option<Value> {
        self.held(channel).and_then(RuleValue::to_value)
    }

    /// Returns the items of a list: of a channel that appends, merges by id or is a topic. Empty for any
    /// other.
    pub fn items(&self, channel: &str) -> Box<dyn Iterator<Item = &Value> + '_> {
        match self.held(channel) {
            Some(RuleValue::List(list)) => Box::new(list.iter()),
            Some(RuleValue::ById(list)) => Box::new(list.iter()),
            Some(RuleValue::Value(value)) => Box::new(value.as_array().into_iter().flatten()),
            Some(RuleValue::Nothing) | None => Box::new(std::iter::empty()),
        }
    }

    /// Returns the state as an object: every channel that has a value.
    pub fn to_value(&self) -> Value {
        let values =
            self.entries().filter_map(|(channel, held)| Some((channel.name.to_string(), held.to_value()?)));
        Value::Object(values.collect())
    }

    /// Returns some of the channels, in the form of [`to_value`](Self::to_value).
    pub fn pick(&self, channels: &[&str]) -> Value {
        let value = |name: &&str| Some(((*name).to_owned(), self.get(name)?));
        Value::Object(channels.iter().filter_map(value).collect::<Map<_, _>>())
    }

    fn held(&self, channel: &str) -> Option<&RuleValue> {
        self.spec.position(channel).map(|position| &self.values[position])
    }

    fn entries(&self) -> impl Iterator<Item = (&Channel, &RuleValue)> {
        self.spec.channels.iter().zip(self.values.iter())
    }

    /// Returns the channels that a part of an update writes or clears; undeclared ones are not among them.
    fn set<'a>(&self, names: impl Iterator<Item = &'a String>) -> ChannelSet {
        names.filter_map(|name| self.spec.position(name)).collect()
    }

    /// Resets channels to their initial values.
    fn start_over(&mut self, which: impl Fn(usize, &Channel) -> bool) {
        let values = Arc::make_mut(&mut self.values);
        for (position, channel) in self.spec.channels.iter().enumerate() {
            if which(position, channel) {
                values[position] = self.spec.initial[position].clone();
            }
        }
    }

    fn fold_part(&mut self, part: JsonUpdate) -> Result<(), FoldError> {
        let JsonUpdate { writes, clear, .. } = part;
        for name in clear {
            let position = self.declared(&name)?;
            Arc::make_mut(&mut self.values)[position] = self.spec.initial[position].clone();
        }
        for (name, write) in writes {
            let position = self.declared(&name)?;
            let held = &mut Arc::make_mut(&mut self.values)[position];
            let folded = self.spec.described[position].fold(held, write);
            folded.map_err(|source| FoldError { channel: Cow::Owned(name), source })?;
        }
        Ok(())
    }

    fn declared(&self, name: &str) -> Result<usize, FoldError> {
        let missing = || FoldError {
            channel: Cow::Owned(name.to_owned()),
            source: "the state declares no such channel".into(),
        };
        self.spec.position(name).ok_or_else(missing)
    }
}

impl State for JsonState {
    type Update = JsonUpdate;

    fn channels(&self) -> &[Channel] {
        &self.spec.channels
    }

    fn schema(
        &self,
        channel: usize,
        _: Stored,
        _: &mut schemars::SchemaGenerator,
    ) -> Option<schemars::Schema> {
        self.spec.described[channel].schema.clone()?.try_into().ok()
    }

    fn written(&self, update: &JsonUpdate) -> ChannelSet {
        let written = |part: &JsonUpdate| self.set(part.writes.keys().chain(&part.clear));
        update.parts().map(written).fold(ChannelSet::EMPTY, ChannelSet::union)
    }

    fn exclusive(&self, update: &JsonUpdate) -> ChannelSet {
        let exclusive = |part: &JsonUpdate| {
            let alone = |name: &&String| {
                self.spec.position(name).is_some_and(|position| self.spec.channels[position].exclusive)
            };
            self.set(part.writes.keys().filter(alone).chain(&part.clear))
        };
        update.parts().map(exclusive).fold(ChannelSet::EMPTY, ChannelSet::union)
    }

    fn restrict(&self, update: &mut JsonUpdate, channels: ChannelSet) {
        update.retain(&|name| self.spec.position(name).is_some_and(|position| channels.contains(position)));
    }

    fn check(&self, update: &JsonUpdate) -> Result<(), WriteError> {
        for part in update.parts() {
            for name in part.writes.keys().chain(&part.clear) {
                if self.spec.position(name).is_none() {
                    let declared =
                        self.spec.channels.iter().map(|channel| channel.name.to_string()).collect();
                    return Err(WriteError::Undeclared { channel: name.clone(), declared });
                }
            }
            for (name, write) in &part.writes {
                let Some(position) = self.spec.position(name) else { continue };
                let Some(schema) = &self.spec.schemas[position] else { continue };
                let unfit = |(place, reason)| WriteError::Unfit { channel: name.clone(), place, reason };
                schema.check(&self.spec.described[position].described(write)).map_err(unfit)?;
            }
        }
        Ok(())
    }

    fn stored<'a>(&self, update: &'a JsonUpdate) -> Cow<'a, JsonUpdate> {
        if !self.spec.untracked {
            return Cow::Borrowed(update);
        }
        let stored = self.spec.channels.iter().enumerate().filter(|(_, channel)| !channel.untracked);
        let mut update = update.clone();
        self.restrict(&mut update, stored.map(|(position, _)| position).collect());
        Cow::Owned(update)
    }

    fn read_update(&self, json: &[u8]) -> serde_json::Result<JsonUpdate> {
        let update: JsonUpdate = serde_json::from_slice(json)?;
        update.renamed(&|name| {
            let found =
                self.spec.channels.iter().find(|channel| channel.is_called(name) && !channel.untracked);
            found.map(|channel| channel.name.to_string())
        })
    }

    fn clear_ephemeral(&mut self) {
        if self.spec.ephemeral {
            self.start_over(|_, channel| channel.ephemeral);
        }
    }

    fn retain(&mut self, channels: ChannelSet) {
        self.start_over(|position, _| !channels.contains(position));
    }

    fn fold(&mut self, update: JsonUpdate) -> Result<(), FoldError> {
        update.into_parts().try_for_each(|part| self.fold_part(part))
    }

    fn encode(&self, channel: usize) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&self.values[channel])
    }

    fn serialize_channel<Z: Serializer>(&self, channel: usize, serializer: Z) -> Result<Z::Ok, Z::Error> {
        self.values[channel].serialize(serializer)
    }

    fn decode(&mut self, channel: usize, json: &[u8]) -> Result<(), serde_json::Error> {
        let value = self.spec.described[channel].read(serde_json::from_slice(json)?);
        let value = value.map_err(serde::de::Error::custom)?;
        Arc::make_mut(&mut self.values)[channel] = value;
        Ok(())
    }
}

impl PartialEq for JsonState {
    /// Returns whether the same channels have the same values.
    fn eq(&self, other: &Self) -> bool {
        self.to_value() == other.to_value()
    }
}

impl fmt::Debug for JsonState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_value(), f)
    }
}

impl Serialize for JsonState {
    /// Serializes the stored form, without untracked channels.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let stored = self.entries().filter(|(channel, _)| !channel.untracked);
        serializer.collect_map(stored.filter_map(|(channel, held)| Some((&channel.name, held.to_value()?))))
    }
}
