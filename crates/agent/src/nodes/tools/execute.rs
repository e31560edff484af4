//! Executing one call.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_graph::{Cx, NodeError};
use superstep_llm::{Behaviour, Message, Tool, ToolCall, ToolCallError, ToolCx, ToolError};
use tokio::{
    sync::RwLock,
    task::JoinError,
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{Go, Pending, finish::Finish};
use crate::{AgentDeps, AgentState, HookFailure, PermissionRule, events, spill::shorten, texts};

/// What the model reads about a call.
pub(super) struct Answer {
    call_id: String,
    pub(super) name: String,
    pub(super) result: String,
    pub(super) executed: bool,
    /// Whether it is the answer to the user.
    pub(super) is_final: bool,
    /// How it was read, if it calls the finish tool.
    pub(super) finish: Option<Finish>,
}

impl Answer {
    pub(super) fn message(&self, id: String) -> Message {
        Message::tool(&self.call_id, &self.result).with_id(id)
    }
}

/// What is stored of a call that was answered, so that it is not executed again when the node is.
#[derive(Serialize, Deserialize)]
struct Done {
    result: String,
    executed: bool,
    /// Which hook failed, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hook_error: Option<HookFailure>,
    /// What it gives as the reply, if it calls the finish tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finish: Option<Finish>,
}

impl Done {
    fn new(result: String, executed: bool) -> Self {
        Self { result, executed, hook_error: None, finish: None }
    }
}

pub(super) struct Executor {
    pub(super) deps: AgentDeps,
    pub(super) cx: Cx,
    /// As the round found it.
    pub(super) state: AgentState,
    /// What was permitted for good on this thread.
    pub(super) permissions: Vec<PermissionRule>,
    /// Held while somebody is asked, so that questions come one at a time.
    pub(super) asking: tokio::sync::Mutex<()>,
    /// Written by tools that want to be alone, read by the others.
    pub(super) alone: RwLock<()>,
    /// When the time of the turn is over.
    pub(super) out_of_time: Option<Instant>,
    /// The first hook that failed.
    pub(super) failed: OnceLock<HookFailure>,
}

impl Executor {
    /// Answers the call at `position` of its batch, once: should the node run again, the answer is there.
    pub(super) async fn answer(&self, position: usize, pending: Pending) -> Result<Answer, NodeError> {
        let pending = self.prepare(position, pending).await?;
        let behaviour = self.deps.tools.get(&pending.name).map(|tool| tool.behaviour()).unwrap_or_default();
        let (call_id, name) = (pending.call.id.clone(), pending.name.clone());
        let refused = match self.cx.cancel().is_cancelled() {
            true => Some((texts::INTERRUPTED.to_owned(), "cancelled")),
            false => pending.refused.clone(),
        };
        let Done { result, executed, hook_error, finish } = match refused {
            Some((result, reason)) => {
                events::tool_skipped(&self.cx, &name, &call_id, reason);
                Done::new(result, false)
            }
            None => {
                let name = format!("call.{position}");
                let answered = self.cx.once(&name, async |_| self.take(position, pending, behaviour).await);
                answered.await?
            }
        };
        if let Some(failure) = hook_error {
            self.fail(failure);
        }
        Ok(Answer { call_id, name, result, executed, is_final: behaviour.answers, finish })
    }

    async fn take(&self, position: usize, pending: Pending, behaviour: Behaviour) -> Result<Done, NodeError> {
        let (mut alone, mut together) = (None, None);
        if behaviour.exclusive {
            alone = Some(self.alone.write().await);
        } else {
            together = Some(self.alone.read().await);
        }
        let (name, call_id) = (pending.name.clone(), pending.call.id.clone());
        if self.failed.get().is_some() {
            events::tool_skipped(&self.cx, &name, &call_id, "hook_error");
            return Ok(Done::new(texts::HOOK_FAILED.to_owned(), false));
        }
        events::tool_start(&self.cx, &name, &pending.args(), &call_id);
        let acting = pending.acting.clone();
        let (result, executed, finish) = match self.finish(&pending) {
            Some((result, finish)) => (result, false, finish),
            None => {
                let (result, executed) = self.process(position, pending, behaviour).await?;
                (result, executed, None)
            }
        };
        let (result, hook_error) = self.acted(acting.as_ref(), result).await;
        drop((alone.take(), together.take()));
        let result = shorten(&self.deps, &self.cx, &call_id, result).await;
        events::tool_end(&self.cx, &name, &call_id, &result);
        Ok(Done { result, executed, hook_error, finish })
    }

    /// What the model reads, and whether the tool ran for it.
    async fn process(
        &self,
        position: usize,
        pending: Pending,
        behaviour: Behaviour,
    ) -> Result<(String, bool), NodeError> {
        let denied = pending.denied().map(str::to_owned);
        let Pending { call, name, checked, decision, .. } = pending;
        let (Some(tool), Some(checked)) = (self.deps.tools.get(&name), checked) else {
            return Ok((texts::unknown_tool(&name, self.deps.tools.names()), false));
        };
        let args = match checked {
            Ok(args) => args,
            Err(ToolCallError::NotJson { detail }) => return Ok((texts::bad_json(&name, &detail), false)),
            Err(error) => return Ok((texts::bad_args(&name, &error.to_string()), false)),
        };
        if let Some(reason) = denied {
            return Ok((texts::denied(&reason), false));
        }
        let Go { args, notice } = match self.approved(tool, &name, &call, args, decision).await {
            Ok(go) => go,
            Err(answer) => return Ok((answer, false)),
        };
        if let Some(answer) = self.doubtful(position, tool, &name, &call, behaviour).await? {
            return Ok((answer, true));
        }
        let (result, executed) = self.run(tool.clone(), &name, &call, args).await;
        Ok((notice.map_or_else(|| result.clone(), |notice| format!("{notice}\n{result}")), executed))
    }

    /// Notes that the call begins. If that was noted before, its outcome is unknown: the process stopped while it ran, and
    /// this is what the model reads, unless the tool may be called again or can tell what came of it.
    async fn doubtful(
        &self,
        position: usize,
        tool: &Arc<dyn Tool>,
        name: &str,
        call: &ToolCall,
        behaviour: Behaviour,
    ) -> Result<Option<String>, NodeError> {
        if behaviour.idempotent {
            return Ok(None);
        }
        let mut begins = false;
        let mark = format!("begun.{position}");
        let begun = self.cx.once(&mark, async |_| {
            begins = true;
            Ok::<_, NodeError>(())
        });
        begun.await?;
        if begins {
            return Ok(None);
        }
        let known = tool.reconcile(&self.key(call)).await;
        Ok(Some(match known {
            Some(result) => result_text(name, Ok(result)),
            None => texts::IN_DOUBT.to_owned(),
        }))
    }

    fn key(&self, call: &ToolCall) -> String {
        format!("{}/{}", self.cx.key(), call.id)
    }

    async fn run(&self, tool: Arc<dyn Tool>, name: &str, call: &ToolCall, args: Value) -> (String, bool) {
        let cancel = CancellationToken::new();
        let tool_cx =
            ToolCx { call_id: call.id.clone(), idempotency_key: self.key(call), cancel: cancel.clone() };
        // A task of its own: its panic is its own, and tools that compute do not stand in each other's way.
        let mut task = AbortOnDropHandle::new(tokio::spawn(async move { tool.call(args, tool_cx).await }));
        let limit = self.deps.config.tool_timeout;
        let text = tokio::select! {
            biased;
            ended = &mut task => return (result_text(name, ended), true),
            () = self.cx.cancel().cancelled() => texts::INTERRUPTED.to_owned(),
            () = expire(limit) => texts::timed_out(name, limit.unwrap_or_default().as_millis()),
            () = until(self.out_of_time) => texts::BUDGET_STOPPED.to_owned(),
        };
        cancel.cancel();
        if timeout(self.deps.config.cancel_grace, &mut task)
            .await
            .is_ok_and(|ended| matches!(ended, Ok(Ok(_))))
        {
            events::late_result(&self.cx, name, &call.id);
        }
        (text, true)
    }
}

async fn expire(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}

async fn until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

fn result_text(name: &str, ended: Result<Result<String, ToolError>, JoinError>) -> String {
    match ended {
        Ok(Ok(result)) => result,
        Ok(Err(ToolError::Denied(reason))) => texts::denied(&reason),
        Ok(Err(ToolError::InvalidArguments(detail))) => texts::bad_args(name, &detail),
        Ok(Err(error)) => texts::failed(name, &error.to_string()),
        Err(ended) => {
            let why = match ended.try_into_panic() {
                Ok(panic) => texts::tool_panicked(&*panic),
                // Nobody aborts the task while its result is awaited, except a runtime that shuts down.
                Err(_) => "the program is shutting down".to_owned(),
            };
            texts::failed(name, &why)
        }
    }
}
