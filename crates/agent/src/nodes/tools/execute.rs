//! Execution of one call.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use serde_json::{Map, Value};
use superstep_graph::NodeError;
use superstep_llm::{
    Behaviour, Tool, ToolCall, ToolCx, ToolError, ToolReply,
    calls::{ToolCallError, ToolQuestion},
    telemetry::captured,
};
use tokio::{
    task::JoinError,
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::Instrument as _;

use super::{
    answer::{Answer, AnsweredQuestion, CallResult},
    at_work::Counted,
    executor::Executor,
    keys::{result_of, told},
    output::Output,
    pending::{Left, Pending},
    permit::{Approved, Permission},
    shorten::shorten,
};
use crate::{
    AgentEvent,
    config::{ToolErrors, prompts},
    context::finish::Finishing,
    deps::folder,
    events::emit,
    hooks::ToolFailure,
    nodes::{
        budget::{expired, until},
        parts,
    },
    state::{Part, ToolEvent, ToolStatus},
    trace,
};

/// The next step of a call.
enum Planned {
    Run {
        tool: Arc<dyn Tool>,
        approved: Approved,
    },
    /// The call does not run: this is its result. Boxed, because it is large.
    Done {
        args: Value,
        done: Box<CallResult>,
    },
}

impl Planned {
    fn args(&self) -> &Value {
        match self {
            Self::Run { approved, .. } => &approved.args,
            Self::Done { args, .. } => args,
        }
    }
}

impl Executor {
    /// Answers the call at `position` of its batch, once: if the node runs again, the answer is stored.
    pub(super) async fn answer(&self, position: usize, pending: Pending) -> Result<Answer, NodeError> {
        let _answered = self.order.until_answered(position);
        let pending = self.prepare(position, pending).await?;
        let behaviour = self.behaviour(&pending);
        let (call_id, name) = (pending.call.id.clone(), pending.name.clone());
        let cancelled = format!("cancelled.{position}");
        let is_new = pending.left == Left::Nothing;
        let refused = match self.cx.noted(&cancelled, is_new && self.cx.cancel().is_cancelled()) {
            true => Some((prompts::INTERRUPTED.to_owned(), "cancelled")),
            false => pending.refused.clone(),
        };
        let done = match refused {
            Some((result, reason)) => {
                self.skipped(&name, &call_id, reason);
                CallResult::not_executed(result)
            }
            None => {
                let name = result_of(position);
                self.cx.compared(&name, || self.about(position, &pending)).await;
                // Counts as running until the result is stored.
                let mut at_work = None;
                let answered = self
                    .cx
                    .once(&name, async |_| self.take(position, pending, behaviour, &mut at_work).await);
                answered.await?
            }
        };
        if let Some(failure) = &done.hook_error {
            self.fail(failure.clone());
        }
        if done.failed && self.deps.config.tool_errors == ToolErrors::Fail {
            self.tool_failed.cancel();
        }
        let part = self.part(position, &done)?;
        Ok(Answer { call_id, name, is_final: behaviour.answers, part, done })
    }

    /// Emits that the call is answered without execution.
    fn skipped(&self, tool: &str, id: &str, reason: &str) {
        emit(&self.cx, || AgentEvent::ToolSkipped {
            tool: tool.to_owned(),
            id: id.to_owned(),
            reason: reason.to_owned(),
        });
    }

    /// Returns the part of an answered call, if the agent records parts.
    fn part(&self, position: usize, done: &CallResult) -> Result<Option<Part>, NodeError> {
        let Some(message) = self.state.messages.last().filter(|_| self.deps.config.parts) else {
            return Ok(None);
        };
        let result = done.result.clone();
        let end = if done.returned { ToolEvent::Returned(result) } else { ToolEvent::Failed(result) };
        let part = parts::ended(&self.state, message, position, end, &self.cx)?;
        let part = parts::ran_with(part, done.ran_with.clone());
        emit(&self.cx, || AgentEvent::Part(part.clone()));
        Ok(Some(part))
    }

    async fn take<'a>(
        &'a self,
        position: usize,
        mut pending: Pending,
        behaviour: Behaviour,
        at_work: &mut Option<Counted<'a>>,
    ) -> Result<CallResult, NodeError> {
        self.order.turn(position).await;
        *at_work = Some(self.at_work.begin().await);
        let (name, call_id) = (pending.name.clone(), pending.call.id.clone());
        let questions = self.questions(position).await;
        let was_begun = self.was_begun(position, questions.len(), behaviour);
        let began = was_begun
            || !questions.is_empty()
            || (self.is_sub_agent(&pending) && self.cx.has_result(&told(position)));
        // Concurrent calls are awaited, also after a pause.
        if self.failed.get().is_some() && !began {
            self.skipped(&name, &call_id, "hook_error");
            return Ok(CallResult::not_executed(prompts::HOOK_FAILED.to_owned()));
        }
        if self.tool_failed.is_cancelled() && !began {
            self.skipped(&name, &call_id, "tool_error");
            return Ok(CallResult::not_executed(prompts::TOOL_FAILED.to_owned()));
        }
        // While it waited for others, or before its turn was resumed. The outcome of a begun call is asked for in any case.
        if self.cx.cancel().is_cancelled() && !was_begun {
            self.skipped(&name, &call_id, "cancelled");
            return Ok(match questions.is_empty() {
                true => CallResult::not_executed(prompts::INTERRUPTED.to_owned()),
                false => CallResult::unanswered(),
            });
        }
        let finish = self.finish(&pending);
        if finish.is_none() && self.is_late(&pending) && !was_begun {
            self.skipped(&name, &call_id, "budget");
            return Ok(match questions.is_empty() {
                true => CallResult::not_executed(prompts::BUDGET.to_owned()),
                false => CallResult::unanswered(),
            });
        }
        let planned = match finish {
            Some((result, finish)) => {
                let args =
                    pending.acting.as_ref().map_or_else(|| pending.args(), |acting| acting.args.clone());
                let ran_with = changed(&args, &pending.call);
                let returned = matches!(finish, Some(Ok(_)));
                let done = CallResult { finish, returned, ran_with, ..CallResult::not_executed(result) };
                Planned::Done { args, done: Box::new(done) }
            }
            None => self.plan(position, &mut pending, was_begun).await?,
        };
        // Of a call that began before the run stopped, the start was reported then.
        let was_told = was_begun || !questions.is_empty() || self.was_told(position, &pending).await?;
        if !was_told {
            let (tool, id) = (name.clone(), call_id.clone());
            emit(&self.cx, || AgentEvent::ToolStart { tool, args: planned.args().clone(), id });
        }
        let done = match planned {
            Planned::Done { done, .. } => *done,
            Planned::Run { tool, approved } => {
                self.process(position, &pending, tool, approved, questions).await?
            }
        };
        let done = self.acted(pending.acting.as_ref(), done).await;
        let (result, kept_at) = shorten(&self.deps, &self.cx, &call_id, done.result).await;
        let (media, left_out) = self.deps.config.media.of_result(done.media);
        let result = left_out.into_iter().fold(result, |result, note| format!("{result}\n{note}"));
        let status = if done.returned { ToolStatus::Completed } else { ToolStatus::Error };
        emit(&self.cx, || AgentEvent::ToolEnd { tool: name, id: call_id, result: result.clone(), status });
        Ok(CallResult { result, media, kept_at, ..done })
    }

    /// Decides whether the call runs, and with which arguments; asks an approver if needed.
    async fn plan(
        &self,
        position: usize,
        pending: &mut Pending,
        was_begun: bool,
    ) -> Result<Planned, NodeError> {
        let name = &*pending.name.clone();
        let refused = |pending: &Pending, done: CallResult| {
            Ok(Planned::Done { args: pending.args(), done: Box::new(done) })
        };
        let (Some(tool), Some(checked)) = (self.deps.tools.get(name), &pending.checked) else {
            let finish = Finishing::of(&self.deps.config, &self.state).tool();
            let names = self.deps.tools.names().chain(finish.as_ref().map(|tool| tool.name.as_str()));
            return refused(pending, CallResult::not_executed(prompts::unknown_tool(name, names)));
        };
        let args = match checked {
            Ok(args) => args.clone(),
            Err(ToolCallError::NotJson { detail }) => {
                return refused(pending, CallResult::not_executed(prompts::bad_json(name, detail)));
            }
            Err(error) => {
                let problem = prompts::bad_args(name, &error.to_string());
                return refused(pending, CallResult::not_executed(problem));
            }
        };
        if let Some(reason) = pending.denied() {
            return refused(pending, CallResult::not_executed(prompts::denied(reason)));
        }
        let approved = match self.permission(position, &**tool, pending, args.clone()).await? {
            Permission::Go(approved) => approved,
            // Its result does not change any more.
            _ if was_begun => Approved { args, notice: None, asked: true, rule: None },
            Permission::Answer(text) => {
                let done = CallResult { returned: true, ..CallResult::not_executed(text) };
                return refused(pending, done);
            }
            Permission::No { text, denied } => {
                return refused(pending, CallResult { denied, ..CallResult::not_executed(text) });
            }
        };
        let done = |done| Planned::Done { args: approved.args.clone(), done: Box::new(done) };
        // While an approver was asked.
        if self.is_late(pending) && !was_begun {
            return Ok(done(CallResult::not_executed(prompts::BUDGET.to_owned())));
        }
        if approved.notice.is_some()
            && let Some(refused) = self.recheck(position, pending, &approved.args).await?
        {
            return Ok(done(refused));
        }
        Ok(Planned::Run { tool: tool.clone(), approved })
    }

    /// Runs an approved call, and adds the notice about its arguments to the result.
    async fn process(
        &self,
        position: usize,
        pending: &Pending,
        tool: Arc<dyn Tool>,
        Approved { args, notice, asked, rule }: Approved,
        questions: Vec<ToolQuestion>,
    ) -> Result<CallResult, NodeError> {
        let (call, name, tool) = (&pending.call, &*pending.name, &tool);
        let ran_with = changed(&args, call);
        let done = match self.deps.sub_agents.get(name) {
            Some(agent) => {
                let span = trace::invoke_agent(name, &call.id);
                captured(&span, trace::ARGUMENTS, || args.to_string());
                let done = self.ask_agent(agent, name, position, &args).instrument(span.clone()).await;
                captured(&span, trace::RESULT, || done.result.clone());
                if !done.returned {
                    trace::failed(&span);
                }
                done
            }
            None => self.run_answered(position, tool, pending, (args, asked), questions).await?,
        };
        if let Some(on_tool_error) = self.deps.on_tool_error.as_ref().filter(|_| done.failed) {
            let failure = ToolFailure { tool: name.to_owned(), message: done.result.clone() };
            // A lagging subscriber does not fail the call.
            let _ = catch_unwind(AssertUnwindSafe(|| on_tool_error(&failure)));
        }
        let result = match notice {
            Some(notice) => format!("{notice}\n{}", done.result),
            None => done.result,
        };
        Ok(CallResult { result, rule, ran_with, ..done })
    }

    /// Returns whether the time of the turn is over for a call. A sub-agent's call may be resumed in the
    /// middle, and handles its time itself.
    pub(super) fn is_late(&self, call: &Pending) -> bool {
        self.out_of_time.is_some_and(|end| end <= Instant::now()) && !self.is_sub_agent(call)
    }

    /// Returns whether the start of a call of a sub-agent, which is repeatable, was reported; from now on it is.
    async fn was_told(&self, position: usize, call: &Pending) -> Result<bool, NodeError> {
        let mut was_told = true;
        if !self.is_sub_agent(call) {
            return Ok(false);
        }
        let mark = told(position);
        let told = self.cx.once(&mark, async |_| {
            was_told = false;
            Ok::<_, NodeError>(())
        });
        told.await?;
        Ok(was_told)
    }

    pub(super) fn key(&self, call: &ToolCall) -> String {
        format!("{}/{}", self.cx.key(), call.id)
    }

    /// Runs the call with these arguments, approved or not, and with answers to its questions.
    ///
    /// # Errors
    /// An unanswered question of the tool, with which the call ended.
    pub(super) async fn run(
        &self,
        position: usize,
        tool: Arc<dyn Tool>,
        call: &ToolCall,
        (args, asked, answers): (Value, bool, Vec<AnsweredQuestion>),
    ) -> Result<CallResult, ToolQuestion> {
        let name = &tool.spec().name.clone();
        let cancel = CancellationToken::new();
        let output = Output::new(&self.cx, &call.id, name);
        let tool_cx = self.tool_cx(call, &cancel, &output);
        let (answering, mut questions) = self.asking(answers);
        let mut tool_cx = tool_cx.with_permits(self.permits(&tool, &args, asked)).with_asks(answering);
        if let Some(sent) = self.order.sent(position) {
            tool_cx = tool_cx.with_sent(move || sent.cancel());
        }
        let limit = tool.behaviour().timeout;
        // A separate task isolates its panics, and tools that compute do not block each other.
        let steps = self.deps.steps.clone();
        let called = async move {
            match steps {
                Some(steps) => steps.acting(args, tool_cx, &*tool).await,
                None => tool.call(args, tool_cx).await,
            }
        };
        let mut task = AbortOnDropHandle::new(tokio::spawn(called.in_current_span()));
        let limit = limit.or(self.deps.config.tool_timeout);
        let (text, failed) = tokio::select! {
            biased;
            ended = &mut task => {
                output.close();
                return Ok(self.done(name, ended));
            }
            Some(question) = questions.recv() => {
                cancel.cancel();
                // It may have ended nevertheless.
                let ended = timeout(self.deps.config.cancel_grace, &mut task).await;
                output.close();
                return match ended {
                    Ok(ended @ Ok(Ok(_))) => Ok(self.done(name, ended)),
                    _ => Err(question),
                };
            }
            () = self.cx.cancel().cancelled() => (prompts::INTERRUPTED.to_owned(), false),
            () = expired(limit) => (prompts::timed_out(name, limit.unwrap_or_default().as_millis()), true),
            () = until(self.out_of_time) => (prompts::BUDGET_STOPPED.to_owned(), false),
        };
        cancel.cancel();
        if timeout(self.deps.config.cancel_grace, &mut task)
            .await
            .is_ok_and(|ended| matches!(ended, Ok(Ok(_))))
        {
            emit(&self.cx, || AgentEvent::LateResult { tool: name.clone(), id: call.id.clone() });
        }
        output.close();
        Ok(CallResult { executed: true, failed, ..CallResult::not_executed(text) })
    }

    fn tool_cx(&self, call: &ToolCall, cancel: &CancellationToken, output: &Output) -> ToolCx {
        let output = output.clone();
        let tool_cx = ToolCx::new(&call.id).with_output(move |chunk| output.emit(chunk));
        let mut tool_cx = self.outer.clone().give(tool_cx).with_shared(self.state.clone());
        if let Some(thread) = self.cx.thread() {
            tool_cx = tool_cx.with_extension(thread.clone());
        }
        if let Ok(store) = self.cx.shared_store() {
            tool_cx = tool_cx.with_extension(store);
        }
        if let Some(context) = self.context() {
            tool_cx = tool_cx.with_extension(Value::Object(context));
        }
        tool_cx.idempotency_key = self.key(call);
        tool_cx.cancel = cancel.clone();
        tool_cx
    }

    /// Returns the context of the run, with the folder of the turn as `cwd` if its input has one.
    fn context(&self) -> Option<Map<String, Value>> {
        let context = self.cx.context().ok();
        let Some(folder) = &self.state.cwd else { return context };
        let mut context: Map<String, Value> = context.unwrap_or_default();
        context.insert(folder::KEY.to_owned(), folder.to_string_lossy().into());
        Some(context)
    }

    /// Returns the result of a call whose tool ran.
    pub(super) fn done(
        &self,
        name: &str,
        ended: Result<Result<ToolReply, ToolError>, JoinError>,
    ) -> CallResult {
        let done = |result| CallResult { executed: true, ..CallResult::not_executed(result) };
        // A denial by a tool is not a failure.
        let failed = !matches!(ended, Ok(Err(ToolError::Denied(_) | ToolError::InvalidArguments(_))));
        let ToolReply { text, media, update } = match reply(name, ended) {
            Ok(reply) => reply,
            Err(text) => return CallResult { failed, ..done(text) },
        };
        // A missing update is `null`; nothing else is stored as `null`.
        let update = update.filter(|update| !update.is_null());
        match update.as_ref().map(|update| self.outer.check(update)) {
            Some(Err(problem)) => CallResult { failed: true, ..done(prompts::failed(name, &problem)) },
            Some(Ok(())) | None => CallResult { update, media, returned: true, ..done(text) },
        }
    }
}

/// Returns the arguments of a call if they are not those that the model wrote.
fn changed(args: &Value, call: &ToolCall) -> Option<Value> {
    (*args != parts::arguments(call)).then(|| args.clone())
}

/// Returns the tool's reply, or the error for the model.
fn reply(name: &str, ended: Result<Result<ToolReply, ToolError>, JoinError>) -> Result<ToolReply, String> {
    match ended {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(ToolError::Denied(reason))) => Err(prompts::denied(&reason)),
        Ok(Err(ToolError::InvalidArguments(detail))) => Err(prompts::bad_args(name, &detail)),
        Ok(Err(error)) => Err(prompts::failed(name, &error.to_string())),
        Err(ended) => {
            let why = match ended.try_into_panic() {
                Ok(panic) => prompts::tool_panicked(&*panic),
                // The task is not aborted while its result is awaited, except by a runtime that shuts down.
                Err(_) => "the program is shutting down".to_owned(),
            };
            Err(prompts::failed(name, &why))
        }
    }
}
