//! Messages that a task streams.

use std::sync::atomic::Ordering;

use serde::Serialize;

use crate::{CheckpointId, Cx, MessageKind, StreamMode, stream::message_events::Said};

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
