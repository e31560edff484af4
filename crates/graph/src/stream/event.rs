//! The events of a run.
//!
//! Start at [`Event`].

use serde::{
    Serialize, Serializer,
    de::{DeserializeOwned, value::MapDeserializer},
    ser::{Error as _, SerializeMap},
};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};
use superstep_checkpoint::{CheckpointMeta, SubgraphPath};
use superstep_engine::{ChannelSet, NodeName};
use superstep_state::Update;

use crate::{CheckpointId, Interrupt, State, stream::MessageKind};

/// An event of a run.
///
/// Within a superstep the order is: for each task its start, its own events (custom events and messages), its
/// update and its end, as they happen; then the new state, then the checkpoint. A debug event is next to the
/// event it describes.
///
/// # JSON
/// `{"event": NAME, "data": {..}}` with the variant's name in snake case and its fields; this form is a
/// promise.
/// - The data of `values` is `step` and `values`, an object of the requested channels.
/// - The `update` of an `update` is an object of the written channels, or `null` if none of the requested
///   ones was written.
/// - Untracked channels are in neither of them.
/// - The data of `checkpoint` and `interrupt` are those of [`CheckpointMeta`] and [`Interrupt`].
///
/// ```
/// # use superstep_graph::{Event, State};
/// # #[derive(State, Clone, Debug, Default)]
/// # struct Chat { answer: String }
/// let update = Chat::update().answer("5");
/// let event = Event::<Chat>::Update { step: 1, node: "agent".into(), update, cached: false };
/// let json = r#"{"event":"update","data":{"step":1,"node":"agent","update":{"answer":"5"},"cached":false}}"#;
/// assert_eq!(serde_json::to_string(&event)?, json);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", content = "data", rename_all = "snake_case", bound = "")]
#[non_exhaustive]
pub enum Event<S: State> {
    /// The state after the input or a superstep. [`StreamMode::Values`](crate::StreamMode::Values).
    #[serde(serialize_with = "serialize_values")]
    Values {
        /// The superstep; 0 for the input.
        step: i64,
        /// The state. Channels that were not requested have their defaults.
        state: S,
        /// The requested channels, by position: all of them without
        /// [`Streaming::output_keys`](crate::Streaming::output_keys).
        channels: ChannelSet,
    },
    /// A task finished. [`StreamMode::Updates`](crate::StreamMode::Updates).
    Update {
        /// The superstep.
        step: i64,
        /// The node.
        node: NodeName,
        /// The writes of the task to the requested channels; of a [`JsonState`](crate::JsonState) without those to untracked ones.
        #[serde(serialize_with = "serialize_update")]
        update: S::Update,
        /// `true` if the update came from the cache and the node did not run.
        cached: bool,
    },
    /// A node's event, from [`Cx::emit`](crate::Cx::emit). [`StreamMode::Custom`](crate::StreamMode::Custom).
    Custom {
        /// The node.
        node: NodeName,
        /// The kind of the event.
        name: &'static str,
        /// The data of the event.
        data: Value,
    },
    /// A node sent a message or a piece of one, with [`Cx::emit_message`](crate::Cx::emit_message) or a
    /// related method. [`StreamMode::Messages`](crate::StreamMode::Messages).
    Message {
        /// The superstep.
        step: i64,
        /// The node.
        node: NodeName,
        /// The slot of the task in its superstep.
        slot: u32,
        /// The attempt of the task, from 1. Messages of a failed attempt are void.
        attempt: u32,
        /// The checkpoint of the task; `None` without a checkpointer.
        checkpoint: Option<CheckpointId>,
        /// The id of the message, unique within an attempt of a task.
        id: String,
        /// The part of the message.
        kind: MessageKind,
        /// The piece, or the whole message.
        data: Value,
    },
    /// An attempt of a task starts. [`StreamMode::Tasks`](crate::StreamMode::Tasks).
    TaskStart {
        /// The superstep.
        step: i64,
        /// The node.
        node: NodeName,
        /// The attempt, from 1.
        attempt: u32,
    },
    /// An attempt of a task has ended. [`StreamMode::Tasks`](crate::StreamMode::Tasks).
    TaskEnd {
        /// The superstep.
        step: i64,
        /// The node.
        node: NodeName,
        /// The attempt, from 1.
        attempt: u32,
        /// The error of the task, if it failed.
        error: Option<String>,
    },
    /// A checkpoint was stored. [`StreamMode::Checkpoints`](crate::StreamMode::Checkpoints).
    Checkpoint(CheckpointMeta),
    /// Details of another event. [`StreamMode::Debug`](crate::StreamMode::Debug).
    Debug {
        /// The superstep; -1 for the checkpoint of a thread's first input.
        step: i64,
        /// The time: UTC milliseconds, by the clock of the run.
        timestamp_ms: i64,
        /// The kind of the described event.
        kind: DebugKind,
        /// See [`DebugKind`].
        payload: Value,
    },
    /// The consumer was too slow: this number of events is lost here. Sent in every mode.
    Lagged {
        /// The number of lost events.
        skipped: u64,
    },
    /// A node is interrupted. Sent in every mode, and never lost.
    Interrupt(Interrupt),
    /// An event of a called graph. Sent in the modes of the stream, if
    /// [`Streaming::subgraphs`](crate::Streaming::subgraphs) requests it.
    Subgraph {
        /// The path to the graph.
        #[serde(rename = "namespace")]
        path: SubgraphPath,
        /// The event, in its JSON form, because that graph has its own types.
        event: Value,
    },
    /// A new input replaced unfinished tasks. Sent in every mode, and never lost; for a subgraph it is an
    /// [`Event::Subgraph`], if those are requested.
    Discarded {
        /// The nodes of the discarded tasks.
        nodes: Vec<NodeName>,
    },
}

/// A node's event, read from an [`Event::Custom`], or from an [`Event::Subgraph`] with one.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomEvent<'a> {
    /// The path to the graph of the node; empty for the graph of the stream.
    pub path: SubgraphPath,
    /// The node.
    pub node: &'a str,
    /// The kind of the event.
    pub name: &'a str,
    /// The data of the event.
    pub data: &'a Value,
}

impl CustomEvent<'_> {
    /// Reads it as a type whose JSON form is `{"event": NAME, "data": {..}}`.
    ///
    /// # Errors
    /// If the type has no such event.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        let name = Value::from(self.name);
        let fields = [("event", &name), ("data", self.data)].into_iter();
        T::deserialize(MapDeserializer::new(fields))
    }
}

impl<S: State> Event<S> {
    /// Returns the event of a node of this graph, or of a called graph at any depth; `None` for every other event.
    pub fn custom(&self) -> Option<CustomEvent<'_>> {
        match self {
            Self::Custom { node, name, data } => {
                Some(CustomEvent { path: SubgraphPath::default(), node: node.as_str(), name, data })
            }
            Self::Subgraph { path, event } if event["event"] == "custom" => {
                let fields = event.get("data")?;
                let (node, name) = (fields.get("node")?.as_str()?, fields.get("name")?.as_str()?);
                Some(CustomEvent { path: path.clone(), node, name, data: fields.get("data")? })
            }
            _ => None,
        }
    }
}

/// The subject of an [`Event::Debug`], and the content of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DebugKind {
    /// A checkpoint was stored: the fields of [`CheckpointMeta`], and `values`, the state.
    Checkpoint,
    /// An attempt of a task starts: `slot`, `node`, `attempt`, and `input`, which is the item of a worker and
    /// the state of any other node.
    Task,
    /// An attempt has ended: `slot`, `node`, `attempt`, and `update`, `error` or `interrupts`.
    TaskResult,
}

/// Some channels of a state, as a JSON object in the order of its fields. Untracked channels are left out.
pub(crate) struct Channels<'a, S> {
    state: &'a S,
    /// `None` for all.
    only: Option<ChannelSet>,
}

impl<'a, S: State> Channels<'a, S> {
    pub(crate) fn all(state: &'a S) -> Self {
        Self { state, only: None }
    }
}

impl<S: State> Serialize for Channels<'_, S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        let mut object = serializer.serialize_map(None)?;
        for (position, channel) in self.state.channels().iter().enumerate() {
            // The values of untracked channels need no JSON form, and JSON leaves the process that they belong to.
            if !channel.untracked && self.only.is_none_or(|only| only.contains(position)) {
                let json = self.state.encode(position).map_err(Z::Error::custom)?;
                let json: &RawValue = serde_json::from_slice(&json).map_err(Z::Error::custom)?;
                object.serialize_entry(&channel.name, json)?;
            }
        }
        object.end()
    }
}

fn serialize_values<S: State, Z: Serializer>(
    step: &i64,
    state: &S,
    channels: &ChannelSet,
    serializer: Z,
) -> Result<Z::Ok, Z::Error> {
    let mut data = serializer.serialize_map(Some(2))?;
    data.serialize_entry("step", step)?;
    data.serialize_entry("values", &Channels { state, only: Some(*channels) })?;
    data.end()
}

fn serialize_update<U: Update, Z: Serializer>(update: &U, serializer: Z) -> Result<Z::Ok, Z::Error> {
    let json = to_raw_value(update).map_err(Z::Error::custom)?;
    if json.get() == "{}" { serializer.serialize_unit() } else { json.serialize(serializer) }
}
