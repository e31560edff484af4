//! The events of a running turn as those of its session.
//!
//! Start at [`Projection`].

use serde::Deserialize;
use superstep::{
    Event,
    agent::{AgentEvent, AgentState, state::ToolStatus},
    llm::{Message, Role},
    stream::MessageKind,
};

use crate::live::{
    calls::{CallStatus, Calls, plan},
    event::{MessageView, Said, SessionEvent, UsageView},
    log::EventLog,
    notices::notice,
    transcript::transcript,
};

/// The message whose pieces arrive.
#[derive(Default)]
struct Streamed {
    id: String,
    thought: String,
    text: String,
}

/// Converts the events of a turn.
pub(super) struct Projection {
    pub(super) calls: Calls,
    /// A request was reduced.
    pub(super) is_compacted: bool,
    is_raw: bool,
    usage: Option<UsageView>,
    streamed: Streamed,
    log: EventLog,
}

/// A piece of a message.
#[derive(Deserialize)]
struct Piece {
    #[serde(default)]
    content: String,
    #[serde(default)]
    reasoning: String,
}

impl Projection {
    pub(super) fn new(calls: Calls, log: EventLog, is_raw: bool) -> Self {
        Self { calls, is_compacted: false, is_raw, usage: None, streamed: Streamed::default(), log }
    }

    pub(super) fn event(&mut self, event: &Event<AgentState>) {
        match event {
            Event::Message { id, kind, data, .. } => self.message(id, *kind, data),
            Event::Custom { name, data, .. } if self.is_raw => {
                self.log.push(SessionEvent::Agent { name, data: data.clone() });
            }
            Event::Custom { name, data, .. } => {
                if let Some(event) = AgentEvent::read(name, data) {
                    self.agent_event(&event);
                }
            }
            Event::Checkpoint(meta) => {
                self.log.push(SessionEvent::Checkpoint { id: meta.id, next: meta.control.next.clone() });
            }
            Event::Discarded { nodes } => {
                let failed = self.calls.fail_open("a new message replaced it");
                failed.into_iter().for_each(|call| self.log.push(SessionEvent::Call(call)));
                self.log.push(SessionEvent::Discarded(nodes.clone()));
            }
            Event::Lagged { skipped } => self.log.push(SessionEvent::Lagged { skipped: *skipped }),
            _ => {}
        }
    }

    /// Emits the usage if it has changed.
    pub(super) fn usage(&mut self, usage: UsageView) {
        if self.usage.as_ref() != Some(&usage) {
            self.log.push(SessionEvent::Usage(usage.clone()));
            self.usage = Some(usage);
        }
    }

    /// Emits the messages of another process, as if they were streamed.
    pub(super) fn stored<'a>(&mut self, messages: impl IntoIterator<Item = &'a Message>) {
        for event in transcript(messages, &mut self.calls) {
            if let SessionEvent::Message(MessageView { id, is_user: false, thought, text, .. }) = &event {
                self.piece(id, Said::Thought, thought.clone());
                self.piece(id, Said::Text, text.clone());
            }
            self.log.push(event);
        }
    }

    fn message(&mut self, id: &str, kind: MessageKind, data: &serde_json::Value) {
        match kind {
            MessageKind::Chunk => {
                let Ok(Piece { content, reasoning }) = Piece::deserialize(data) else { return };
                self.piece(id, Said::Thought, reasoning);
                self.piece(id, Said::Text, content);
            }
            MessageKind::Full => {
                if let Ok(message) = Message::deserialize(data)
                    && message.role == Role::Assistant
                {
                    self.whole(id, &message);
                }
            }
            MessageKind::Discarded => self.void(id),
            _ => {}
        }
    }

    fn piece(&mut self, id: &str, said: Said, piece: String) {
        if piece.is_empty() {
            return;
        }
        if self.streamed.id != id {
            self.streamed = Streamed { id: id.to_owned(), ..Streamed::default() };
        }
        match said {
            Said::Text => self.streamed.text.push_str(&piece),
            Said::Thought => self.streamed.thought.push_str(&piece),
        }
        self.log.push(SessionEvent::Piece { message: id.to_owned(), said, piece });
    }

    fn void(&mut self, id: &str) {
        if self.streamed.id == id {
            self.streamed = Streamed::default();
            self.log.push(SessionEvent::Void { message: id.to_owned() });
        }
    }

    /// Emits a message that had no pieces.
    fn whole(&mut self, id: &str, message: &Message) {
        self.piece(id, Said::Thought, message.reasoning.clone());
        self.piece(id, Said::Text, message.content.clone());
    }

    /// Emits the message whose pieces are complete: the model's answer is accepted.
    fn complete(&self) {
        let Streamed { id, thought, text } = &self.streamed;
        if thought.is_empty() && text.is_empty() {
            return;
        }
        self.log.push(SessionEvent::Message(MessageView {
            id: id.clone(),
            is_user: false,
            thought: thought.clone(),
            text: text.clone(),
            media: Vec::new(),
            is_cut_off: false,
        }));
    }

    fn agent_event(&mut self, event: &AgentEvent) {
        self.is_compacted |= matches!(event, AgentEvent::Compacted { .. });
        match event {
            AgentEvent::NodeEnd { .. } => self.complete(),
            AgentEvent::ToolStart { tool, args, id } => {
                let call = self.calls.change(id, tool, args, CallStatus::Running);
                self.log.push(SessionEvent::Call(call));
                if let Some(plan) = plan(tool, args) {
                    self.log.push(SessionEvent::Plan(plan));
                }
            }
            AgentEvent::ToolOutput { id, chunk, truncated, .. } => {
                if let Some(key) = self.calls.key(id) {
                    let (key, chunk, truncated) = (key.to_owned(), chunk.clone(), *truncated);
                    self.log.push(SessionEvent::Output { key, chunk, truncated });
                }
            }
            AgentEvent::ToolEnd { tool, id, result, status } => {
                let status = match status {
                    ToolStatus::Completed => CallStatus::Done,
                    _ => CallStatus::Failed,
                };
                self.log.push(SessionEvent::Call(self.calls.end(id, tool, result, status)));
            }
            AgentEvent::ToolSkipped { tool, id, reason } => {
                let call = self.calls.end(id, tool, &format!("not run: {reason}"), CallStatus::Failed);
                self.log.push(SessionEvent::Call(call));
            }
            AgentEvent::FilesChanged(changes) => self.log.push(SessionEvent::Files(changes.clone())),
            AgentEvent::Steered { id, text } => {
                self.log.push(SessionEvent::Steered { message: id.clone(), text: text.clone() });
            }
            event => {
                if let Some(notice) = notice(event) {
                    self.log.push(SessionEvent::Notice(notice));
                }
            }
        }
    }
}

pub(super) fn view(message: &Message, id: &str) -> MessageView {
    MessageView {
        id: id.to_owned(),
        is_user: message.role == Role::User,
        thought: message.reasoning.clone(),
        text: message.content.clone(),
        media: message.media.clone(),
        is_cut_off: message.interrupted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use superstep::node::NodeName;

    use super::*;
    use crate::live::log::{MAX_BYTES, Since};

    /// Returns the events of a session for those of a run, a line each.
    fn shown(events: &[Event<AgentState>]) -> Vec<String> {
        let log = EventLog::new(MAX_BYTES);
        let mut receiver = log.subscribe(Since::Now);
        let mut projection = Projection::new(Calls::default(), log, false);
        events.iter().for_each(|event| projection.event(event));
        std::iter::from_fn(|| receiver.try_next())
            .map(|(_, event)| match event {
                SessionEvent::Piece { message, said, piece } => format!("{message} {said:?} {piece}"),
                SessionEvent::Void { message } => format!("{message} void"),
                SessionEvent::Message(MessageView { id, thought, text, .. }) => {
                    format!("{id} is ({thought}) {text}")
                }
                SessionEvent::Call(call) => format!("{} {:?} {:?}", call.key, call.status, call.result),
                SessionEvent::Output { key, chunk, .. } => format!("{key} writes {chunk}"),
                SessionEvent::Notice(notice) => notice.text,
                other => format!("{other:?}"),
            })
            .collect()
    }

    fn message(id: &str, kind: MessageKind, data: Value) -> Event<AgentState> {
        let (step, slot, attempt, checkpoint) = (1, 0, 1, None);
        Event::Message { step, node: "agent".into(), slot, attempt, checkpoint, id: id.into(), kind, data }
    }

    fn custom(event: &AgentEvent) -> Event<AgentState> {
        let Value::Object(json) = serde_json::to_value(event).unwrap() else { panic!("an object") };
        Event::Custom { node: NodeName::from("agent"), name: event.name(), data: json["data"].clone() }
    }

    #[test]
    fn pieces_are_the_text_of_their_message_unless_they_are_void() {
        let chunk = |id: &str, text: &str| {
            message(id, MessageKind::Chunk, json!({"role": "assistant", "content": text}))
        };
        let thought = json!({"role": "assistant", "content": "", "reasoning": "hm"});
        let node = || "agent".to_owned();
        let events = [
            message("m1", MessageKind::Chunk, thought),
            chunk("m1", "It is"),
            message("m1", MessageKind::Discarded, Value::Null),
            chunk("m1", "It is 4"),
            custom(&AgentEvent::NodeEnd { node: node() }),
            // The answer goes on.
            chunk("m1", "2."),
            custom(&AgentEvent::NodeEnd { node: node() }),
            message("m2", MessageKind::Full, json!({"role": "assistant", "content": "Done."})),
            message("m3", MessageKind::Full, json!({"role": "tool", "content": "x", "tool_call_id": "c"})),
            custom(&AgentEvent::NodeEnd { node: node() }),
        ];
        assert_eq!(
            shown(&events),
            [
                "m1 Thought hm",
                "m1 Text It is",
                "m1 void",
                "m1 Text It is 4",
                "m1 is () It is 4",
                "m1 Text 2.",
                "m1 is () It is 42.",
                "m2 Text Done.",
                "m2 is () Done."
            ]
        );
    }

    #[test]
    fn a_call_has_one_key_from_its_start_to_its_end() {
        let (tool, id) = (|| "shell".to_owned(), || "c1".to_owned());
        let start = AgentEvent::ToolStart { tool: tool(), args: json!({"command": "ls"}), id: id() };
        let output = AgentEvent::ToolOutput { id: id(), tool: tool(), chunk: "a".into(), truncated: false };
        let end = |status| AgentEvent::ToolEnd { tool: tool(), id: id(), result: "a".into(), status };
        let skipped = AgentEvent::ToolSkipped { tool: tool(), id: id(), reason: "budget".into() };
        let retry = AgentEvent::Retry { attempt: 2, delay_ms: 10, status: None, reason: "503\u{1b}".into() };
        let events = [start.clone(), output, end(ToolStatus::Completed), start, skipped, retry];
        assert_eq!(
            shown(&events.iter().map(custom).collect::<Vec<_>>()),
            [
                "c1 Running None",
                "c1 writes a",
                "c1 Done Some(\"a\")",
                "c1~2 Running None",
                "c1~2 Failed Some(\"not run: budget\")",
                "503\\u{1b}; retrying in 10 ms"
            ]
        );
    }
}
