//! The events of a run.
//!
//! Start at [`RunEvent`].

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use superstep_graph::{
    CheckpointId, Interrupt,
    checkpoint::{CheckpointMeta, Segment, SubgraphPath},
};

use crate::wire::channels::retain;

/// An event of a run, of its graph or of a graph that it called.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunEvent {
    /// The path to the graph; empty for the graph of the run.
    #[serde(deserialize_with = "read_path")]
    pub(crate) path: SubgraphPath,
    pub(crate) kind: Kind,
}

/// The kind of an event, with its data.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "data")]
pub(crate) enum Kind {
    /// The run starts, at this checkpoint if the thread has one.
    Started { head: Option<CheckpointId> },
    /// The run answers these questions of the thread.
    Answered { interrupts: Vec<String> },
    /// The state at which the run resumes, and its checkpoint, if it has one.
    Standing { meta: Option<Box<CheckpointMeta>>, values: Map<String, Value> },
    /// The state after the input or a superstep.
    Values { values: Map<String, Value> },
    /// A task finished.
    Update { node: String, writes: Value, cached: bool },
    /// A node's own event.
    Custom { name: String, data: Value },
    /// A node sent a message or a piece of one.
    Message(MessagePart),
    /// An attempt of a task starts.
    TaskStart { at_ms: i64, task: TaskInfo, input: Value },
    /// An attempt of a task has ended.
    TaskEnd { at_ms: i64, task: TaskInfo, update: Value, error: Option<String>, interrupts: Vec<Interrupt> },
    /// A checkpoint was stored.
    Checkpoint { at_ms: i64, meta: Box<CheckpointMeta>, values: Map<String, Value> },
    /// A node asks.
    Interrupt(Interrupt),
    /// The run stopped with these questions; with none, at a breakpoint. `values` is the state then.
    Paused { interrupts: Vec<Interrupt>, values: Map<String, Value> },
    /// The run failed.
    Failed { name: String, message: String },
}

/// A message or a piece of one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MessagePart {
    pub(crate) step: i64,
    pub(crate) node: String,
    pub(crate) slot: u32,
    #[serde(default)]
    pub(crate) checkpoint: Option<CheckpointId>,
    pub(crate) id: String,
    pub(crate) kind: PartKind,
    pub(crate) data: Value,
}

impl MessagePart {
    /// Returns the reasoning and the text.
    pub(crate) fn texts(&self) -> (&str, &str) {
        texts(&self.data)
    }
}

/// Returns the reasoning and the text of a message or a piece of one: a text, or an object with the fields of a stored message that
/// are present.
pub(crate) fn texts(message: &Value) -> (&str, &str) {
    let text = |field: &str| message[field].as_str().unwrap_or_default();
    (text("reasoning"), message.as_str().unwrap_or_else(|| text("content")))
}

/// The part of a message in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PartKind {
    /// The next piece.
    Chunk,
    /// The whole message.
    Full,
    /// Earlier pieces are void.
    Discarded,
}

/// A task in an event.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TaskInfo {
    pub(crate) step: i64,
    pub(crate) node: String,
    pub(crate) slot: u32,
}

/// The JSON form of an event of a graph.
#[derive(Deserialize)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
enum GraphEvent {
    Values { values: Map<String, Value> },
    Update { node: String, update: Value, cached: bool },
    Custom { name: String, data: Value },
    Message(MessagePart),
    Debug { step: i64, timestamp_ms: i64, kind: DebugKind, payload: Value },
    Lagged { skipped: u64 },
    Interrupt(Interrupt),
    Subgraph { namespace: String, event: Value },
    TaskStart {},
    TaskEnd {},
    Checkpoint {},
    Discarded {},
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum DebugKind {
    Checkpoint,
    Task,
    TaskResult,
}

#[derive(Deserialize)]
struct Task {
    slot: u32,
    node: String,
    #[serde(default)]
    input: Value,
    #[serde(default)]
    update: Value,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    interrupts: Vec<Interrupt>,
}

#[derive(Deserialize)]
struct Checkpoint {
    #[serde(flatten)]
    meta: CheckpointMeta,
    values: Map<String, Value>,
}

impl RunEvent {
    /// Creates an event of the graph of the run.
    pub(crate) fn root(kind: Kind) -> Self {
        Self { path: SubgraphPath::default(), kind }
    }

    /// Reads the JSON form of an event of a graph; `None` for one that clients do not see.
    ///
    /// # Errors
    /// The event has another form.
    pub(crate) fn read(json: Value) -> serde_json::Result<Option<Self>> {
        let mut path = SubgraphPath::default();
        let mut event = GraphEvent::deserialize(json)?;
        if let GraphEvent::Subgraph { namespace, event: inner } = event {
            path = path_of(&namespace);
            event = GraphEvent::deserialize(inner)?;
        }
        let kind = match event {
            GraphEvent::Values { values } => Kind::Values { values },
            GraphEvent::Update { node, update, cached } => Kind::Update { node, writes: update, cached },
            GraphEvent::Custom { name, data } => Kind::Custom { name, data },
            GraphEvent::Message(part) => Kind::Message(part),
            GraphEvent::Interrupt(interrupt) => Kind::Interrupt(interrupt),
            GraphEvent::Lagged { skipped } => Kind::Failed {
                name: "StreamLagged".to_owned(),
                message: format!(
                    "{skipped} events of this run are lost; the run goes on, read the state of the thread"
                ),
            },
            GraphEvent::Debug { step, timestamp_ms: at_ms, kind, payload } => {
                Self::read_debug(step, at_ms, &kind, payload)?
            }
            GraphEvent::Subgraph { .. }
            | GraphEvent::TaskStart {}
            | GraphEvent::TaskEnd {}
            | GraphEvent::Checkpoint {}
            | GraphEvent::Discarded {} => return Ok(None),
        };
        Ok(Some(Self { path, kind }))
    }

    fn read_debug(step: i64, at_ms: i64, kind: &DebugKind, payload: Value) -> serde_json::Result<Kind> {
        Ok(match kind {
            DebugKind::Checkpoint => {
                let Checkpoint { meta, values } = Checkpoint::deserialize(payload)?;
                Kind::Checkpoint { at_ms, meta: Box::new(meta), values }
            }
            DebugKind::Task => {
                let Task { slot, node, input, .. } = Task::deserialize(payload)?;
                Kind::TaskStart { at_ms, task: TaskInfo { step, node, slot }, input }
            }
            DebugKind::TaskResult => {
                let Task { slot, node, update, error, interrupts, .. } = Task::deserialize(payload)?;
                Kind::TaskEnd { at_ms, task: TaskInfo { step, node, slot }, update, error, interrupts }
            }
        })
    }

    /// Removes the channels that clients do not see, also those of subgraphs.
    pub(crate) fn hide(&mut self, shown: &BTreeSet<String>) {
        match &mut self.kind {
            Kind::Values { values }
            | Kind::Checkpoint { values, .. }
            | Kind::Standing { values, .. }
            | Kind::Paused { values, .. } => {
                values.retain(|channel, _| shown.contains(channel));
            }
            Kind::Update { writes: channels, .. }
            | Kind::TaskStart { input: channels, .. }
            | Kind::TaskEnd { update: channels, .. } => retain(channels, shown),
            Kind::Started { .. }
            | Kind::Answered { .. }
            | Kind::Custom { .. }
            | Kind::Message(_)
            | Kind::Interrupt(_)
            | Kind::Failed { .. } => {}
        }
    }

    /// Returns roughly how many bytes it takes in memory.
    pub(crate) fn size(&self) -> usize {
        let data = match &self.kind {
            Kind::Values { values } | Kind::Paused { values, .. } => of_map(values),
            Kind::Checkpoint { values, .. } | Kind::Standing { values, .. } => of_map(values) + 500,
            Kind::Update { writes, .. } => of_value(writes),
            Kind::Custom { name, data } => of_value(data) + name.len(),
            Kind::Message(part) => of_value(&part.data) + part.id.len(),
            Kind::TaskStart { input, .. } => of_value(input),
            Kind::TaskEnd { update, error, .. } => of_value(update) + error.as_ref().map_or(0, String::len),
            Kind::Interrupt(interrupt) => of_value(&interrupt.question),
            Kind::Failed { message, .. } => message.len(),
            Kind::Answered { interrupts } => interrupts.iter().map(String::len).sum(),
            Kind::Started { .. } => 0,
        };
        data + 200
    }
}

/// Parses the text of a path that is not that of the root.
fn path_of(text: &str) -> SubgraphPath {
    SubgraphPath(text.split('/').map(Segment::parse).collect())
}

fn read_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SubgraphPath, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok(if text.is_empty() { SubgraphPath::default() } else { path_of(&text) })
}

fn of_map(map: &Map<String, Value>) -> usize {
    map.iter().map(|(name, value)| name.len() + 50 + of_value(value)).sum()
}

fn of_value(value: &Value) -> usize {
    32 + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(of_value).sum(),
        Value::Object(map) => of_map(map),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}
