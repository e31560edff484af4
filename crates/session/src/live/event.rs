//! The events of a session.
//!
//! Start at [`SessionEvent`].

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use superstep::{
    CheckpointId,
    agent::{AgentOutcome, AgentState, Approval},
    llm::{Usage, media::Media, models::NanoDollars, snapshots::FileChanges},
    node::NodeName,
};

use crate::{
    error::SessionError,
    live::{
        calls::{CallView, PlanItem},
        notices::Notice,
        session::{Question, SettingsView},
    },
    turn::waiting::Waiting,
};

/// The number of a turn, from 1, unique in the session of a process.
pub type TurnId = u64;

/// An event of a session, in the order of what happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SessionEvent {
    /// A turn begins, by a prompt or by the continuation of an unfinished turn.
    TurnStarted {
        /// The turn.
        turn: TurnId,
        /// The prompt; `None` for a continuation.
        prompt: Option<String>,
    },
    /// A piece of the model's text or reasoning. The pieces of a message are its text, unless a [`Void`](Self::Void) follows.
    Piece {
        /// The id of the message, as it will be stored.
        message: String,
        /// The kind of the text.
        said: Said,
        /// The text, never empty.
        piece: String,
    },
    /// The pieces of a message so far do not count: its response was discarded, and may begin again.
    Void {
        /// The id of the message.
        message: String,
    },
    /// A message of the conversation as it is stored, after its pieces. One that is continued comes again, with all of its text.
    Message(MessageView),
    /// A call is new, or its status changed.
    Call(CallView),
    /// Output of a call while it runs.
    Output {
        /// The key of the call.
        key: String,
        /// The output since the last event.
        chunk: String,
        /// True for the last reported output, if the tool wrote too much.
        truncated: bool,
    },
    /// A call waits for a decision.
    Asked(Box<Question>),
    /// A call that waited is decided.
    Answered {
        /// The id of the question.
        id: String,
        /// The decision; `None` if another process has it.
        decision: Option<Approval>,
        /// The one who decided.
        by: AnsweredBy,
    },
    /// The agent's list of tasks, all of it.
    Plan(Vec<PlanItem>),
    /// A round of tools changed files.
    Files(FileChanges),
    /// A message that was sent during the turn enters the conversation.
    Steered {
        /// The id of the message.
        message: String,
        /// The text.
        text: String,
    },
    /// The messages that wait for the end of the turn, all of them.
    Queue(Vec<Queued>),
    /// A fact beside the conversation.
    Notice(Notice),
    /// The size of the last request and the tokens of the turn so far.
    Usage(UsageView),
    /// The settings of the next turn have changed.
    Settings(SettingsView),
    /// An event of the agent as it is, if the session [emits them](crate::live::NewSession::raw_events): an
    /// [`AgentEvent`](superstep::agent::AgentEvent), or one of another node.
    Agent {
        /// The name.
        name: &'static str,
        /// The data.
        data: Value,
    },
    /// A superstep was stored.
    Checkpoint {
        /// The checkpoint.
        id: CheckpointId,
        /// The nodes that run next; none after the end.
        next: Vec<NodeName>,
    },
    /// A new prompt replaced these unfinished tasks.
    Discarded(Vec<NodeName>),
    /// The receiver was too slow: this number of events is lost here. The [transcript](crate::live::Session::transcript) has the
    /// conversation.
    Lagged {
        /// The number of lost events.
        skipped: u64,
    },
    /// A turn ended: the last of its events.
    TurnEnded(TurnEnd),
}

/// The kind of a model's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Text for the user.
    Text,
    /// Reasoning.
    Thought,
}

/// A message of the conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageView {
    /// The id, unique in the thread.
    pub id: String,
    /// The user wrote it, otherwise the model.
    pub is_user: bool,
    /// The model's reasoning before the text; empty without.
    pub thought: String,
    /// The text; empty if the model only calls tools.
    pub text: String,
    /// The images, audio and files of the user.
    pub media: Vec<Media>,
    /// The model was interrupted before the end.
    pub is_cut_off: bool,
}

/// The one who decided about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnsweredBy {
    /// A shell of this session.
    Here,
    /// The [mode](crate::live::Mode).
    Mode,
    /// Another process, which continues the turn.
    Elsewhere,
}

/// The weight of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A fact without a problem.
    Info,
    /// Something failed or is missing.
    Warning,
}

/// A message that waits for the end of the turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// The turn that it will begin.
    pub turn: TurnId,
    /// The text.
    pub text: String,
}

/// The tokens of a turn.
#[derive(Clone, Debug, PartialEq)]
pub struct UsageView {
    /// The tokens of the last request, if it is known.
    pub used: Option<u64>,
    /// The context window of the model, if it is known.
    pub window: Option<u64>,
    /// The used share of the turn's budget in percent, if it has a limit.
    pub budget: Option<u32>,
    /// The tokens of the turn.
    pub turn: Usage,
    /// The estimated cost of the turn, if the prices are known.
    pub cost: Option<NanoDollars>,
}

/// The end of a turn.
#[derive(Clone, Debug)]
pub struct TurnEnd {
    /// The turn.
    pub turn: TurnId,
    /// The end, or the reason why the turn was refused or failed.
    pub result: Result<Ended, SessionError>,
    /// The time since the beginning.
    pub took: Duration,
}

/// The state of a thread at the end of a turn.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The outcome; [`AwaitingApproval`](AgentOutcome::AwaitingApproval) if calls wait and the shell [left](crate::live::Session::leave).
    pub outcome: AgentOutcome,
    /// The state.
    pub state: Arc<AgentState>,
    /// The newest checkpoint.
    pub checkpoint: Option<CheckpointId>,
    /// The calls that wait for a decision.
    pub waiting: Vec<Waiting>,
    /// A schema was set for the reply.
    pub has_schema: bool,
}

impl Ended {
    /// Returns whether the turn ended as it was meant to: with a reply, which fits its schema if there is one.
    pub fn is_success(&self) -> bool {
        use AgentOutcome::{AwaitingApproval, HookFailed, ToolFailed};
        let is_failed = matches!(self.outcome, AwaitingApproval | HookFailed | ToolFailed);
        let fits = !self.has_schema || self.state.output.is_some();
        !self.outcome.is_unanswered() && !is_failed && fits
    }
}
