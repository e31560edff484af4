//! Messages that nodes stream: piece by piece, or whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
};

use serde::Serialize;
use serde_json::Value;
use superstep_engine::{NodeName, TaskId};

use crate::{CheckpointId, Cx, StreamMode};

/// What a [`Event::Message`](crate::Event::Message) is of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MessageKind {
    /// The next piece.
    Chunk,
    /// All of it; there were no pieces.
    Full,
    /// Nothing: the pieces so far are void, and the message may begin anew.
    Discarded,
}

/// What a task says of a message.
pub(crate) struct Said<'a> {
    pub(crate) task: TaskId,
    pub(crate) attempt: u32,
    pub(crate) node: &'a NodeName,
    pub(crate) checkpoint: Option<CheckpointId>,
    pub(crate) id: &'a str,
    pub(crate) kind: MessageKind,
    pub(crate) data: Value,
}

impl Cx {
    /// Sends the next piece of a message to whoever streams the run with [`StreamMode::Messages`]. Does nothing, at no cost,
    /// if nobody does.
    ///
    /// `id` names the message; [`Cx::id`] makes ids that stay the same when the node runs again.
    ///
    /// # Panics
    /// If `chunk` has no JSON form.
    pub fn emit_message(&self, id: &str, chunk: impl Serialize) {
        self.say(id, MessageKind::Chunk, chunk);
    }

    /// Sends a whole message; does nothing if this attempt of the task has sent it already, in pieces or whole.
    ///
    /// So a node need not know whether its model streams: it sends the pieces, if there are any, and then the message.
    ///
    /// # Panics
    /// If `message` has no JSON form.
    pub fn emit_full_message(&self, id: &str, message: impl Serialize) {
        self.say(id, MessageKind::Full, message);
    }

    /// Says that what was sent of a message is void, because whoever wrote it failed half-way. Does nothing if nothing was.
    ///
    /// What a failed attempt of the node itself sent is told apart by its attempt; this is for those that a node makes.
    pub fn discard_message(&self, id: &str) {
        self.say(id, MessageKind::Discarded, ());
    }

    fn say(&self, id: &str, kind: MessageKind, data: impl Serialize) {
        self.heartbeat();
        if let Some(events) = self.run.events(StreamMode::Messages) {
            let data = serde_json::to_value(data).expect("a message has a JSON form");
            let checkpoint = Some(self.run.checkpoint.load(Ordering::Relaxed)).filter(|id| *id > 0);
            let (node, checkpoint) = (self.node(), checkpoint.map(CheckpointId));
            events.message(Said { task: self.task, attempt: self.attempt, node, checkpoint, id, kind, data });
        }
    }
}

/// The messages that the tasks of a superstep sent.
#[derive(Default)]
pub(super) struct Sent {
    step: i64,
    /// By slot and attempt.
    ids: BTreeMap<(u32, u32), BTreeSet<String>>,
}

impl Sent {
    /// Whether something that is said is news, and remembers that it was said.
    pub(super) fn is_news(&mut self, said: &Said<'_>) -> bool {
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
