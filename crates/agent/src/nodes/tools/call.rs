//! Execution of one call.
//!
//! Start at [`answer`].

mod questions;
mod sub_agent;
mod tool_run;
mod unknown_outcome;

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;
use superstep_graph::NodeError;
use superstep_llm::{Behaviour, ToolCall, calls::ToolQuestion, telemetry::captured};
use tracing::Instrument as _;

use super::{
    answer::{Answer, CallResult},
    decision::{Approved, Decision, about, decide},
    hooks::acted,
    keys::{asks, result_of, start_event_key},
    pending::{Left, Pending},
    round::{Counted, Round},
};
use crate::{
    AgentEvent,
    config::{ToolErrors, prompts},
    context::finish::Finishing,
    events::emit,
    hooks::ToolFailure,
    nodes::parts,
    state::{Part, ToolStatus},
    trace,
};

/// A call in execution, with what an earlier run of the node stored of it.
struct Call<'a> {
    round: &'a Round,
    pending: Pending,
    /// The questions of its tool so far, in their order.
    questions: Vec<ToolQuestion>,
    /// A process that stopped while the call ran has recorded its start, after these questions.
    was_begun: bool,
}

/// Answers a call, once: if the node runs again, the answer is stored.
pub(super) async fn answer(round: &Round, pending: Pending) -> Result<Answer, NodeError> {
    let (cx, position) = (&round.cx, pending.position);
    let _answered = round.order.until_answered(position);
    let behaviour = round.behaviour(&pending);
    let (call_id, name) = (pending.call.id.clone(), pending.name.clone());
    let is_cancelled = pending.left == Left::Nothing && cx.cancel().is_cancelled();
    let refused = if cx.noted(&format!("cancelled.{position}"), is_cancelled) {
        Some((prompts::INTERRUPTED.to_owned(), "cancelled"))
    } else {
        pending.refused.clone()
    };
    let done = match refused {
        Some((result, reason)) => {
            round.skipped(&pending, reason);
            CallResult::not_executed(result)
        }
        None => {
            let key = result_of(position);
            cx.compared(&key, || about(round, &pending)).await;
            // Counts as running until the result is stored.
            let mut running = None;
            cx.once(&key, async |_| run_once(round, pending, behaviour, &mut running).await).await?
        }
    };
    if let Some(failure) = &done.hook_error {
        round.fail(failure.clone());
    }
    if done.failed && round.deps.config.tool_errors == ToolErrors::Fail {
        round.tool_failed.cancel();
    }
    let part = part(round, position, &done)?;
    Ok(Answer { position, call_id, name, is_final: behaviour.answers, part, done })
}

/// Returns the part of an answered call, if the agent records parts.
fn part(round: &Round, position: usize, done: &CallResult) -> Result<Option<Part>, NodeError> {
    let Some(message) = round.state.messages.last().filter(|_| round.deps.config.parts) else {
        return Ok(None);
    };
    let part = parts::ended(&round.state, message, position, done.end(), &round.cx)?;
    let part = parts::ran_with(part, done.ran_with.clone());
    emit(&round.cx, || AgentEvent::Part(part.clone()));
    Ok(Some(part))
}

async fn run_once<'a>(
    round: &'a Round,
    pending: Pending,
    behaviour: Behaviour,
    running: &mut Option<Counted<'a>>,
) -> Result<CallResult, NodeError> {
    round.order.turn(pending.position).await;
    *running = Some(round.running.begin().await);
    let mut call = Call::new(round, pending, behaviour).await;
    let finished = call.finished();
    if let Some((done, reason)) = call.stopped(finished.is_some()) {
        round.skipped(&call.pending, reason);
        return Ok(done);
    }
    let decision = match finished {
        Some(finished) => finished,
        None => decide(round, &mut call.pending, call.was_begun).await?,
    };
    let (name, call_id) = (call.pending.name.clone(), call.pending.call.id.clone());
    // Of a call that began before the run stopped, the start was emitted then.
    if !(call.was_begun || !call.questions.is_empty() || call.start_was_emitted().await?) {
        let (tool, id) = (name.clone(), call_id.clone());
        emit(&round.cx, || AgentEvent::ToolStart { tool, args: decision.args().clone(), id });
    }
    let done = match decision {
        Decision::Done { done, .. } => *done,
        Decision::Run(approved) => call.run(approved).await?,
    };
    let done = acted(round, call.pending.acting.as_ref(), done).await;
    let mut done = done.shortened(&round.deps, &call_id, &round.cx).await;
    if done.executed && done.returned {
        // Hooks may have changed the name that the model wrote.
        done.transfer = round.deps.group.transfers.get(&name).map(|to| to.to_string());
    }
    let status = if done.returned { ToolStatus::Completed } else { ToolStatus::Error };
    let result = done.result.clone();
    emit(&round.cx, || AgentEvent::ToolEnd { tool: name, id: call_id, result, status });
    Ok(done)
}

impl<'a> Call<'a> {
    async fn new(round: &'a Round, pending: Pending, behaviour: Behaviour) -> Self {
        let mut call = Self { round, pending, questions: Vec::new(), was_begun: false };
        call.restore_questions().await;
        call.was_begun = !behaviour.idempotent && round.cx.has_result(&call.begun_key());
        call
    }

    /// Returns the result and the reason if the call is not executed any more.
    fn stopped(&self, finishes: bool) -> Option<(CallResult, &'static str)> {
        let Self { round, pending, questions, was_begun } = self;
        let began = *was_begun
            || !questions.is_empty()
            || (round.is_sub_agent(pending) && round.cx.has_result(&start_event_key(pending.position)));
        let unless_asked = |text| {
            if questions.is_empty() { CallResult::not_executed(text) } else { CallResult::unanswered() }
        };
        // Concurrent calls are awaited, also after a pause.
        if round.failed.get().is_some() && !began {
            Some((CallResult::not_executed(prompts::HOOK_FAILED), "hook_error"))
        } else if round.tool_failed.is_cancelled() && !began {
            Some((CallResult::not_executed(prompts::TOOL_FAILED), "tool_error"))
        } else if round.cx.cancel().is_cancelled() && !was_begun {
            // While it waited for others, or before its turn was resumed. The outcome of a begun call is asked for in any case.
            Some((unless_asked(prompts::INTERRUPTED), "cancelled"))
        } else if !finishes && round.is_late(pending) && !was_begun {
            Some((unless_asked(prompts::BUDGET), "budget"))
        } else {
            None
        }
    }

    /// Returns the result of a finish tool call; `None` for another tool.
    fn finished(&self) -> Option<Decision> {
        let Self { round, pending, .. } = self;
        let acting = pending.acting.as_ref().map(|acting| &acting.args);
        let written = match acting {
            Some(args) if !args.is_string() => args.to_string(),
            _ => pending.call.arguments.clone(),
        };
        let finish = Finishing::of(&round.deps.config, &round.state).called(&pending.name, &written)?;
        let (text, finish) = match (pending.denied(), finish) {
            (Some(reason), _) => (prompts::denied(reason), None),
            (None, Ok(finish)) => (prompts::FINISHED.to_owned(), Some(Ok(finish))),
            (None, Err(problem)) => (prompts::bad_finish(&problem), Some(Err(problem))),
        };
        let args = acting.cloned().unwrap_or_else(|| pending.args());
        let (returned, ran_with) = (matches!(finish, Some(Ok(_))), changed(&args, &pending.call));
        let done = CallResult { finish, returned, ran_with, ..CallResult::not_executed(text) };
        Some(Decision::done(args, done))
    }

    /// Returns whether the start of a call of a sub-agent, which is repeatable, was emitted; from now on it is.
    async fn start_was_emitted(&self) -> Result<bool, NodeError> {
        if !self.round.is_sub_agent(&self.pending) {
            return Ok(false);
        }
        let mut was_emitted = true;
        let key = start_event_key(self.pending.position);
        let start = self.round.cx.once(&key, async |_| {
            was_emitted = false;
            Ok::<_, NodeError>(())
        });
        start.await?;
        Ok(was_emitted)
    }

    /// Runs an approved call, and adds the notice about its arguments to the result.
    async fn run(&mut self, approved: Approved) -> Result<CallResult, NodeError> {
        let Self { round, pending, .. } = &*self;
        let ran_with = changed(&approved.args, &pending.call);
        let done = match round.deps.sub_agents.get(&pending.name) {
            Some(agent) => {
                let span = trace::invoke_agent(&pending.name, &pending.call.id);
                captured(&span, trace::ARGUMENTS, || approved.args.to_string());
                let done = self.run_agent(agent, &approved.args).instrument(span.clone()).await;
                captured(&span, trace::RESULT, || done.result.clone());
                if !done.returned {
                    trace::failed(&span);
                }
                done
            }
            None => self.run_answered(&approved).await?,
        };
        let deps = &self.round.deps;
        if let Some(on_tool_error) = deps.on_tool_error.as_ref().filter(|_| done.failed) {
            let failure = ToolFailure { tool: self.pending.name.clone(), message: done.result.clone() };
            // A lagging subscriber does not fail the call.
            let _ = catch_unwind(AssertUnwindSafe(|| on_tool_error(&failure)));
        }
        let result = match approved.notice {
            Some(notice) => format!("{notice}\n{}", done.result),
            None => done.result,
        };
        Ok(CallResult { result, rule: approved.rule, ran_with, ..done })
    }

    /// Runs the call, and again after each answer to a question of its tool.
    async fn run_answered(&mut self, approved: &Approved) -> Result<CallResult, NodeError> {
        loop {
            let answers = self.answers(&approved.args).await?;
            if let Some(done) = self.unknown_outcome(&approved.tool).await? {
                return Ok(done);
            }
            let span = trace::execute_tool(&self.pending.name, &self.pending.call.id);
            captured(&span, trace::ARGUMENTS, || approved.args.to_string());
            match self.run_tool(approved, answers).instrument(span.clone()).await {
                Ok(done) => {
                    captured(&span, trace::RESULT, || done.result.clone());
                    if !done.returned {
                        trace::failed(&span);
                    }
                    if self.questions.is_empty() {
                        return Ok(done);
                    }
                    let note = prompts::sent_again(self.questions.len() + 1);
                    return Ok(CallResult { result: format!("{note}\n{}", done.result), ..done });
                }
                Err(question) => {
                    let key = asks(self.pending.position, self.questions.len());
                    let stored = self.round.cx.once(&key, async |_| Ok::<_, NodeError>(question)).await?;
                    self.questions.push(stored);
                }
            }
        }
    }

    /// Returns the key with which the tool recognizes a repetition of the call.
    fn idempotency_key(&self) -> String {
        format!("{}/{}", self.round.cx.key(), self.pending.call.id)
    }
}

/// Returns the arguments of a call if they are not those that the model wrote.
fn changed(args: &Value, call: &ToolCall) -> Option<Value> {
    (*args != parts::arguments(call)).then(|| args.clone())
}
