//! A turn for an editor: the events of the session as updates, its questions as requests.
//!
//! Start at [`Turn`].

use std::{collections::VecDeque, future::pending, path::PathBuf, sync::Arc};

use futures::{FutureExt as _, future::BoxFuture};
use serde_json::{Value, json};
use superstep::{
    agent::{AgentOutcome, Approval},
    llm::snapshots::FileChanges,
};
use superstep_acp::{
    Client,
    stream::{Joiner, fenced, stop_reason, text_content},
    wire::{
        Chunk, CompactionStatus, Cost, Meta, PlanEntry, PlanPriority, PlanStatus as WirePlan, PromptResponse,
        RpcError, SessionId, SessionUpdate, Severity, StopReason, ToolCall,
    },
};
use superstep_session::{
    error::{ErrorKind, SessionError},
    live::{
        CallView, Ended, Events, Level, MessageView, Notice, PlanItem, PlanStatus, Question, Said, Session,
        SessionEvent, TurnEnd, TurnId, UsageView,
    },
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::acp::{
    calls::{Calls, is_edit},
    open::Open,
    questions,
};

/// A turn whose events a client receives.
pub(super) struct Turn {
    client: Client,
    open: Arc<Open>,
    cwd: PathBuf,
    joiner: Joiner,
    /// The questions that the client does not have yet.
    waiting: VecDeque<Question>,
    asked: Option<Asked>,
    /// The text of the newest message that the client has.
    said: String,
    /// The last call that ended and may have changed files unseen.
    effect: Option<CallView>,
}

/// The question that the client has. A drop before the decision withdraws it.
struct Asked {
    id: String,
    /// The client's decision; `None` once it is given.
    decision: Option<BoxFuture<'static, Option<Approval>>>,
}

impl Turn {
    pub(super) fn new(client: Client, open: Arc<Open>) -> Self {
        let cwd = open.session.location().cwd().to_owned();
        let (joiner, waiting, said) = Default::default();
        Self { client, open, cwd, joiner, waiting, asked: None, said, effect: None }
    }

    fn session(&self) -> &Session {
        &self.open.session
    }

    /// Sends the events of a turn until its end, and asks about its calls. `cancel` cancels the turn.
    pub(super) async fn follow(
        mut self,
        turn: TurnId,
        mut events: Events,
        cancel: CancellationToken,
    ) -> Result<PromptResponse, RpcError> {
        let (mut is_cancelled, mut is_running) = (false, false);
        loop {
            let due = self.joiner.due();
            tokio::select! {
                biased;
                () = cancel.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    if self.session().unqueue(turn).is_some() {
                        return Ok(response(StopReason::Cancelled, Value::Null));
                    }
                    self.session().cancel();
                }
                () = wait(due) => {
                    for update in self.joiner.take_due(Instant::now()) {
                        let _ = self.client.update(&self.open.id, &update).await;
                    }
                }
                decision = decided(&mut self.asked) => self.answer(decision),
                event = events.next() => match event {
                    None => return Err(closed()),
                    Some((_, SessionEvent::TurnEnded(end))) if end.turn == turn => {
                        if let Some(Asked { decision: Some(decision), .. }) = self.asked.take()
                            && is_cancelled
                        {
                            // The client answers the question before it has the end of the turn.
                            decision.await;
                        }
                        return self.end(end).await;
                    }
                    Some((_, SessionEvent::TurnStarted { turn: started, .. })) => is_running = started == turn,
                    // Another turn has its own receiver.
                    Some((_, event)) if is_running => self.event(event).await,
                    Some(_) => {}
                },
            }
            self.ask(&cancel).await;
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
                    self.effect =
                        Some(call.clone()).filter(|call| !is_edit(&call.tool)).or(self.effect.take());
                }
                let update = self.open.calls().update(&call, &self.cwd, true);
                self.send(update).await;
            }
            SessionEvent::Output { key, chunk, .. } => self.joiner.output(Instant::now(), &key, &chunk),
            SessionEvent::Asked(question) => self.waiting.push_back(*question),
            SessionEvent::Answered { id, .. } => drop(self.asked.take_if(|asked| asked.id == id)),
            SessionEvent::Files(changes) => self.files(&changes).await,
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

    /// Shows the changes of a round of tools at its last call that is no edit: those have shown theirs.
    async fn files(&mut self, changes: &FileChanges) {
        let Some(call) = self.effect.take() else { return };
        let diffs = changes.changes.iter().filter(|change| !change.diff.is_empty());
        let diffs = diffs.map(|change| text_content(fenced(&change.diff, "diff")));
        let result = call.result.filter(|result| !result.is_empty());
        let content: Vec<_> =
            result.map(|result| text_content(fenced(&result, ""))).into_iter().chain(diffs).collect();
        let changed = ToolCall { content: Some(content), ..ToolCall::new(call.key) };
        self.send(SessionUpdate::ToolCallUpdate(changed)).await;
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
        } else if matches!(notice.code, "note" | "hint" | "lagged") {
            // Without it nobody would know that no model is configured, or that a server is missing.
            let id = format!("note-{}", self.open.next_number());
            let text = format!("> {}\n\n", notice.text);
            self.send(SessionUpdate::AgentMessageChunk(Chunk::text(id, text))).await;
        }
    }

    /// Asks the client about the next call that waits, if it has no other question.
    async fn ask(&mut self, cancel: &CancellationToken) {
        while self.asked.is_none() {
            let Some(question) = self.waiting.pop_front() else { return };
            if !self.session().questions().iter().any(|open| open.id == question.id) {
                continue;
            }
            self.flush().await;
            let id = question.id.clone();
            let (client, open, cwd) = (self.client.clone(), self.open.clone(), self.cwd.clone());
            let cancel = cancel.clone();
            let decision =
                async move { questions::decision(&client, &open.id, &cwd, &question, &cancel).await };
            self.asked = Some(Asked { id, decision: Some(decision.boxed()) });
        }
    }

    /// Takes the client's decision about a call.
    fn answer(&mut self, decision: Option<Approval>) {
        let Some(asked) = &mut self.asked else { return };
        asked.decision = None;
        let Some(approval) = decision else {
            // Nothing runs, and the call still waits.
            self.waiting.clear();
            self.session().cancel();
            return;
        };
        let answer = (asked.id.clone(), approval);
        // Otherwise its event says that the question is closed, after those that it decides as well.
        if self.session().answer([answer]).is_err() {
            self.asked = None;
        }
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

/// Waits for the client's decision.
async fn decided(asked: &mut Option<Asked>) -> Option<Approval> {
    match asked.as_mut().and_then(|asked| asked.decision.as_mut()) {
        Some(decision) => decision.await,
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
            SessionEvent::Message(MessageView { id, is_user, thought, text, media, .. }) => {
                updates.extend(media.iter().filter_map(|media| {
                    let (mime, data) = (media.mime.as_str(), media.base64());
                    let image = media.mime.is_image().then(|| Chunk::image(&*id, mime, data));
                    let audio = || media.mime.is_audio().then(|| Chunk::audio(&*id, mime, data));
                    image.or_else(audio).map(SessionUpdate::UserMessageChunk)
                }));
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
        amount: cost.dollars(),
        currency: "USD".to_owned(),
    };
    Some(SessionUpdate::UsageUpdate { used, size, cost: usage.cost.map(dollars) })
}
