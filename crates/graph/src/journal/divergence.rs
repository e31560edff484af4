//! The first divergence of a replay.
//!
//! Start at [`Divergence`].

use std::fmt;

use serde::Serialize;
use serde_json::Value;
use superstep_checkpoint::SubgraphPath;
use superstep_engine::NodeName;

use crate::CheckpointId;

/// A divergence of a replay from the stored thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Divergence {
    /// The path of the graph, if it is a called one.
    #[serde(skip_serializing_if = "SubgraphPath::is_root")]
    pub namespace: SubgraphPath,
    /// The checkpoint of the task.
    pub checkpoint: CheckpointId,
    /// The superstep.
    pub step: i64,
    /// The node.
    pub node: NodeName,
    /// The kind of data that differs.
    pub at: At,
    /// The differing part of the stored value; `null` if there was none.
    pub expected: Value,
    /// The new value.
    pub got: Value,
    /// The place of the difference in the value, as a JSON pointer; empty for the whole value.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub place: String,
}

/// The kind of data that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "what", content = "name")]
#[non_exhaustive]
pub enum At {
    /// The node's write to this channel.
    Channel(String),
    /// The value of this channel, although its writes are equal.
    State(String),
    /// The next nodes of the thread.
    Route,
    /// The effect of this name: [`Cx::compared`](crate::Cx::compared), [`Cx::recorded`](crate::Cx::recorded)
    /// or [`Cx::once`](crate::Cx::once).
    Effect(String),
    /// The question under this key.
    Question(String),
    /// The call under this key.
    Call(String),
    /// The failure of the task, or of the superstep.
    Failure,
}

impl At {
    /// Returns the channel, if a channel differs.
    pub fn channel(&self) -> Option<&str> {
        match self {
            Self::Channel(name) | Self::State(name) => Some(name),
            _ => None,
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channel(name) => write!(f, "the write to channel `{name}`"),
            Self::State(name) => write!(f, "the value of channel `{name}` after the write"),
            Self::Route => f.write_str("the next nodes"),
            Self::Effect(name) => write!(f, "the effect `{name}`"),
            Self::Question(key) => write!(f, "the question `{key}`"),
            Self::Call(key) if key.is_empty() => f.write_str("the graph that it calls"),
            Self::Call(key) => write!(f, "the graph that it calls as `{key}`"),
            Self::Failure => f.write_str("how it ends"),
        }
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, checkpoint, step, node, at, expected, got, place } = self;
        write!(f, "superstep {step}, after checkpoint {checkpoint}: node `{node}`")?;
        if !namespace.is_root() {
            write!(f, " in `{namespace}`")?;
        }
        write!(f, ": {at} is different")?;
        if !place.is_empty() {
            write!(f, " at {place}")?;
        }
        let (expected, got) = (shown(expected, got), shown(got, expected));
        write!(f, "\n  expected {expected}\n  got      {got}")
    }
}

impl Divergence {
    /// Reduces the compared values to the differing part.
    pub(crate) fn narrowed(self) -> Self {
        let (mut expected, mut got, mut place) = (self.expected, self.got, self.place);
        loop {
            let key = match (&expected, &got) {
                (Value::Object(left), Value::Object(right)) if left.len() == right.len() => {
                    let mut differ = left.iter().filter(|(name, value)| right.get(*name) != Some(value));
                    match (differ.next(), differ.next()) {
                        (Some((name, _)), None) if right.contains_key(name) => {
                            name.replace('~', "~0").replace('/', "~1")
                        }
                        _ => break,
                    }
                }
                (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
                    match left.iter().zip(right).position(|(left, right)| left != right) {
                        Some(position) => position.to_string(),
                        None => break,
                    }
                }
                _ => break,
            };
            let pointer = format!("/{key}");
            let part = |value: &Value| value.pointer(&pointer).cloned().unwrap_or_default();
            (expected, got) = (part(&expected), part(&got));
            place.push_str(&pointer);
        }
        Self { expected, got, place, ..self }
    }
}

/// The maximum length of a displayed value.
const SHOWN: usize = 300;

/// Returns a readable excerpt of a value: for a long one, the part around its first difference from `other`.
fn shown(value: &Value, other: &Value) -> String {
    if value.is_null() {
        return "nothing".to_owned();
    }
    let (text, other) = (value.to_string(), other.to_string());
    if text.len() <= SHOWN {
        return text;
    }
    let same = text.bytes().zip(other.bytes()).take_while(|(left, right)| left == right).count();
    let begin = text.floor_char_boundary(same.saturating_sub(SHOWN / 4));
    let end = text.floor_char_boundary((begin + SHOWN).min(text.len()));
    let (before, after) = (if begin > 0 { "…" } else { "" }, if end < text.len() { "…" } else { "" });
    format!("{before}{}{after}", &text[begin..end])
}

/// An action of a task with which a replay cannot continue.
#[derive(Clone, Debug)]
pub(crate) enum Astray {
    /// A required input was not recorded.
    Unknown,
    /// An effect under this name is new, or a recorded one is missing.
    New { effect: String },
    /// The recorded value under this name does not fit its current type.
    Unfit { effect: String, recorded: Value },
    /// A compared value differs.
    Other { effect: String, expected: Value, got: Value },
    /// The question is new or differs from the recorded one.
    Question { key: String, question: Value },
    /// A call is new.
    Call { key: String },
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_difference_is_shown_by_the_part_that_differs() {
        let wrote = |text: &str| json!([{"id": "1", "content": text}]);
        let divergence = Divergence {
            namespace: SubgraphPath::default(),
            checkpoint: CheckpointId(4),
            step: 3,
            node: "agent".into(),
            at: At::Channel("messages".into()),
            expected: wrote("five"),
            got: wrote("six"),
            place: String::new(),
        };
        assert_eq!(
            divergence.narrowed().to_string(),
            "superstep 3, after checkpoint 4: node `agent`: the write to channel `messages` is different at \
             /0/content\n  expected \"five\"\n  got      \"six\""
        );
    }

    #[test]
    fn of_long_values_the_place_is_shown_where_they_part() {
        let long = |end: &str| Value::from(format!("{}{end}", "é".repeat(400)));
        let text = shown(&long("five"), &long("six"));
        assert!(text.starts_with('…') && text.ends_with("éfive\""), "{text}");
    }
}
