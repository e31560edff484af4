//! The JSON columns. A promise: see `tests/fixtures`.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;
use superstep_checkpoint::{
    CheckpointError, CheckpointId, Commit, NodeFailure, Question, RecordedTarget, Source, TaskKey,
    TaskRecord, ThreadId,
};
use superstep_state::ChannelValue;

use crate::error;

/// The stored form of a checkpoint, created outside of the storing thread.
pub(crate) struct NewCheckpoint {
    pub(crate) thread: ThreadId,
    pub(crate) expected: Option<CheckpointId>,
    pub(crate) parent: Option<CheckpointId>,
    pub(crate) source: Source,
    pub(crate) created_ms: i64,
    pub(crate) control: String,
    pub(crate) metadata: Option<String>,
    pub(crate) applied: String,
    pub(crate) snapshot: Option<String>,
    /// The slots of the applied tasks with records under the parent.
    pub(crate) recorded: Vec<u32>,
    pub(crate) records: Vec<(u32, String)>,
}

impl NewCheckpoint {
    pub(crate) fn new(
        thread: ThreadId,
        expected: Option<CheckpointId>,
        next: &Commit,
    ) -> Result<Self, CheckpointError> {
        let applied = next.applied.iter().map(|task| {
            let update = if task.recorded { None } else { Some(raw(&task.update)) };
            let update = update.transpose().map_err(|cause| {
                error::not_json(
                    &thread,
                    &format!("the update of node `{}`, task {},", task.node, task.slot),
                    cause,
                )
            })?;
            Ok(Applied { slot: task.slot, node: Cow::Borrowed(task.node.as_str()), update })
        });
        let applied = applied.collect::<Result<Vec<_>, CheckpointError>>()?;
        let snapshot = match &next.snapshot {
            Some(channels) => Some(snapshot_text(&thread, channels)?),
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
            applied: text(&applied),
            snapshot,
            recorded: next.applied.iter().filter(|task| task.recorded).map(|task| task.slot).collect(),
            records,
            thread,
        })
    }
}

/// The stored form of a record.
pub(crate) struct NewRecord {
    pub(crate) task: TaskKey,
    pub(crate) text: String,
}

impl NewRecord {
    pub(crate) fn new(task: TaskKey, record: &TaskRecord) -> Result<Self, CheckpointError> {
        let text = record_text(&task.thread, task.slot, record)?;
        Ok(Self { task, text })
    }
}

/// A request with a known size.
pub(crate) trait Bytes {
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

impl Bytes for NewRecord {
    fn bytes(&self) -> usize {
        self.text.len()
    }
}

/// A folded task, in the column `applied`.
#[derive(Serialize, Deserialize)]
pub(crate) struct Applied<'a> {
    pub(crate) slot: u32,
    #[serde(borrow)]
    pub(crate) node: Cow<'a, str>,
    /// `None` if it is in the task's record.
    #[serde(borrow, default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) update: Option<&'a RawValue>,
}

/// Reads the column `applied`.
pub(crate) fn applied(json: &[u8]) -> serde_json::Result<Vec<Applied<'_>>> {
    serde_json::from_slice(json)
}

/// The end of a task, in the column `record`. One struct has the fields of all variants, because a tagged
/// enum cannot contain raw JSON.
#[derive(Serialize, Deserialize)]
struct Record<'a> {
    end: End,
    #[serde(borrow, default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    update: Option<&'a RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    targets: Option<Cow<'a, [RecordedTarget]>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    questions: Option<Cow<'a, [Question]>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answers: Option<Cow<'a, BTreeMap<String, String>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<Cow<'a, BTreeMap<String, Question>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    once: Option<Cow<'a, BTreeMap<String, String>>>,
    /// The failure that the node's error handler receives; the other fields then describe the handler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<Cow<'a, NodeFailure>>,
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
pub(crate) fn record(json: &[u8]) -> serde_json::Result<TaskRecord> {
    let record: Record<'_> = serde_json::from_slice(json)?;
    let lacks =
        |field: &str| serde::de::Error::custom(format!("a {} task without `{field}`", text(&record.end)));
    let once = record.once.map(Cow::into_owned).unwrap_or_default();
    let failure = record.failure.map(|failure| Box::new(failure.into_owned()));
    let (finished, told) =
        if matches!(record.end, End::Finished) { (failure, None) } else { (None, failure) };
    let record = match record.end {
        End::Finished => TaskRecord::Finished {
            update: record.update.ok_or_else(|| lacks("update"))?.into(),
            targets: record.targets.ok_or_else(|| lacks("targets"))?.into_owned(),
            failure: finished,
        },
        End::Started => TaskRecord::Started { attempts: record.attempts.unwrap_or_default(), once },
        End::Failed => TaskRecord::Failed {
            attempts: record.attempts.ok_or_else(|| lacks("attempts"))?,
            error: record.error.ok_or_else(|| lacks("error"))?.into_owned(),
            once,
        },
        End::Interrupted => TaskRecord::Interrupted {
            questions: record.questions.ok_or_else(|| lacks("questions"))?.into_owned(),
            answers: record.answers.ok_or_else(|| lacks("answers"))?.into_owned(),
            asked: record.asked.map(Cow::into_owned).unwrap_or_default(),
            attempts: record.attempts.unwrap_or_default(),
            error: record.error.map(Cow::into_owned),
            once,
        },
        End::Cancelled => TaskRecord::Cancelled { once },
    };
    Ok(match told {
        Some(failure) => TaskRecord::Handled { failure, handler: Box::new(record) },
        None => record,
    })
}

pub(crate) fn record_text(
    thread: &ThreadId,
    slot: u32,
    record: &TaskRecord,
) -> Result<String, CheckpointError> {
    let nothing = Record {
        end: End::Cancelled,
        update: None,
        targets: None,
        attempts: None,
        error: None,
        questions: None,
        answers: None,
        asked: None,
        once: record.once().filter(|once| !once.is_empty()).map(Cow::Borrowed),
        failure: None,
    };
    let (told, record) = match record {
        TaskRecord::Handled { failure, handler } => (Some(failure), &**handler),
        TaskRecord::Finished { failure, .. } => (failure.as_ref(), record),
        other => (None, other),
    };
    let record = match record {
        TaskRecord::Finished { update, targets, .. } => Record {
            end: End::Finished,
            update: Some(raw(update).map_err(|cause| {
                error::not_json(thread, &format!("the recorded update of task {slot}"), cause)
            })?),
            targets: Some(Cow::Borrowed(targets)),
            ..nothing
        },
        TaskRecord::Started { attempts, .. } => {
            Record { end: End::Started, attempts: (*attempts > 0).then_some(*attempts), ..nothing }
        }
        TaskRecord::Failed { attempts, error, .. } => Record {
            end: End::Failed,
            attempts: Some(*attempts),
            error: Some(Cow::Borrowed(error)),
            ..nothing
        },
        TaskRecord::Interrupted { questions, answers, asked, attempts, error, .. } => Record {
            end: End::Interrupted,
            questions: Some(Cow::Borrowed(questions)),
            answers: Some(Cow::Borrowed(answers)),
            asked: (!asked.is_empty()).then_some(Cow::Borrowed(asked)),
            attempts: (*attempts > 0).then_some(*attempts),
            error: error.as_deref().map(Cow::Borrowed),
            ..nothing
        },
        TaskRecord::Cancelled { .. } | TaskRecord::Handled { .. } => nothing,
    };
    let failure = told.map(|failure| Cow::Borrowed(&**failure));
    Ok(text(&Record { failure, ..record }))
}

/// The channels of the column `snapshot`, an object in the order of the channels.
struct Snapshot<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Snapshot<'a> {
    fn new(thread: &ThreadId, channels: &'a [ChannelValue]) -> Result<Self, CheckpointError> {
        let channels = channels.iter().map(|channel| {
            let value = raw(&channel.json)
                .map_err(|cause| error::not_json(thread, &format!("channel `{}`", channel.channel), cause))?;
            Ok((Cow::Borrowed(channel.channel.as_str()), value))
        });
        Ok(Self(channels.collect::<Result<_, CheckpointError>>()?))
    }
}

/// Writes the column `snapshot`.
pub(crate) fn snapshot_text(thread: &ThreadId, channels: &[ChannelValue]) -> Result<String, CheckpointError> {
    Ok(text(&Snapshot::new(thread, channels)?))
}

/// Reads the column `snapshot`.
pub(crate) fn snapshot(json: &[u8]) -> serde_json::Result<Vec<ChannelValue>> {
    let Snapshot(channels) = serde_json::from_slice(json)?;
    let owned = |(channel, value): (Cow<'_, str>, &RawValue)| ChannelValue {
        channel: channel.into_owned(),
        json: value.into(),
    };
    Ok(channels.into_iter().map(owned).collect())
}

impl Serialize for Snapshot<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(channel, value)| (channel, value)))
    }
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
pub(crate) fn source(name: &str) -> Result<Source, String> {
    [Source::Input, Source::Loop, Source::Update, Source::Fork]
        .into_iter()
        .find(|source| source.as_str() == name)
        .ok_or_else(|| format!("unknown source `{name}`"))
}

/// Deserializes an existing field, even if it is `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

fn raw(json: &str) -> serde_json::Result<&RawValue> {
    serde_json::from_str(json)
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("maps with text keys, and nothing that can fail, become JSON")
}
