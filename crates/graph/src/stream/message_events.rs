//! Messages that nodes stream, in pieces or whole.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;
use superstep_engine::{NodeName, TaskId};

use crate::CheckpointId;

/// The part of a message in an [`Event::Message`](crate::Event::Message).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MessageKind {
    /// The next piece.
    Chunk,
    /// The whole message, in place of any pieces of earlier tasks; this one sent none.
    Full,
    /// No part: the pieces that this task has sent so far are void, and it may start again.
    Discarded,
}

/// A task's part of a message.
pub(crate) struct MessageEvent<'a> {
    pub(crate) task: TaskId,
    pub(crate) attempt: u32,
    pub(crate) node: &'a NodeName,
    pub(crate) checkpoint: Option<CheckpointId>,
    pub(crate) id: &'a str,
    pub(crate) kind: MessageKind,
    pub(crate) data: Value,
}

/// The messages that the tasks of a superstep sent.
#[derive(Default)]
pub(super) struct Sent {
    step: i64,
    /// The ids, by slot and attempt.
    ids: BTreeMap<(u32, u32), BTreeSet<String>>,
}

impl Sent {
    /// Returns whether a part is new, and records it.
    pub(super) fn is_news(&mut self, said: &MessageEvent<'_>) -> bool {
        if said.task.step > self.step {
            *self = Self { step: said.task.step, ids: BTreeMap::new() };
        }
        let ids = self.ids.entry((said.task.slot, said.attempt)).or_default();
        match said.kind {
            MessageKind::Discarded => ids.remove(said.id),
            MessageKind::Chunk if ids.contains(said.id) => true,
            MessageKind::Chunk | MessageKind::Full => ids.insert(said.id.to_owned()),
        }
    }
}
