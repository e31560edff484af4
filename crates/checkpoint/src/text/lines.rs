//! The lines of a thread as text. Stable format: see the fixtures in `tests`.
//!
//! Start at [`Line`].

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Map, Value, value::RawValue};
use superstep_engine::{Control, NodeName, Withheld};
use superstep_state::RawJson;

use super::known::unknown;
use crate::{
    NodeFailure, Question, RecordedTarget, Replaced, Source, TaskRecord, Within,
    commit::own::{GRAPH, NONCE, REDACTED, VERSION},
};

/// The version of the format that this program writes, and the newest that it reads.
pub(super) const FORMAT: u64 = 1;

/// The value of the entry `superstep` in the first line.
pub(super) const KIND: &str = "thread";

/// The maximum number of bytes of a [`Mark`], which becomes a part of each checkpoint: the names of a graph and of rules.
const MAX_MARK: usize = 4 << 10;

/// JSON that is copied and not parsed.
pub(super) type Raw = Box<RawValue>;

/// One line.
#[derive(Debug)]
pub(super) enum Line {
    /// The first line.
    Header(Header),
    /// The first line of a subgraph's thread.
    Subgraph(Subgraph),
    Checkpoint(Checkpoint),
    /// A task that the checkpoint above folded, in fold order.
    Applied(Applied),
    /// The value of a channel in the snapshot of the checkpoint above.
    Channel(Channel),
    /// The record of a task that the checkpoint above has to run, by slot.
    Task(Box<Task>),
    /// The last line.
    Total(Total),
}

/// The first line: the format, and the name of the thread.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub(super) superstep: String,
    pub(super) format: u64,
    pub(super) thread: String,
    #[serde(default, skip_serializing_if = "Mark::is_empty")]
    pub(super) mark: Mark,
}

/// The path of a subgraph's thread under the thread of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Subgraph {
    pub(super) subgraph: Vec<String>,
    #[serde(default, skip_serializing_if = "Mark::is_empty")]
    pub(super) mark: Mark,
}

/// The entries of a checkpoint's metadata that nearly all checkpoints of a thread share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mark {
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    graph: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    version: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    nonce: Option<Value>,
    /// The rules by which values were replaced when the thread was exported.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub(super) redacted: Option<Value>,
}

impl Mark {
    /// Moves the mark out of the metadata of a checkpoint.
    pub(super) fn take(metadata: &mut Map<String, Value>) -> Self {
        let mut take = |name| metadata.remove(name);
        Self { graph: take(GRAPH), version: take(VERSION), nonce: take(NONCE), redacted: take(REDACTED) }
    }

    pub(super) fn put(&self, metadata: &mut Map<String, Value>) {
        let Self { graph, version, nonce, redacted } = self;
        for (name, value) in [(GRAPH, graph), (VERSION, version), (NONCE, nonce), (REDACTED, redacted)] {
            if let Some(value) = value {
                metadata.insert(name.to_owned(), value.clone());
            }
        }
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the problem of a mark that is too long to be copied into each checkpoint.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.bytes() {
            bytes if bytes > MAX_MARK => {
                Err(format!("`mark` has {bytes} bytes, and at most {MAX_MARK} can be imported"))
            }
            _ => Ok(()),
        }
    }

    /// Returns its size, which it adds to the metadata of each checkpoint.
    pub(super) fn bytes(&self) -> usize {
        serde_json::to_string(self).map_or(0, |json| json.len())
    }
}

/// A checkpoint without its updates and records.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Checkpoint {
    pub(super) checkpoint: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) parent: Option<u64>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) parent_pruned: bool,
    pub(super) source: Source,
    pub(super) step: i64,
    pub(super) next: Vec<NodeName>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) items: BTreeMap<u32, Raw>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) arrived: BTreeMap<String, Vec<NodeName>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) deferred: Vec<NodeName>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) withheld: BTreeMap<NodeName, Withheld>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) held: BTreeMap<NodeName, Vec<NodeName>>,
    pub(super) created_ms: i64,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(super) metadata: Map<String, Value>,
    /// The mark, if it is not that of the thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mark: Option<Mark>,
    /// `true` if lines with the values of the channels follow.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) snapshot: bool,
    /// The number of the lines about it that follow. `None` if there are none, or if an older program wrote the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lines: Option<u64>,
}

impl Checkpoint {
    pub(super) fn control(&self) -> Control {
        let items = self.items.iter().map(|(slot, item)| (*slot, item.get().to_owned()));
        Control {
            step: self.step,
            next: self.next.clone(),
            items: items.collect(),
            arrived: self.arrived.clone(),
            deferred: self.deferred.clone(),
            withheld: self.withheld.clone(),
            held: self.held.clone(),
        }
    }
}

/// A task that a checkpoint folded. Without an update, and not `recorded`, if its update was pruned.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Applied {
    pub(super) applied: u32,
    pub(super) node: NodeName,
    /// `true` if the update is in the record of the task, under the parent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) recorded: bool,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub(super) update: Option<Raw>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Channel {
    pub(super) channel: String,
    pub(super) value: Raw,
}

/// The record of a task. One struct has the fields of all kinds, because a tagged enum cannot contain raw JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Task {
    pub(super) task: u32,
    /// The node of the task, if the checkpoint has such a task to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<NodeName>,
    end: End,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub(super) update: Option<Raw>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) targets: Option<Vec<Target>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) questions: Option<Vec<QuestionLine>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) answers: Option<BTreeMap<String, Raw>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) asked: BTreeMap<String, QuestionLine>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) once: BTreeMap<String, Raw>,
    /// The failure that the node's error handler receives; the other fields then describe the handler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<Box<NodeFailure>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum End {
    Finished,
    Started,
    Failed,
    Interrupted,
    Cancelled,
}

/// A target: the name of a node, or a worker with its item.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Target {
    Node(NodeName),
    Worker(WorkerItem),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkerItem {
    node: NodeName,
    pub(super) item: Raw,
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // An untagged enum cannot contain raw JSON.
        let raw = Raw::deserialize(deserializer)?;
        if raw.get().starts_with('"') {
            serde_json::from_str(raw.get()).map(Self::Node)
        } else {
            serde_json::from_str(raw.get()).map(Self::Worker)
        }
        .map_err(D::Error::custom)
    }
}

/// A question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuestionLine {
    key: String,
    pub(super) question: Raw,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    schema: Option<Raw>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    within: Option<Within>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) replaces: Option<ReplacedQuestion>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplacedQuestion {
    id: String,
    pub(super) question: Raw,
}

/// The last line, so that a truncated file is noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Total {
    pub(super) total: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Counts {
    pub(super) threads: u64,
    pub(super) checkpoints: u64,
}

impl Line {
    /// Parses a line. The kind of a line is the entry that no other kind has.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let entries: BTreeMap<Cow<'_, str>, &RawValue> =
            serde_json::from_str(text).map_err(|error| reason(&error))?;
        let has = |name| entries.contains_key(name);
        let read = || -> serde_json::Result<Self> {
            Ok(match () {
                () if has("superstep") => Self::Header(serde_json::from_str(text)?),
                () if has("subgraph") => Self::Subgraph(serde_json::from_str(text)?),
                () if has("checkpoint") => Self::Checkpoint(serde_json::from_str(text)?),
                () if has("applied") => Self::Applied(serde_json::from_str(text)?),
                () if has("channel") => Self::Channel(serde_json::from_str(text)?),
                () if has("task") => Self::Task(serde_json::from_str(text)?),
                () if has("total") => Self::Total(serde_json::from_str(text)?),
                () => {
                    let names: Vec<_> = entries.keys().map(|name| format!("`{name}`")).collect();
                    return Err(serde_json::Error::custom(match names.as_slice() {
                        [] => "the line is empty".to_owned(),
                        names => format!("unknown kind of line, with the entries {}", names.join(", ")),
                    }));
                }
            })
        };
        let line = read().map_err(|error| reason(&error))?;
        // Entries of nested values that no type knows would be lost, and those that the end of a task does not have.
        let mut parsed = Vec::new();
        let written = match &line {
            Self::Task(task) => {
                let again: Task = serde_json::from_str(text).map_err(|error| reason(&error))?;
                let known = Task::new(task.task, task.node.clone(), &again.into_record()?);
                known.and_then(|known| Self::Task(Box::new(known)).write(&mut parsed))
            }
            other => other.write(&mut parsed),
        };
        written.map_err(|error| reason(&error))?;
        let parsed = String::from_utf8(parsed).expect("JSON is UTF-8");
        match unknown(text, &parsed).map_err(|error| reason(&error))? {
            None => Ok(line),
            Some(path) => Err(format!("`{path}` is unknown or superfluous")),
        }
    }

    /// Writes the line, without its end.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        match self {
            Self::Header(line) => serde_json::to_writer(out, line),
            Self::Subgraph(line) => serde_json::to_writer(out, line),
            Self::Checkpoint(line) => serde_json::to_writer(out, line),
            Self::Applied(line) => serde_json::to_writer(out, line),
            Self::Channel(line) => serde_json::to_writer(out, line),
            Self::Task(line) => serde_json::to_writer(out, line),
            Self::Total(line) => serde_json::to_writer(out, line),
        }
    }
}

/// Returns the message of an error without the number of its line, which is always 1.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.split_once(" at line 1 column ") {
        Some((text, column)) => format!("{text}, at column {column}"),
        None => text.split(" at line ").next().unwrap_or_default().to_owned(),
    }
}

/// Returns a text that is JSON as one line.
pub(super) fn raw(json: &RawJson) -> serde_json::Result<Raw> {
    // A line break in JSON is space: in strings it is escaped.
    let text = json.check()?.replace(['\n', '\r'], " ");
    RawValue::from_string(text)
}

fn raw_all(values: &BTreeMap<String, RawJson>) -> serde_json::Result<BTreeMap<String, Raw>> {
    values.iter().map(|(name, json)| Ok((name.clone(), raw(json)?))).collect()
}

fn json_all(values: BTreeMap<String, Raw>) -> BTreeMap<String, RawJson> {
    values.into_iter().map(|(name, json)| (name, json.into())).collect()
}

impl Task {
    /// Returns the line of a record.
    pub(super) fn new(slot: u32, node: Option<NodeName>, record: &TaskRecord) -> serde_json::Result<Self> {
        let (failure, record) = match record {
            TaskRecord::Handled { failure, handler } => (Some(failure.clone()), &**handler),
            TaskRecord::Finished { failure, .. } => (failure.clone(), record),
            other => (None, other),
        };
        let mut task = Self {
            task: slot,
            node,
            end: End::Cancelled,
            attempts: None,
            error: None,
            update: None,
            targets: None,
            questions: None,
            answers: None,
            asked: BTreeMap::new(),
            once: record.once().map(raw_all).transpose()?.unwrap_or_default(),
            failure,
        };
        match record {
            TaskRecord::Finished { update, targets, .. } => {
                task.end = End::Finished;
                task.update = Some(raw(&*update.json()?)?);
                task.targets = Some(targets.iter().map(Target::new).collect::<Result<_, _>>()?);
            }
            TaskRecord::Started { attempts, .. } => {
                task.end = End::Started;
                task.attempts = Some(*attempts).filter(|attempts| *attempts > 0);
            }
            TaskRecord::Failed { attempts, error, .. } => {
                task.end = End::Failed;
                task.attempts = Some(*attempts);
                task.error = Some(error.clone());
            }
            TaskRecord::Interrupted { questions, answers, asked, attempts, error, .. } => {
                task.end = End::Interrupted;
                task.attempts = Some(*attempts).filter(|attempts| *attempts > 0);
                task.error.clone_from(error);
                task.questions = Some(questions.iter().map(QuestionLine::new).collect::<Result<_, _>>()?);
                task.answers = Some(raw_all(answers)?);
                let asked = asked.iter().map(|(key, asked)| Ok((key.clone(), QuestionLine::new(asked)?)));
                task.asked = asked.collect::<serde_json::Result<_>>()?;
            }
            TaskRecord::Cancelled { .. } | TaskRecord::Handled { .. } => {}
        }
        Ok(task)
    }

    /// Returns whether the task will not run again.
    pub(super) fn is_finished(&self) -> bool {
        self.end == End::Finished
    }

    pub(super) fn into_record(self) -> Result<TaskRecord, String> {
        let Self {
            task: _,
            node: _,
            end,
            attempts,
            error,
            update,
            targets,
            questions,
            answers,
            asked,
            once,
            failure,
        } = self;
        let lacks = |field: &str| {
            let end = serde_json::to_string(&end).unwrap_or_default();
            format!("a task with the end {end} needs `{field}`")
        };
        let once = json_all(once);
        let (finished, failure) = if end == End::Finished { (failure, None) } else { (None, failure) };
        let record = match end {
            End::Finished => TaskRecord::Finished {
                update: RawJson::from(update.ok_or_else(|| lacks("update"))?).into(),
                targets: targets.ok_or_else(|| lacks("targets"))?.into_iter().map(Target::into).collect(),
                failure: finished,
            },
            End::Started => TaskRecord::Started { attempts: attempts.unwrap_or_default(), once },
            End::Failed => TaskRecord::Failed {
                attempts: attempts.ok_or_else(|| lacks("attempts"))?,
                error: error.ok_or_else(|| lacks("error"))?,
                once,
            },
            End::Interrupted => TaskRecord::Interrupted {
                questions: questions
                    .ok_or_else(|| lacks("questions"))?
                    .into_iter()
                    .map(QuestionLine::into)
                    .collect(),
                answers: json_all(answers.ok_or_else(|| lacks("answers"))?),
                asked: asked.into_iter().map(|(key, asked)| (key, asked.into())).collect(),
                attempts: attempts.unwrap_or_default(),
                error,
                once,
            },
            End::Cancelled => TaskRecord::Cancelled { once },
        };
        Ok(match failure {
            Some(failure) => TaskRecord::Handled { failure, handler: Box::new(record) },
            None => record,
        })
    }
}

impl Target {
    fn new(target: &RecordedTarget) -> serde_json::Result<Self> {
        Ok(match target {
            RecordedTarget::Node(node) => Self::Node(node.clone()),
            RecordedTarget::Send { node, item } => {
                Self::Worker(WorkerItem { node: node.clone(), item: raw(item)? })
            }
        })
    }
}

impl From<Target> for RecordedTarget {
    fn from(target: Target) -> Self {
        match target {
            Target::Node(node) => Self::Node(node),
            Target::Worker(WorkerItem { node, item }) => Self::Send { node, item: item.into() },
        }
    }
}

impl QuestionLine {
    fn new(question: &Question) -> serde_json::Result<Self> {
        let Question { key, question, schema, within, replaces } = question;
        let earlier = |earlier: &Replaced| {
            Ok::<_, serde_json::Error>(ReplacedQuestion {
                id: earlier.id.clone(),
                question: raw(&earlier.question)?,
            })
        };
        Ok(Self {
            key: key.clone(),
            question: raw(question)?,
            schema: schema.as_ref().map(raw).transpose()?,
            within: within.clone(),
            replaces: replaces.as_ref().map(earlier).transpose()?,
        })
    }
}

impl From<QuestionLine> for Question {
    fn from(asked: QuestionLine) -> Self {
        let QuestionLine { key, question, schema, within, replaces } = asked;
        let earlier =
            |earlier: ReplacedQuestion| Replaced { id: earlier.id, question: earlier.question.into() };
        Self {
            key,
            question: question.into(),
            schema: schema.map(RawJson::from),
            within,
            replaces: replaces.map(earlier),
        }
    }
}

/// Deserializes an existing field, even if it is `null`.
fn some<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

fn is_false(flag: &bool) -> bool {
    !*flag
}
