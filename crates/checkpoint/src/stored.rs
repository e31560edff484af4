//! The JSON columns of databases, common to all. Stable format: see the fixtures of the crates that store them.

#![expect(missing_docs, reason = "shared with the crates of databases, and not for other use")]

mod history;
mod path;
mod prune;
mod tasks;
mod thread;

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;
use superstep_state::{ChannelValue, RawJson, StoredUpdate};

use crate::{
    AppliedTask, CheckpointError, CheckpointId, Commit, NodeFailure, Question, RecordedTarget, Source,
    TaskKey, TaskRecord, ThreadId,
};

pub use self::{
    history::{HistoryEnd, HistoryReader, PartialHistory},
    path::{ContentRow, Depth, PathReader},
    prune::{Known, PrunePlan},
    tasks::{ChildReader, ChildRow, TaskReader, TaskRow},
    thread::{CHECKSUM, Counts, Damage, MetaRow, StoredThread},
};

/// The stored form of a checkpoint, created outside of the storing thread.
pub struct NewCheckpoint {
    pub thread: ThreadId,
    pub expected: Option<CheckpointId>,
    pub parent: Option<CheckpointId>,
    pub source: Source,
    pub created_ms: i64,
    pub control: String,
    pub metadata: Option<String>,
    pub applied: String,
    pub snapshot: Option<String>,
    /// The slots of the applied tasks with records under the parent.
    pub recorded: Vec<u32>,
    pub records: Vec<(u32, String)>,
}

impl NewCheckpoint {
    pub fn new(
        thread: ThreadId,
        expected: Option<CheckpointId>,
        next: &Commit,
    ) -> Result<Self, CheckpointError> {
        let applied = applied_text(&thread, &next.applied)?;
        let snapshot = match &next.snapshot {
            Some(snapshot) => {
                let channels = snapshot.channels();
                let channels = channels.map_err(|cause| not_json(&thread, "a snapshot", cause))?;
                Some(snapshot_text(&thread, &channels)?)
            }
            None => None,
        };
        let mut records = Vec::with_capacity(next.records.len());
        for (slot, record) in &next.records {
            records.push((*slot, record_text(&thread, *slot, record)?));
        }
        Ok(Self {
            expected,
            parent: next.parent,
            source: next.source,
            created_ms: next.created_ms,
            control: text(&next.control),
            metadata: (!next.metadata.is_empty()).then(|| text(&next.metadata)),
            applied,
            snapshot,
            recorded: next.applied.iter().filter(|task| task.recorded).map(|task| task.slot).collect(),
            records,
            thread,
        })
    }

    /// Creates the error of a commit to another head.
    pub fn conflict(&self) -> CheckpointError {
        CheckpointError::conflict(&self.thread, self.expected)
    }
}

/// The stored form of a record.
pub struct NewRecord {
    pub task: TaskKey,
    pub text: String,
}

impl NewRecord {
    pub fn new(task: TaskKey, record: &TaskRecord) -> Result<Self, CheckpointError> {
        let text = record_text(&task.thread, task.slot, record)?;
        Ok(Self { task, text })
    }
}

impl NewRecord {
    /// Creates the row with further results of a task's effects.
    pub fn of_effects(task: TaskKey, once: BTreeMap<String, RawJson>) -> Result<Self, CheckpointError> {
        Self::new(task, &TaskRecord::Started { attempts: 0, once })
    }
}

/// The stored form of the records of several tasks of a checkpoint.
pub struct NewRecords {
    pub thread: ThreadId,
    pub checkpoint: CheckpointId,
    pub texts: Vec<(u32, String)>,
}

impl NewRecords {
    pub fn new(
        thread: ThreadId,
        checkpoint: CheckpointId,
        records: &[(u32, TaskRecord)],
    ) -> Result<Self, CheckpointError> {
        let text = |(slot, record): &(u32, TaskRecord)| Ok((*slot, record_text(&thread, *slot, record)?));
        let texts = records.iter().map(text).collect::<Result<_, CheckpointError>>()?;
        Ok(Self { thread, checkpoint, texts })
    }
}

/// The slots of the rows with further results of the effects of a task, which come before those of the tasks.
pub struct EffectSlots {
    pub first: i64,
    pub last: i64,
}

impl EffectSlots {
    /// The number of bits that count the rows of one task.
    const BITS: u32 = 24;

    pub fn of(task: u32) -> Self {
        let first = -((i64::from(task) + 1) << Self::BITS);
        Self { first, last: first + (1 << Self::BITS) - 1 }
    }

    /// Returns the task whose effects are in the row with this slot; `None` if it is the row of a task.
    pub fn task_of(slot: i64) -> Option<u32> {
        if slot < 0 { u32::try_from(-(slot + 1) >> Self::BITS).ok() } else { None }
    }
}

/// A request with a known size.
pub trait Bytes {
    /// Returns about how many bytes it stores.
    fn bytes(&self) -> usize;
}

impl Bytes for NewCheckpoint {
    fn bytes(&self) -> usize {
        let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.control.len()
            + optional(&self.metadata)
            + self.applied.len()
            + optional(&self.snapshot)
            + self.records.iter().map(|(_, record)| record.len()).sum::<usize>()
    }
}

impl Bytes for Vec<NewCheckpoint> {
    fn bytes(&self) -> usize {
        self.iter().map(Bytes::bytes).sum()
    }
}

impl Bytes for NewRecords {
    fn bytes(&self) -> usize {
        self.texts.iter().map(|(_, text)| text.len()).sum()
    }
}

impl Bytes for NewRecord {
    fn bytes(&self) -> usize {
        self.text.len()
    }
}

/// JSON that is written entry by entry, so that a text that is JSON already is copied and not parsed.
#[derive(Default)]
struct JsonText(Vec<u8>);

impl JsonText {
    /// Begins an object, in a list or alone.
    fn open(&mut self) {
        let follows = self.0.last() == Some(&b'}');
        self.0.extend_from_slice(if follows { b",{" } else { b"{" });
    }

    fn name(&mut self, name: &str) {
        if self.0.last() != Some(&b'{') {
            self.0.push(b',');
        }
        self.value(name);
        self.0.push(b':');
    }

    fn value(&mut self, value: &(impl Serialize + ?Sized)) {
        serde_json::to_writer(&mut self.0, value).expect(STORABLE);
    }

    /// Adds an entry to the open object.
    fn entry(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        self.name(name);
        self.value(value);
    }

    /// Adds an entry with JSON texts, which are stored as strings.
    fn texts(&mut self, name: &str, texts: &BTreeMap<String, RawJson>) {
        self.name(name);
        self.0.push(b'{');
        for (name, json) in texts {
            self.entry(name, &**json);
        }
        self.0.push(b'}');
    }

    /// Adds an entry that is not the default value of its type.
    fn entry_unless_default<T: Serialize + Default + PartialEq>(&mut self, name: &str, value: &T) {
        if *value != T::default() {
            self.entry(name, value);
        }
    }

    /// Adds an entry with a JSON text.
    ///
    /// # Errors
    /// If the text is not JSON: `part` names it.
    fn json(
        &mut self,
        name: &str,
        json: &RawJson,
        thread: &ThreadId,
        part: impl FnOnce() -> String,
    ) -> Result<(), CheckpointError> {
        self.name(name);
        let json = json.check().map_err(|cause| not_json(thread, &part(), cause))?;
        self.0.extend_from_slice(json.as_bytes());
        Ok(())
    }

    /// Adds the entry of an update; see [`json`](Self::json).
    fn update(
        &mut self,
        update: &StoredUpdate,
        thread: &ThreadId,
        part: impl Fn() -> String,
    ) -> Result<(), CheckpointError> {
        let json = update.json().map_err(|cause| not_json(thread, &part(), cause))?;
        self.json("update", &json, thread, part)
    }

    fn end(mut self, close: &[u8]) -> String {
        self.0.extend_from_slice(close);
        String::from_utf8(self.0).expect("JSON is UTF-8")
    }
}

/// Writes the column `applied`.
fn applied_text(thread: &ThreadId, applied: &[AppliedTask]) -> Result<String, CheckpointError> {
    let update = |task: &AppliedTask| if task.recorded { 0 } else { task.update.bytes() };
    let bytes = |task: &AppliedTask| task.node.as_str().len() + update(task) + 48;
    let mut json = JsonText(Vec::with_capacity(2 + applied.iter().map(bytes).sum::<usize>()));
    json.0.push(b'[');
    for task in applied {
        json.open();
        json.entry("slot", &task.slot);
        json.entry("node", &task.node);
        if !task.recorded {
            let part = || format!("the update of node `{}`, task {},", task.node, task.slot);
            json.update(&task.update, thread, part)?;
        }
        json.0.push(b'}');
    }
    Ok(json.end(b"]"))
}

/// A folded task, in the column `applied`.
#[derive(Deserialize)]
pub struct Applied<'a> {
    pub slot: u32,
    #[serde(borrow)]
    pub node: Cow<'a, str>,
    /// `None` if it is in the task's record.
    #[serde(borrow, default, deserialize_with = "present")]
    pub update: Option<&'a RawValue>,
}

/// Reads the column `applied`.
pub fn applied(json: &[u8]) -> serde_json::Result<Vec<Applied<'_>>> {
    serde_json::from_slice(json)
}

/// Adds the applied tasks of the following checkpoint to the records of the tasks of a checkpoint, by slot, unless they have an end
/// among them.
pub fn add_applied(tasks: &mut Vec<(u32, TaskRecord)>, applied: Vec<Applied<'_>>) {
    for task in applied {
        // Tasks without an update are among the records.
        let Some(update) = task.update else { continue };
        let finished = TaskRecord::Finished { update: update.into(), targets: Vec::new(), failure: None };
        match tasks.binary_search_by_key(&task.slot, |(slot, _)| *slot) {
            Ok(at) if matches!(tasks[at].1, TaskRecord::Finished { .. }) => {}
            Ok(at) => tasks[at].1 = finished,
            Err(at) => tasks.insert(at, (task.slot, finished)),
        }
    }
}

/// The end of a task, in the column `record`. One struct has the fields of all variants, because a tagged
/// enum cannot contain raw JSON.
#[derive(Deserialize)]
struct Record<'a> {
    end: End,
    #[serde(borrow, default, deserialize_with = "present")]
    update: Option<&'a RawValue>,
    targets: Option<Vec<RecordedTarget>>,
    attempts: Option<u32>,
    error: Option<String>,
    questions: Option<Vec<Question>>,
    answers: Option<BTreeMap<String, RawJson>>,
    asked: Option<BTreeMap<String, Question>>,
    once: Option<BTreeMap<String, RawJson>>,
    /// The failure that the node's error handler receives; the other fields then describe the handler.
    failure: Option<Box<NodeFailure>>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum End {
    Finished,
    Started,
    Failed,
    Interrupted,
    Cancelled,
}

/// Reads the column `record`.
pub fn record(json: &[u8]) -> serde_json::Result<TaskRecord> {
    let record: Record<'_> = serde_json::from_slice(json)?;
    let lacks =
        |field: &str| serde::de::Error::custom(format!("a {} task without `{field}`", text(&record.end)));
    let once = record.once.unwrap_or_default();
    let (finished, handled) =
        if matches!(record.end, End::Finished) { (record.failure, None) } else { (None, record.failure) };
    let record = match record.end {
        End::Finished => TaskRecord::Finished {
            update: record.update.ok_or_else(|| lacks("update"))?.into(),
            targets: record.targets.ok_or_else(|| lacks("targets"))?,
            failure: finished,
        },
        End::Started => TaskRecord::Started { attempts: record.attempts.unwrap_or_default(), once },
        End::Failed => TaskRecord::Failed {
            attempts: record.attempts.ok_or_else(|| lacks("attempts"))?,
            error: record.error.ok_or_else(|| lacks("error"))?,
            once,
        },
        End::Interrupted => TaskRecord::Interrupted {
            questions: record.questions.ok_or_else(|| lacks("questions"))?,
            answers: record.answers.ok_or_else(|| lacks("answers"))?,
            asked: record.asked.unwrap_or_default(),
            attempts: record.attempts.unwrap_or_default(),
            error: record.error,
            once,
        },
        End::Cancelled => TaskRecord::Cancelled { once },
    };
    Ok(match handled {
        Some(failure) => TaskRecord::Handled { failure, handler: Box::new(record) },
        None => record,
    })
}

/// Writes the column `record`.
pub fn record_text(thread: &ThreadId, slot: u32, record: &TaskRecord) -> Result<String, CheckpointError> {
    let (failure, record) = match record {
        TaskRecord::Handled { failure, handler } => (Some(failure), &**handler),
        TaskRecord::Finished { failure, .. } => (failure.as_ref(), record),
        other => (None, other),
    };
    let mut json = JsonText::default();
    json.open();
    match record {
        TaskRecord::Finished { update, targets, .. } => {
            json.entry("end", &End::Finished);
            json.update(update, thread, || format!("the recorded update of task {slot}"))?;
            json.entry("targets", targets);
        }
        TaskRecord::Started { attempts, .. } => {
            json.entry("end", &End::Started);
            json.entry_unless_default("attempts", attempts);
        }
        TaskRecord::Failed { attempts, error, .. } => {
            json.entry("end", &End::Failed);
            json.entry("attempts", attempts);
            json.entry("error", error);
        }
        TaskRecord::Interrupted { questions, answers, asked, attempts, error, .. } => {
            json.entry("end", &End::Interrupted);
            json.entry_unless_default("attempts", attempts);
            json.entry_unless_default("error", error);
            json.entry("questions", questions);
            json.texts("answers", answers);
            json.entry_unless_default("asked", asked);
        }
        TaskRecord::Cancelled { .. } | TaskRecord::Handled { .. } => json.entry("end", &End::Cancelled),
    }
    if let Some(once) = record.once().filter(|once| !once.is_empty()) {
        json.texts("once", once);
    }
    if let Some(failure) = failure {
        json.entry("failure", failure);
    }
    Ok(json.end(b"}"))
}

/// Writes the column `snapshot`, an object in the order of the channels.
pub fn snapshot_text(thread: &ThreadId, channels: &[ChannelValue]) -> Result<String, CheckpointError> {
    let mut json = JsonText::default();
    json.open();
    for ChannelValue { channel, json: value } in channels {
        json.json(channel, value, thread, || format!("channel `{channel}`"))?;
    }
    Ok(json.end(b"}"))
}

/// The channels of the column `snapshot`.
struct Snapshot<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// Reads the column `snapshot`.
pub fn snapshot(json: &[u8]) -> serde_json::Result<Vec<ChannelValue>> {
    let Snapshot(channels) = serde_json::from_slice(json)?;
    let owned = |(channel, value): (Cow<'_, str>, &RawValue)| ChannelValue {
        channel: channel.into_owned(),
        json: value.into(),
    };
    Ok(channels.into_iter().map(owned).collect())
}

impl<'de: 'a, 'a> Deserialize<'de> for Snapshot<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Channels;

        impl<'de> Visitor<'de> for Channels {
            type Value = Snapshot<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with the value of every channel")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut channels = Vec::new();
                while let Some(channel) = map.next_entry()? {
                    channels.push(channel);
                }
                Ok(Snapshot(channels))
            }
        }

        deserializer.deserialize_map(Channels)
    }
}

/// Reads the column `source`.
pub fn source(name: &[u8]) -> Result<Source, String> {
    [Source::Input, Source::Loop, Source::Update, Source::Fork]
        .into_iter()
        .find(|source| source.as_str().as_bytes() == name)
        .ok_or_else(|| format!("unknown source `{}`", String::from_utf8_lossy(name)))
}

/// Deserializes an existing field, even if it is `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

/// Creates the error of a value that should be stored as JSON and is not JSON.
fn not_json(thread: &ThreadId, part: &str, cause: serde_json::Error) -> CheckpointError {
    let what = format!("cannot store {part} of thread `{thread}`: it is not JSON");
    CheckpointError::Storage { what, source: Some(cause.into()) }
}

/// Why no stored part fails to become JSON.
const STORABLE: &str = "maps with text keys, and nothing that can fail, become JSON";

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect(STORABLE)
}

#[cfg(test)]
mod tests;
