//! The fourth node: runs the tools that the model called. It calls no model.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt, stream};
use serde_json::Value;
use superstep_graph::{Cx, State};
use superstep_llm::{Message, Role, Tool, ToolCall, ToolCallError, ToolCx, ToolError};
use tokio::{
    sync::RwLock,
    task::JoinError,
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{budget::Spent, loops, repaired_call};
use crate::{
    AgentDeps, AgentState, AgentStateUpdate, Refusal, ResultOrder, ToolCallRecord, ToolMode, events, texts,
};

/// Someone who is asked before a tool that wants it.
pub trait Approver: Send + Sync {
    /// Decides on one call. Calls are asked about one at a time.
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> ApprovalFuture<'a>;
}

/// The future of one decision.
pub type ApprovalFuture<'a> = Pin<Box<dyn Future<Output = Approval> + Send + 'a>>;

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalRequest {
    /// The call's id.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// The arguments, already checked.
    pub args: Value,
    /// What the tool says it would do.
    pub question: String,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Approval {
    /// The call may run.
    Approve,
    /// It may not; the model is told why.
    Deny(String),
}

/// Denies everything: for runs without a person.
#[derive(Clone, Copy, Debug, Default)]
pub struct DenyAll;

impl Approver for DenyAll {
    fn ask<'a>(&'a self, _: &'a ApprovalRequest) -> ApprovalFuture<'a> {
        Box::pin(async { Approval::Deny("nobody is there to approve it".to_owned()) })
    }
}

/// Executes the calls of the last message and answers each one.
pub(crate) async fn tools(deps: AgentDeps, state: AgentState, cx: Cx) -> AgentStateUpdate {
    let message = state.messages.last().filter(|last| last.role == Role::Assistant);
    let calls = message.map(|message| message.tool_calls.clone()).unwrap_or_default();
    let mut pending: Vec<_> = calls.into_iter().map(|call| Pending::new(&deps, call, &cx)).collect();
    let records: Vec<_> = pending.iter().map(Pending::record).collect();
    let stop = refuse(&deps, &state, &records, &mut pending, &cx);
    let budget = deps.config.budget.wall.map(|wall| wall.saturating_sub(Spent::of(&state, cx.now_ms()).time));
    let run = Arc::new(Executor {
        asking: tokio::sync::Mutex::new(()),
        alone: RwLock::new(()),
        out_of_time: budget.map(|left| Instant::now() + left),
        deps,
        cx,
    });
    let at_once = match run.deps.config.tool_mode {
        ToolMode::Sequential => 1,
        ToolMode::Parallel { max } => max.max(1),
    };
    let mut answers: Vec<_> = stream::iter(pending.into_iter().enumerate())
        .map(|(position, call)| {
            let run = run.clone();
            async move { (position, run.answer(call).await) }
        })
        .buffer_unordered(at_once)
        .collect()
        .await;
    let returned: Vec<usize> = answers.iter().map(|(position, _)| *position).collect();
    answers.sort_by_key(|(position, _)| *position);
    let answers: Vec<Answer> = answers.into_iter().map(|(_, answer)| answer).collect();
    let mut messages: Vec<_> = (0..).zip(&answers).map(|(n, answer)| answer.message(run.cx.id(n))).collect();
    if run.deps.config.result_order == ResultOrder::Completion {
        messages = returned.into_iter().map(|position| messages[position].clone()).collect();
    }
    for message in &messages {
        run.cx.emit_full_message(&message.id, message);
    }
    let answered = answers.iter().all(|answer| answer.executed && answer.is_final) && !answers.is_empty();
    let executed = answers.iter().filter(|answer| answer.executed).map(|answer| answer.name.clone());
    let update = AgentState::update()
        .current_step(state.current_step + u32::from(state.answer.refused.is_none()))
        .tools_used(executed.collect::<Vec<_>>())
        .tool_result_history(answers.into_iter().map(|answer| answer.result).collect::<Vec<_>>())
        .tool_call_history(records)
        .messages(messages);
    match (stop, answered) {
        (true, _) => update.stop(true).stop_reason("loop_detected"),
        (false, true) => update.stop(true),
        (false, false) => update,
    }
}

/// A call that is to be answered.
struct Pending {
    call: ToolCall,
    /// The tool it means, which differs from what the model wrote if that was repaired.
    name: String,
    /// Its arguments; `None` if there is no such tool.
    checked: Option<Result<Value, ToolCallError>>,
    /// What the model reads instead of a result, and why, if it must not be executed.
    refused: Option<(String, &'static str)>,
}

impl Pending {
    fn new(deps: &AgentDeps, call: ToolCall, cx: &Cx) -> Self {
        let (tools, repair) = (&deps.tools, deps.config.repair);
        let mut name = call.name.clone();
        if let Some(meant) =
            repaired_call::name(tools, &name).filter(|_| repair && tools.get(&name).is_none())
        {
            events::tool_repaired(cx, &call.id, &name, meant);
            meant.clone_into(&mut name);
        }
        let mut checked = tools.check(&name, &call.arguments);
        if let (Some(Err(ToolCallError::NotJson { .. } | ToolCallError::Invalid { .. })), true) =
            (&checked, repair)
            && let Some(unwrapped) = repaired_call::arguments(&call.arguments)
            && let Some(Ok(args)) = tools.check(&name, &unwrapped)
        {
            events::args_repaired(cx, &call.id, &name);
            checked = Some(Ok(args));
        }
        Self { call, name, checked, refused: None }
    }

    /// The arguments as they are shown. Without JSON there are none, only what the model wrote.
    fn args(&self) -> Value {
        match &self.checked {
            Some(Ok(checked)) => checked.clone(),
            Some(Err(_)) | None => serde_json::from_str(&self.call.arguments)
                .unwrap_or_else(|_| Value::String(self.call.arguments.clone())),
        }
    }

    fn record(&self) -> ToolCallRecord {
        ToolCallRecord { name: self.call.name.clone(), args: self.args() }
    }
}

/// Marks the calls that must not be executed. Whether the turn is over with them.
fn refuse(
    deps: &AgentDeps,
    state: &AgentState,
    records: &[ToolCallRecord],
    pending: &mut [Pending],
    cx: &Cx,
) -> bool {
    for call in &mut *pending {
        call.refused = match state.answer.refused {
            _ if state.answer.cut_off => Some((texts::cut_off(&call.name), "cut_off")),
            Some(Refusal::StepLimit) => Some((texts::STEP_LIMIT.to_owned(), "step_limit")),
            Some(Refusal::Budget) => Some((texts::BUDGET.to_owned(), "budget")),
            None => None,
        };
    }
    if state.answer.cut_off || state.answer.refused.is_some() {
        return false;
    }
    if let Some(most) = deps.config.budget.tool_calls {
        let left = usize::try_from(most).unwrap_or(usize::MAX).saturating_sub(state.tools_used.len());
        for call in pending.iter_mut().skip(left) {
            call.refused = Some((texts::BUDGET.to_owned(), "budget"));
        }
    }
    let (loops, stop) = loops::refused(&deps.config.loops, &deps.tools, state, records);
    for (position, found) in loops {
        events::loop_detected(cx, found.rule, &found.tool, found.n);
        pending[position].refused = Some((texts::loop_warning(&found.tool, found.n), "loop_detected"));
    }
    stop
}

/// What the model reads about a call.
struct Answer {
    call_id: String,
    name: String,
    result: String,
    executed: bool,
    /// Whether it is the answer to the user.
    is_final: bool,
}

impl Answer {
    fn message(&self, id: String) -> Message {
        Message::tool(&self.call_id, &self.result).with_id(id)
    }
}

struct Executor {
    deps: AgentDeps,
    cx: Cx,
    /// Held while somebody is asked, so that questions come one at a time.
    asking: tokio::sync::Mutex<()>,
    /// Written by tools that want to be alone, read by the others.
    alone: RwLock<()>,
    /// When the time of the turn is over.
    out_of_time: Option<Instant>,
}

impl Executor {
    async fn answer(&self, pending: Pending) -> Answer {
        let args = pending.args();
        let Pending { call, name, checked, refused } = pending;
        let behaviour = self.deps.tools.get(&name).map(|tool| tool.behaviour()).unwrap_or_default();
        let refused = match self.cx.cancel().is_cancelled() {
            true => Some((texts::INTERRUPTED.to_owned(), "cancelled")),
            false => refused,
        };
        let (result, executed) = if let Some((result, reason)) = refused {
            events::tool_skipped(&self.cx, &name, &call.id, reason);
            (result, false)
        } else {
            let (mut alone, mut together) = (None, None);
            if behaviour.exclusive {
                alone = Some(self.alone.write().await);
            } else {
                together = Some(self.alone.read().await);
            }
            events::tool_start(&self.cx, &name, &args, &call.id);
            let (result, executed) = self.process(&name, &call, checked).await;
            drop((alone.take(), together.take()));
            let result = match &self.deps.config.truncate {
                Some(truncate) => truncate.apply(result),
                None => result,
            };
            events::tool_end(&self.cx, &name, &call.id, &result);
            (result, executed)
        };
        Answer { call_id: call.id, name, result, executed, is_final: behaviour.answers }
    }

    /// What the model reads, and whether the tool ran for it.
    async fn process(
        &self,
        name: &str,
        call: &ToolCall,
        checked: Option<Result<Value, ToolCallError>>,
    ) -> (String, bool) {
        let Some(tool) = self.deps.tools.get(name) else {
            return (texts::unknown_tool(name, self.deps.tools.names()), false);
        };
        let args = match checked {
            Some(Ok(args)) => args,
            Some(Err(ToolCallError::NotJson { detail })) => {
                return (texts::bad_json(name, &detail), false);
            }
            Some(Err(error)) => return (texts::bad_args(name, &error.to_string()), false),
            None => return (texts::unknown_tool(name, self.deps.tools.names()), false),
        };
        match self.approved(tool, call, &args).await {
            Ok(()) => self.run(tool.clone(), name, call, args).await,
            Err(refusal) => (refusal, false),
        }
    }

    /// Whether the call may run; if not, what the model reads. Who panics does not approve.
    async fn approved(&self, tool: &Arc<dyn Tool>, call: &ToolCall, args: &Value) -> Result<(), String> {
        let question = catch_unwind(AssertUnwindSafe(|| tool.approval(args)))
            .map_err(|panic| texts::failed(&call.name, &texts::tool_panicked(&*panic)))?;
        let Some(question) = question else { return Ok(()) };
        let (call_id, tool) = (call.id.clone(), call.name.clone());
        let request = ApprovalRequest { call_id, tool, args: args.clone(), question };
        let decision = async {
            let _asking = self.asking.lock().await;
            self.deps.approver.ask(&request).await
        };
        tokio::select! {
            biased;
            () = self.cx.cancel().cancelled() => Err(texts::INTERRUPTED.to_owned()),
            decision = AssertUnwindSafe(decision).catch_unwind() => match decision {
                Ok(Approval::Approve) => Ok(()),
                Ok(Approval::Deny(reason)) => Err(texts::denied(&reason)),
                Err(panic) => {
                    Err(texts::denied(&format!("whoever was asked panicked: {}", texts::panic(&*panic))))
                }
            },
        }
    }

    async fn run(&self, tool: Arc<dyn Tool>, name: &str, call: &ToolCall, args: Value) -> (String, bool) {
        let cancel = CancellationToken::new();
        let tool_cx = ToolCx {
            call_id: call.id.clone(),
            idempotency_key: format!("{}/{}", self.cx.key(), call.id),
            cancel: cancel.clone(),
        };
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
