//! The line of an event.
//!
//! Start at [`Line::of`].

use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use superstep_graph::{
    Event, Interrupt, State,
    checkpoint::{CheckpointMeta, Segment, SubgraphPath},
    node::NodeName,
};

use super::{json, names, values};
use crate::nodes::line;

/// An event, with its values as text. It is also read from the JSON form, which the events of subgraphs have.
#[derive(Deserialize)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub(super) enum Line {
    Values {
        step: i64,
        values: Text,
    },
    Update {
        step: i64,
        node: NodeName,
        update: Text,
    },
    Custom {
        node: NodeName,
        name: String,
        data: Text,
    },
    Message {
        node: NodeName,
        id: String,
        kind: Value,
        data: Text,
    },
    TaskStart {
        step: i64,
        node: NodeName,
        attempt: u32,
    },
    TaskEnd {
        step: i64,
        node: NodeName,
        attempt: u32,
        error: Option<String>,
    },
    Checkpoint(CheckpointMeta),
    Debug {
        step: i64,
        kind: Value,
        payload: Value,
    },
    Lagged {
        skipped: u64,
    },
    Interrupt(Interrupt),
    Discarded {
        nodes: Vec<NodeName>,
    },
    #[serde(skip)]
    Subgraph {
        path: SubgraphPath,
        line: Box<Line>,
    },
    /// An event without a line of its own.
    #[serde(skip)]
    Other(Text),
}

/// JSON in one line.
pub(super) struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self(line(&value)))
    }
}

impl Line {
    pub(super) fn of<S: State>(event: &Event<S>) -> Self {
        match event {
            // As they are typed, their channels have the order of the state's fields.
            Event::Values { step, state, .. } => Self::Values { step: *step, values: Text(values(state)) },
            Event::Update { step, node, update, .. } => {
                Self::Update { step: *step, node: node.clone(), update: Text(json(update)) }
            }
            Event::Subgraph { path, event } => {
                Self::Subgraph { path: path.clone(), line: Box::new(Self::read(event)) }
            }
            event => Self::read(&serde_json::to_value(event).expect("an event has a JSON form")),
        }
    }

    fn read(event: &Value) -> Self {
        Self::deserialize(event).unwrap_or_else(|_| Self::Other(Text(line(event))))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Values { step, values } => write!(f, "{step} = {values}"),
            // Of a subgraph's update without any of the requested channels.
            Self::Update { step, node, update } if update.0 == "null" => write!(f, "{step} {node} → {{}}"),
            Self::Update { step, node, update } => write!(f, "{step} {node} → {update}"),
            Self::Custom { node, name, data } => write!(f, "  {node} · {name} {data}"),
            Self::Message { node, id, kind, .. } if kind == "discarded" => {
                write!(f, "  {node} · message {id} is void")
            }
            Self::Message { node, id, data, .. } => write!(f, "  {node} · message {id} {data}"),
            Self::TaskStart { step, node, attempt } => write!(f, "{step} {node} begins{}", Again(*attempt)),
            Self::TaskEnd { step, node, attempt, error } => match error {
                None => write!(f, "{step} {node} ends{}", Again(*attempt)),
                Some(error) => write!(f, "{step} {node} fails{}: {error}", Again(*attempt)),
            },
            Self::Checkpoint(meta) => {
                let (source, step) = (meta.source.as_str(), meta.control.step);
                write!(f, "{step} stored ({source}), next {}", names(&meta.control.next))
            }
            Self::Debug { step, kind, payload } => {
                let kind = kind.as_str().unwrap_or("event");
                write!(f, "{step} debug {kind} {}", line(&repeatable(payload)))
            }
            Self::Lagged { skipped } => write!(f, "{skipped} events are lost"),
            Self::Interrupt(Interrupt { node, key, question, .. }) => {
                write!(f, "{node} asks {key} {}", line(question))
            }
            Self::Discarded { nodes } => write!(f, "discarded {}", names(nodes)),
            Self::Subgraph { path, line } => {
                for (nth, segment) in path.0.iter().enumerate() {
                    let slash = if nth == 0 { "" } else { "/" };
                    write!(f, "{slash}{}", CallOf(segment))?;
                }
                write!(f, " │ {line}")
            }
            Self::Other(text) => write!(f, "{text}"),
        }
    }
}

/// Returns the payload of a debug event without times, the numbers of checkpoints, and the ids of questions.
fn repeatable(payload: &Value) -> Value {
    let mut payload = payload.clone();
    if let Value::Object(payload) = &mut payload {
        for name in ["id", "parent", "created_ms"] {
            payload.remove(name);
        }
        let questions = payload.get_mut("interrupts").and_then(Value::as_array_mut).into_iter().flatten();
        questions.filter_map(Value::as_object_mut).for_each(|question| drop(question.remove("id")));
    }
    payload
}

/// The call of a subgraph: the node, the slot of its task, and the key, without the number of the checkpoint.
struct CallOf<'a>(&'a Segment);

impl fmt::Display for CallOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Segment { node, task, key } = self.0;
        match task {
            Some((slot, _)) => write!(f, "{node}:{slot}")?,
            None => return write!(f, "{}", self.0),
        }
        if key.is_empty() { Ok(()) } else { write!(f, ":{key}") }
    }
}

/// The number of an attempt after the first one.
struct Again(u32);

impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 1 { Ok(()) } else { write!(f, " (attempt {})", self.0) }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
