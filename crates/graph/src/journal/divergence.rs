//! The first divergence of a replay.
//!
//! Start at [`Divergence`].

use std::{fmt, time::Duration};

use serde::Serialize;
use serde_json::Value;
use similar::{DiffTag, TextDiff};
use superstep_checkpoint::SubgraphPath;
use superstep_engine::NodeName;

use crate::CheckpointId;

/// A divergence of a replay from the stored thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Divergence {
    /// The path of the graph, if it is a called one.
    #[serde(rename = "namespace", skip_serializing_if = "SubgraphPath::is_root")]
    pub path: SubgraphPath,
    /// The checkpoint of the task.
    pub checkpoint: CheckpointId,
    /// The superstep.
    pub step: i64,
    /// The node.
    pub node: NodeName,
    /// The data that differs.
    pub at: At,
    /// The kind of the change.
    pub kind: DivergenceKind,
    /// The changes in words, if the compared values are fingerprints or long texts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// The differing part of the stored value; `null` if there was none.
    pub expected: Value,
    /// The new value.
    pub got: Value,
    /// The place of the difference in the value, as a JSON pointer; empty for the whole value.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub place: String,
}

/// The kind of a change that made a replay diverge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DivergenceKind {
    /// The system prompt of a model call.
    Prompt,
    /// Other messages of a model call, such as hints, or the part of the conversation that is sent.
    Messages,
    /// The tools that a model is offered.
    Tools,
    /// The name of the model.
    Model,
    /// The parameters of a model call, such as its temperature.
    Parameters,
    /// The schema of a model's reply.
    Schema,
    /// The input of the graph.
    Input,
    /// The update of a node.
    Update,
    /// The result of folding equal writes.
    Reducer,
    /// The next nodes.
    Route,
    /// The same values, such as the items of sends, in another order.
    Order,
    /// An effect: a new one, a missing one, or one that is planned with other data.
    Effect,
    /// A question.
    Question,
    /// A call of another graph.
    Call,
    /// The failure of a task or of a superstep, or its absence.
    Failure,
}

impl DivergenceKind {
    /// Returns the name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Messages => "messages",
            Self::Tools => "tools",
            Self::Model => "model",
            Self::Parameters => "parameters",
            Self::Schema => "schema",
            Self::Input => "input",
            Self::Update => "update",
            Self::Reducer => "reducer",
            Self::Route => "route",
            Self::Order => "order",
            Self::Effect => "effect",
            Self::Question => "question",
            Self::Call => "call",
            Self::Failure => "failure",
        }
    }
}

impl fmt::Display for DivergenceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A change in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The kind.
    pub kind: DivergenceKind,
    /// The changed part, such as "system prompt" or "tool `add`: description".
    pub what: String,
    /// The lines that differ: removed ones begin with `- `, new ones with `+ `, and equal ones around them with two spaces. Empty
    /// if `what` says it all, or if the recorded text is not stored.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub diff: String,
}

impl Change {
    /// Creates a change without lines.
    pub fn new(kind: DivergenceKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), diff: String::new() }
    }

    /// Creates a change of a text, with its lines.
    pub fn of_text(kind: DivergenceKind, what: impl Into<String>, recorded: &str, now: &str) -> Self {
        Self { kind, what: what.into(), diff: text_diff(recorded, now) }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.diff.lines().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// The data that differs.
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
        let Self { path, checkpoint, step, node, at, kind: _, changes, expected, got, place } = self;
        write!(f, "superstep {step}, after checkpoint {checkpoint}: node `{node}`")?;
        if !path.is_root() {
            write!(f, " in `{path}`")?;
        }
        let verb = if *at == At::Route { "are" } else { "is" };
        write!(f, ": {at} {verb} different")?;
        if !changes.is_empty() {
            let mut kinds: Vec<&str> = changes.iter().map(|change| change.kind.name()).collect();
            kinds.dedup();
            write!(f, " ({})", kinds.join(", "))?;
            let indented = |change: &Change| change.to_string().replace('\n', "\n  ");
            return changes.iter().try_for_each(|change| write!(f, "\n  {}", indented(change)));
        }
        if !place.is_empty() {
            write!(f, " at {place}")?;
        }
        let (expected, got) = (shown(expected, got), shown(got, expected));
        write!(f, "\n  expected {expected}\n  got      {got}")
    }
}

impl Divergence {
    /// Reduces the compared values to the differing part, and shows long texts by their lines.
    pub(crate) fn narrowed(self) -> Self {
        let (mut expected, mut got, mut place, mut kind) = (self.expected, self.got, self.place, self.kind);
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
                (Value::Array(left), Value::Array(right)) if is_reordered(left, right) => {
                    kind = DivergenceKind::Order;
                    break;
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
        let mut changes = self.changes;
        if let (Value::String(recorded), Value::String(now), true) = (&expected, &got, changes.is_empty())
            && [recorded, now].iter().any(|text| text.contains('\n'))
        {
            let what = if place.is_empty() { "text".to_owned() } else { format!("text at {place}") };
            changes.push(Change::of_text(kind, what, recorded, now));
        }
        Self { expected, got, place, kind, changes, ..self }
    }
}

/// Returns whether two lists have the same elements in another order.
fn is_reordered(left: &[Value], right: &[Value]) -> bool {
    if left.len() != right.len() || left == right {
        return false;
    }
    let mut rest: Vec<&Value> = right.iter().collect();
    left.iter().all(|value| match rest.iter().position(|other| *other == value) {
        Some(position) => {
            rest.swap_remove(position);
            true
        }
        None => false,
    })
}

/// The number of equal lines shown around a change.
const AROUND: usize = 1;

/// The time after which a difference is no longer the shortest one. Long texts without common lines would take minutes.
const PATIENCE: Duration = Duration::from_secs(1);

/// The maximum number of lines of a difference.
const MAX_LINES: usize = 60;

/// Returns the lines that differ between two texts, with an equal line before and after them: removed lines begin with `- `, new
/// ones with `+ `. Of a long line, the part around its first change is shown.
pub fn text_diff(recorded: &str, now: &str) -> String {
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(recorded, now);
    let mut lines: Vec<String> = Vec::new();
    for (nth, group) in diff.grouped_ops(AROUND).into_iter().enumerate() {
        if nth > 0 {
            lines.push("  …".to_owned());
        }
        for op in group {
            let of = |line: Option<&str>| line.map(|line| line.trim_end_matches(['\n', '\r']).to_owned());
            let old: Vec<String> = op.old_range().filter_map(|at| of(diff.old_slice(at))).collect();
            let new: Vec<String> = op.new_range().filter_map(|at| of(diff.new_slice(at))).collect();
            if op.tag() == DiffTag::Equal {
                lines.extend(old.iter().map(|line| format!("  {}", excerpt(line, line))));
                continue;
            }
            let other = |lines: &[String], nth: usize| lines.get(nth).cloned().unwrap_or_default();
            lines.extend(
                old.iter().enumerate().map(|(nth, line)| format!("- {}", excerpt(line, &other(&new, nth)))),
            );
            lines.extend(
                new.iter().enumerate().map(|(nth, line)| format!("+ {}", excerpt(line, &other(&old, nth)))),
            );
        }
    }
    if lines.len() > MAX_LINES {
        let more = lines.len() - MAX_LINES;
        lines.truncate(MAX_LINES);
        lines.push(format!("  … {more} more lines"));
    }
    lines.join("\n")
}

/// The maximum length of a displayed value.
const MAX_SHOWN: usize = 300;

/// Returns a readable excerpt of a value: for a long one, the part around its first difference from `other`.
fn shown(value: &Value, other: &Value) -> String {
    if value.is_null() {
        return "nothing".to_owned();
    }
    excerpt(&value.to_string(), &other.to_string())
}

/// Returns a text; of a long one, the part around its first difference from `other`.
fn excerpt(text: &str, other: &str) -> String {
    if text.len() <= MAX_SHOWN {
        return text.to_owned();
    }
    let same = text.bytes().zip(other.bytes()).take_while(|(left, right)| left == right).count();
    let same = if same == text.len() { 0 } else { same };
    let begin = text.floor_char_boundary(same.saturating_sub(MAX_SHOWN / 4));
    let end = text.floor_char_boundary((begin + MAX_SHOWN).min(text.len()));
    let (before, after) = (if begin > 0 { "…" } else { "" }, if end < text.len() { "…" } else { "" });
    format!("{before}{}{after}", &text[begin..end])
}

/// An action of a task with which a replay cannot continue.
#[derive(Clone, Debug)]
pub(crate) enum Deviation {
    /// A required input was not recorded.
    Unknown,
    /// An effect under this name is new. `unused` are the recorded names that the task has not used: one of them may be its former name.
    New { effect: String, unused: Vec<String> },
    /// The recorded value under this name does not fit its current type.
    Unfit { effect: String, recorded: Value },
    /// A compared value differs.
    Other { effect: String, expected: Value, got: Value, changes: Vec<Change> },
    /// The question is new or differs from the recorded one.
    Question { key: String, question: Value },
    /// A call is new.
    Call { key: String },
    /// The number of remaining supersteps is read for the first time.
    Steps,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_difference_is_shown_by_the_part_that_differs() {
        let wrote = |text: &str| json!([{"id": "1", "content": text}]);
        let divergence = Divergence {
            path: SubgraphPath::default(),
            checkpoint: CheckpointId(4),
            step: 3,
            node: "agent".into(),
            at: At::Channel("messages".into()),
            kind: DivergenceKind::Update,
            changes: Vec::new(),
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

    #[test]
    fn a_text_is_shown_by_the_lines_that_differ() {
        let old = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n";
        let new = "one\n2\nthree\nfour\nfive\nsix\nseven\neight\n";
        assert_eq!(text_diff(old, new), "  one\n- two\n+ 2\n  three\n  …\n  seven\n+ eight");
        assert_eq!(text_diff("a", "a"), "");
        assert_eq!(text_diff("", "a"), "+ a");
        let many: String = (0..100).map(|line| format!("{line}\n")).collect();
        let shown = text_diff("", &many);
        assert!(shown.lines().count() == 61 && shown.ends_with("  … 40 more lines"), "{shown}");
    }

    #[test]
    fn the_same_elements_in_another_order_are_an_order() {
        assert!(is_reordered(&[json!(1), json!(2), json!(1)], &[json!(1), json!(1), json!(2)]));
        assert!(!is_reordered(&[json!(1), json!(2), json!(2)], &[json!(1), json!(1), json!(2)]));
        assert!(!is_reordered(&[json!(1)], &[json!(1)]));
    }
}
