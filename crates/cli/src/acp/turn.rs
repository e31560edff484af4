//! A turn for an editor: the events of the session as updates, its questions as requests.
//!
//! Start at [`Turn`].

use std::{collections::VecDeque, future::pending, path::PathBuf, sync::Arc};

use serde_json::{Value, json};
use superstep::agent::{AgentOutcome, Approval};
use superstep_acp::{
    Client,
    stream::{Choice, Joiner, choice, permission_options, stop_reason},
    wire::{
        Chunk, CompactionStatus, Cost, ElicitationMode, ElicitationRequest, ElicitationResponse, Meta,
        PermissionRequest, PlanEntry, PlanPriority, PlanStatus as WirePlan, PromptResponse, RpcError,
        SessionId, SessionUpdate, Severity, StopReason,
    },
};
use superstep_session::{
    error::{ErrorKind, SessionError},
    live::{
        Ended, Events, Level, MessageView, Notice, PlanItem, PlanStatus, Question, Said, Session,
        SessionEvent, TurnEnd, TurnId, UsageView,
    },
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::acp::{
    agent::Open,
    calls::{Calls, whole},
};

/// A turn whose events a client receives.
pub(super) struct Turn {
    client: Client,
    open: Arc<Open>,
    cwd: PathBuf,
    joiner: Joiner,
    asked: VecDeque<Question>,
    /// The text of the newest message that the client has.
    said: String,
}

impl Turn {
    pub(super) fn new(client: Client, open: Arc<Open>) -> Self {
        let cwd = open.session.location().cwd().to_owned();
        Self { client, open, cwd, joiner: Joiner::default(), asked: VecDeque::new(), said: String::new() }
    }

    fn session(&self) -> &Session {
        &self.open.session
    }

    /// Sends the events of a turn until its end. `cancel` cancels the turn.
    pub(super) async fn follow(
        mut self,
        turn: TurnId,
        mut events: Events,
        cancel: CancellationToken,
    ) -> Result<PromptResponse, RpcError> {
        let mut is_cancelled = false;
        loop {
            let due = self.joiner.due();
            let event = tokio::select! {
                biased;
                () = cancel.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    self.session().cancel();
                    continue;
                }
                () = wait(due) => {
                    for update in self.joiner.take_due(Instant::now()) {
                        self.send(update).await;
                    }
                    continue;
                }
                event = events.next() => event,
            };
            let Some((_, event)) = event else { return Err(closed()) };
            match event {
                SessionEvent::TurnEnded(end) if end.turn == turn => return self.end(end).await,
                event => self.event(event).await,
            }
            self.ask(&cancel, &mut events).await;
        }
    }

    /// Sends an update, after the text before it. A client that is gone needs none.
    async fn send(&mut self, update: SessionUpdate) {
        if let Some(text) = self.joiner.flush() {
            let _ = self.client.update(&self.open.id, &text).await;
        }
        let _ = self.client.update(&self.open.id, &update).await;
    }

    async fn event(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Piece { message, said, piece } => {
                let now = Instant::now();
                if let Some(before) = self.joiner.text(now, &message, said == Said::Thought, &piece) {
                    let _ = self.client.update(&self.open.id, &before).await;
                }
            }
            SessionEvent::Void { message } => self.joiner.discard(&message),
            SessionEvent::Message(MessageView { text, is_user: false, .. }) => self.said = text,
            SessionEvent::Call(call) => {
                if call.status.is_end() {
                    self.joiner.end_call(&call.key);
                }
                let update = self.open.calls().update(&call, &self.cwd, true);
                self.send(update).await;
            }
            SessionEvent::Output { key, chunk, .. } => self.joiner.output(Instant::now(), &key, &chunk),
            SessionEvent::Asked(question) => self.asked.push_back(*question),
            SessionEvent::Plan(items) => self.send(plan(items)).await,
            SessionEvent::Steered { message, text } if !self.open.has_steered(&text) => {
                self.send(SessionUpdate::UserMessageChunk(Chunk::text(message, text))).await;
            }
            SessionEvent::Usage(usage) => {
                if let Some(update) = usage_update(&usage) {
                    self.send(update).await;
                }
            }
            SessionEvent::Notice(notice) => self.notice(notice).await,
            SessionEvent::Lagged { skipped } => {
                let text = format!("{skipped} events are not shown; load the session to see all of it");
                let (level, code) = (Level::Warning, "lagged");
                self.notice(Notice { level, code, text, of_call: false }).await;
            }
            _ => {}
        }
    }

    async fn notice(&mut self, notice: Notice) {
        let can = self.client.capabilities();
        if notice.code == "compacted" && can.session.compaction {
            let compaction_id = self.open.next_number().to_string();
            let status = CompactionStatus::Completed;
            self.send(SessionUpdate::CompactionUpdate { compaction_id, status }).await;
        } else if can.session.notices {
            let severity = if notice.level == Level::Info { Severity::Info } else { Severity::Warning };
            self.send(SessionUpdate::Notice { severity, title: notice.text, description: None }).await;
        } else if notice.code == "note" {
            // Without it nobody would know that no model is configured, or that a server is missing.
            let id = format!("note-{}", self.open.next_number());
            let text = format!("> {}\n\n", notice.text);
            self.send(SessionUpdate::AgentMessageChunk(Chunk::text(id, text))).await;
        }
    }

    /// Asks the client about the calls that wait, one after the other.
    async fn ask(&mut self, cancel: &CancellationToken, events: &mut Events) {
        while let Some(question) = self.asked.pop_front() {
            if !self.session().questions().iter().any(|open| open.id == question.id) {
                continue;
            }
            let Some(approval) = self.decision(&question, cancel).await else {
                // Nothing runs, and the call still waits.
                self.session().cancel();
                return;
            };
            let id = question.id.clone();
            if self.session().answer([(id.clone(), approval)]).is_err() {
                continue;
            }
            // An answer may decide the next questions as well.
            while let Some((_, event)) = events.next().await {
                let is_answered =
                    matches!(&event, SessionEvent::Answered { id: answered, .. } if *answered == id);
                self.event(event).await;
                if is_answered {
                    break;
                }
            }
        }
    }

    /// Returns the user's decision about a call; `None` if there is none.
    async fn decision(&mut self, question: &Question, cancel: &CancellationToken) -> Option<Approval> {
        let request = &question.waiting.request;
        if let Some(form) = &request.form {
            return self.form(question, &form.message, form.schema.clone(), cancel).await;
        }
        let mut tool_call = whole(&question.call, &self.cwd, true);
        let mut text = question.waiting.question();
        if let Some(hidden) = question.waiting.hidden() {
            text.push_str(&format!("\n[{hidden}]"));
        }
        let text = superstep_acp::stream::text_content(superstep_acp::stream::fenced(&text, ""));
        tool_call.content.get_or_insert_default().push(text);
        let asked =
            PermissionRequest { session_id: self.open.id.clone(), tool_call, options: permission_options() };
        let answer = self.client.request_permission(&asked, cancel).await.ok()?;
        if let Some(decision) = answer.meta.superstep("decision") {
            // An unknown decision is none.
            return serde_json::from_value(decision.clone()).ok();
        }
        Some(match choice(&answer.outcome)? {
            Choice::Once => Approval::Approve,
            Choice::Always => Approval::Always,
            Choice::Reject => Approval::Deny("the user said no".to_owned()),
        })
    }

    async fn form(
        &mut self,
        question: &Question,
        message: &str,
        schema: Value,
        cancel: &CancellationToken,
    ) -> Option<Approval> {
        if !self.client.capabilities().elicitation.form {
            let text = "a question with a form is declined, because this client shows none; answer it with \
                        `superstep resume --answer`";
            let (level, code) = (Level::Warning, "note");
            self.notice(Notice { level, code, text: text.to_owned(), of_call: true }).await;
            return Some(Approval::Deny("the user's editor cannot show the question".to_owned()));
        }
        let asked = ElicitationRequest {
            session_id: self.open.id.clone(),
            tool_call_id: Some(question.call.key.clone()),
            message: message.to_owned(),
            mode: ElicitationMode::Form { requested_schema: schema },
        };
        Some(match self.client.elicit(&asked, cancel).await.ok()? {
            ElicitationResponse::Accept { content: Some(content) } => {
                Approval::Answer(Value::Object(content))
            }
            ElicitationResponse::Accept { content: None } => Approval::Approve,
            ElicitationResponse::Decline => Approval::Deny("the user declined".to_owned()),
            ElicitationResponse::Cancel => Approval::Cancel,
        })
    }

    async fn end(mut self, end: TurnEnd) -> Result<PromptResponse, RpcError> {
        let Ended { outcome, state, checkpoint, .. } = match end.result {
            Ok(ended) => ended,
            Err(error) => {
                self.flush().await;
                return match error.kind {
                    ErrorKind::Interrupted => Ok(response(StopReason::Cancelled, Value::Null)),
                    _ => Err(rpc_error(&error)),
                };
            }
        };
        if outcome != AgentOutcome::Cancelled
            && !state.final_reply.is_empty()
            && state.final_reply != self.said
        {
            let id = format!("reply-{}", self.open.next_number());
            self.send(SessionUpdate::AgentMessageChunk(Chunk::text(id, &*state.final_reply))).await;
        }
        self.flush().await;
        let problem = match (&state.error, &state.hook_error) {
            (Some(error), _) => error.message.clone(),
            (None, Some(error)) => error.to_string(),
            (None, None) => state.output_problem.clone(),
        };
        let reason = stop_reason(outcome.as_str(), &problem)?;
        let about = json!({ "checkpoint": checkpoint, "outcome": outcome.as_str(), "usage": state.usage });
        Ok(response(reason, about))
    }

    async fn flush(&mut self) {
        if let Some(text) = self.joiner.flush() {
            let _ = self.client.update(&self.open.id, &text).await;
        }
    }
}

async fn wait(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

pub(super) fn response(stop_reason: StopReason, about: Value) -> PromptResponse {
    let meta = if about.is_null() { Meta::default() } else { Meta::of_superstep(about) };
    PromptResponse { stop_reason, meta }
}

fn closed() -> RpcError {
    RpcError::internal("closed", "the session is closed")
}

/// Converts an error of a session.
pub(super) fn rpc_error(error: &SessionError) -> RpcError {
    let message = error.message.as_str();
    match error.kind {
        ErrorKind::Invalid => RpcError::invalid_params(message),
        ErrorKind::Thread => RpcError::internal("thread_busy", message),
        ErrorKind::Model => RpcError::internal("llm_error", message),
        ErrorKind::Database => RpcError::internal("database", message),
        _ => RpcError::internal("failed", message),
    }
}

/// Converts the error of opening a session.
pub(super) fn open_error(id: &SessionId, error: &SessionError) -> RpcError {
    match error.kind {
        ErrorKind::Unknown => RpcError::unknown_session(id.as_str()),
        _ => rpc_error(error),
    }
}

/// Returns the stored conversation as updates.
pub(super) fn replayed(
    events: Vec<SessionEvent>,
    calls: &mut Calls,
    cwd: &std::path::Path,
) -> Vec<SessionUpdate> {
    let mut updates = Vec::new();
    for event in events {
        match event {
            SessionEvent::Message(MessageView { id, is_user, thought, text, .. }) => {
                if !thought.is_empty() {
                    updates.push(SessionUpdate::AgentThoughtChunk(Chunk::text(
                        format!("{id}:thought"),
                        thought,
                    )));
                }
                if !text.is_empty() {
                    let chunk = Chunk::text(id, text);
                    updates.push(match is_user {
                        true => SessionUpdate::UserMessageChunk(chunk),
                        false => SessionUpdate::AgentMessageChunk(chunk),
                    });
                }
            }
            SessionEvent::Call(call) => updates.push(calls.update(&call, cwd, false)),
            SessionEvent::Plan(items) => updates.push(plan(items)),
            _ => {}
        }
    }
    updates
}

fn plan(items: Vec<PlanItem>) -> SessionUpdate {
    let entry = |PlanItem { text, status }| PlanEntry {
        content: text,
        priority: PlanPriority::Medium,
        status: match status {
            PlanStatus::Pending => WirePlan::Pending,
            PlanStatus::InProgress => WirePlan::InProgress,
            PlanStatus::Done => WirePlan::Completed,
        },
    };
    SessionUpdate::Plan { entries: items.into_iter().map(entry).collect() }
}

fn usage_update(usage: &UsageView) -> Option<SessionUpdate> {
    let (used, size) = usage.used.zip(usage.window)?;
    let dollars = |cost: superstep::llm::models::NanoDollars| Cost {
        // An estimate for display.
        #[expect(clippy::cast_precision_loss)]
        amount: cost.0 as f64 / 1e9,
        currency: "USD".to_owned(),
    };
    Some(SessionUpdate::UsageUpdate { used, size, cost: usage.cost.map(dollars) })
}
