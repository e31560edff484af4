//! Messages that a task streams.

use std::sync::atomic::Ordering;

use serde::Serialize;

use crate::{
    CheckpointId, Cx, StreamMode,
    stream::{MessageKind, message_events::MessageEvent},
};

impl Cx {
    /// Emits the next piece of a message to streams with [`StreamMode::Messages`]. Does nothing, at no cost,
    /// if the mode is not streamed.
    ///
    /// `id` names the message; [`Cx::id`] makes ids that stay the same when the node runs again.
    ///
    /// # Panics
    /// If `chunk` has no JSON form.
    pub fn emit_message(&self, id: &str, chunk: impl Serialize) {
        self.say(id, MessageKind::Chunk, chunk);
    }

    /// Emits a whole message; does nothing if this attempt of the task has already sent it, in pieces or
    /// whole.
    ///
    /// A node therefore need not know whether its model streams: it sends any pieces, and then the message.
    ///
    /// # Panics
    /// If `message` has no JSON form.
    pub fn emit_full_message(&self, id: &str, message: impl Serialize) {
        self.say(id, MessageKind::Full, message);
    }

    /// Emits that the earlier pieces of a message are void, because its source failed. Does nothing if there
    /// were none.
    ///
    /// Pieces of a failed attempt of the node are identified by the attempt number; this is for retries
    /// inside a node.
    pub fn discard_message(&self, id: &str) {
        self.say(id, MessageKind::Discarded, ());
    }

    fn say(&self, id: &str, kind: MessageKind, data: impl Serialize) {
        self.heartbeat();
        self.passes("message", "");
        if let Some(events) = self.0.run.events(StreamMode::Messages) {
            let data = serde_json::to_value(data).expect("a message has a JSON form");
            let checkpoint = Some(self.0.run.checkpoint.load(Ordering::Relaxed)).filter(|id| *id > 0);
            let (node, checkpoint) = (self.node(), checkpoint.map(CheckpointId));
            events.message(MessageEvent {
                task: self.0.task,
                attempt: self.0.attempt,
                node,
                checkpoint,
                id,
                kind,
                data,
            });
        }
    }
}
