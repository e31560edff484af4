//! Calls of sub-agents: each is a nested run of another graph.

use std::{
    future::pending,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::Value;
use superstep_graph::{State, call::Seen, error::chain};
use superstep_llm::Message;

use super::Call;
use crate::{
    AgentOutcome, AgentState,
    config::prompts,
    deps::SubAgent,
    nodes::{
        budget::{expired, until},
        tools::answer::CallResult,
    },
};

impl Call<'_> {
    // Not in a task of its own like other tools: a question inside of it ends this node, and the driver polls the node, not its tasks. The
    // call is one recorded result; a replay of the caller does not replay the sub-agent.
    /// Runs a turn of a sub-agent. If it is interrupted, this never returns, and the node runs again with the
    /// answer; the sub-agent resumes from its checkpoint.
    pub(super) async fn run_agent(&self, agent: &SubAgent, args: &Value) -> CallResult {
        let (round, name) = (self.round, &self.pending.name);
        let share = agent.share / round.sub_calls.max(1) as f64;
        let spent = round.state.spent(round.cx.now_ms());
        let mut input = AgentState::update()
            .messages([Message::user(args["task"].as_str().unwrap_or_default())])
            .user_id(round.state.user_id.clone())
            .granted(spent.grant(&round.deps.config.budget, share));
        if let Some(folder) = &round.state.cwd {
            input = input.cwd(folder.clone());
        }
        let key = format!("{name}.{}", self.pending.position);
        let limit = agent.timeout.or(round.deps.config.tool_timeout);
        let watched = Arc::new(Watched::default());
        let watch = {
            let watched = watched.clone();
            move |seen: Seen<'_, AgentState>| watched.see(&seen)
        };
        let (text, failed) = tokio::select! {
            biased;
            // First, because a cancelled graph would end this node as well: the call would have no result, and the turn no end.
            () = round.cx.cancel().cancelled() => (prompts::INTERRUPTED.to_owned(), false),
            () = watched.while_at_work(expired(limit)) => {
                (prompts::timed_out(name, limit.unwrap_or_default().as_millis()), true)
            }
            () = watched.while_at_work(until(round.out_of_time)) => (prompts::BUDGET_STOPPED.to_owned(), false),
            ended = round.cx.call(&agent.graph, input).key(&*key).watch(watch).into_future() => match ended {
                Ok(state) => return reply(name, state),
                Err(error) => (prompts::failed(name, &chain(error.cause())), true),
            },
        };
        CallResult { executed: true, failed, ..watched.done(text) }
    }
}

// The last report is the cost of a sub-agent that does not complete: its thread is not stored without a checkpointer.
/// The state of a running sub-agent.
#[derive(Default)]
struct Watched {
    spent: Mutex<CallResult>,
    /// The call waits for an external answer.
    waits: AtomicBool,
}

impl Watched {
    fn see(&self, seen: &Seen<'_, AgentState>) {
        match seen {
            Seen::State(state) => *self.spent() = spent(state),
            Seen::Waits => self.waits.store(true, Ordering::Relaxed),
            _ => {}
        }
    }

    fn spent(&self) -> MutexGuard<'_, CallResult> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end of its time, which is paused while it waits for an answer.
    async fn while_at_work(&self, end: impl Future<Output = ()>) {
        end.await;
        if self.waits.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
    }

    /// Returns the result of a call without a reply.
    fn done(&self, text: String) -> CallResult {
        let spent = std::mem::take(&mut *self.spent());
        CallResult { result: text, usage: Some(spent.usage.unwrap_or_default()), ..spent }
    }
}

/// Returns a result with the tokens and the cost of a sub-agent only.
fn spent(state: &AgentState) -> CallResult {
    CallResult {
        usage: Some(state.usage),
        usage_by_model: state.usage_by_model.clone(),
        estimated_cost: state.estimated_cost.clone(),
        ..CallResult::default()
    }
}

/// Returns the result of a turn for the caller's model, with the cost of the turn.
fn reply(name: &str, state: AgentState) -> CallResult {
    let failed = matches!(
        state.outcome,
        Some(AgentOutcome::LlmError | AgentOutcome::HookFailed | AgentOutcome::ToolFailed)
    );
    let spent = spent(&state);
    let result = if failed { prompts::failed(name, &state.final_reply) } else { state.final_reply };
    CallResult { executed: true, returned: !failed, failed, result, ..spent }
}
