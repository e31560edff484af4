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
    event::{MessageView, Said, SessionEvent},
    log::EventLog,
    notices::notice,
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
    pub(super) fn new(calls: Calls, log: EventLog) -> Self {
        Self { calls, streamed: Streamed::default(), log }
    }

    pub(super) fn event(&mut self, event: &Event<AgentState>) {
        match event {
            Event::Message { id, kind, data, .. } => self.message(id, *kind, data),
            Event::Custom { name, data, .. } => {
                if let Some(event) = AgentEvent::read(name, data) {
                    self.agent_event(&event);
                }
            }
            Event::Checkpoint(meta) => self.log.push(SessionEvent::Checkpoint(meta.id)),
            Event::Discarded { nodes } => {
                let failed = self.calls.fail_open("a new message replaced it");
                failed.into_iter().for_each(|call| self.log.push(SessionEvent::Call(call)));
                self.log.push(SessionEvent::Discarded(nodes.clone()));
            }
            Event::Lagged { skipped } => self.log.push(SessionEvent::Lagged { skipped: *skipped }),
            _ => {}
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

    /// Completes the pieces of a message: afterwards they are its text.
    fn whole(&mut self, id: &str, message: &Message) {
        let Streamed { id: streamed, thought, text } = &self.streamed;
        let is_begun = streamed == id;
        // A continued message begins with the text of an earlier request.
        let rest = |whole: &str, sent: &str| match is_begun {
            true => whole
                .strip_suffix(sent)
                .map(|_| String::new())
                .or(whole.strip_prefix(sent).map(str::to_owned)),
            false => Some(whole.to_owned()),
        };
        let (thought, text) = (rest(&message.reasoning, thought), rest(&message.content, text));
        match (thought, text) {
            (Some(thought), Some(text)) => {
                self.piece(id, Said::Thought, thought);
                self.piece(id, Said::Text, text);
            }
            _ => {
                self.void(id);
                self.piece(id, Said::Thought, message.reasoning.clone());
                self.piece(id, Said::Text, message.content.clone());
            }
        }
        self.streamed = Streamed::default();
        self.log.push(SessionEvent::Message(view(message, id)));
    }

    fn agent_event(&mut self, event: &AgentEvent) {
        match event {
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
        is_cut_off: message.interrupted,
    }
}
