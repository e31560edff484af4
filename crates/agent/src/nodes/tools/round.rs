//! The shared state of a round of tool calls.
//!
//! Start at [`Round`].

use std::{
    future::pending,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use superstep_graph::Cx;
use superstep_llm::{Behaviour, Tool, calls::Sequence};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{keys::QuestionKeys, pending::Pending, tool_updates::OuterState};
use crate::{
    AgentEvent, AgentState,
    approval::Trust,
    config::{PermissionRule, Permit, ToolMode},
    deps::AgentDeps,
    events::emit,
    state::HookFailure,
};

/// A round of tool calls; all calls share it.
pub(super) struct Round {
    pub(super) deps: AgentDeps,
    pub(super) cx: Cx,
    /// The agent's state at the start of the round.
    pub(super) state: Arc<AgentState>,
    /// The state of the graph, which may have more channels.
    pub(super) outer: Arc<dyn OuterState>,
    /// The permanent grants of this thread before this round.
    pub(super) granted: Vec<PermissionRule>,
    /// The permanent grants including later ones.
    permissions: Mutex<Vec<PermissionRule>>,
    /// Held during a question to the approver, so that there is one at a time.
    pub(super) asking: tokio::sync::Mutex<()>,
    pub(super) keys: QuestionKeys,
    pub(super) order: Order,
    /// The running calls, which a question waits for.
    pub(super) running: RunningCalls,
    /// Number of sub-agent calls in the round, which share the remaining budget.
    pub(super) sub_calls: usize,
    /// The end of the turn's time.
    pub(super) out_of_time: Option<Instant>,
    /// The first hook that failed.
    pub(super) failed: OnceLock<HookFailure>,
    /// Fires when a tool fails, if that ends the turn.
    pub(super) tool_failed: CancellationToken,
}

impl Round {
    /// Begins a round of these calls, for which the turn has this time.
    pub(super) fn new(
        deps: AgentDeps,
        outer: Arc<dyn OuterState>,
        state: &AgentState,
        calls: &[Pending],
        time: Option<Duration>,
        cx: &Cx,
    ) -> Self {
        let granted = granted(&deps, state, cx);
        Self {
            permissions: Mutex::new(granted.clone()),
            granted,
            asking: tokio::sync::Mutex::new(()),
            keys: QuestionKeys::of(calls.iter().map(|call| call.call.id.as_str())),
            order: Order::default(),
            running: RunningCalls::default(),
            failed: OnceLock::new(),
            tool_failed: CancellationToken::new(),
            out_of_time: time.map(|left| Instant::now() + left),
            sub_calls: 0,
            state: Arc::new(state.clone()),
            outer,
            deps,
            cx: cx.clone(),
        }
    }

    /// Sets the order of all calls of the round, and the number of those that share the remaining budget.
    pub(super) fn arrange(&mut self, calls: &[Pending]) {
        self.order = Order::of(&self.deps, calls);
        let may_run = |call: &Pending| call.may_run() && call.denied().is_none();
        self.sub_calls = calls.iter().filter(|call| may_run(call) && self.is_sub_agent(call)).count();
    }

    /// Returns the maximum number of parallel calls.
    pub(super) fn at_once(&self) -> usize {
        match self.deps.config.tool_mode {
            ToolMode::Sequential => 1,
            ToolMode::Parallel { max } => max.max(1),
        }
    }

    /// Returns whether this call must run alone.
    pub(super) fn is_alone(&self, call: &Pending) -> bool {
        call.may_run() && self.behaviour(call).exclusive
    }

    /// Returns whether a call is one of a sub-agent.
    pub(super) fn is_sub_agent(&self, call: &Pending) -> bool {
        self.deps.sub_agents.contains_key(&call.name)
    }

    pub(super) fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.deps.tools.get(name)
    }

    pub(super) fn behaviour(&self, call: &Pending) -> Behaviour {
        self.tool(&call.name).map(|tool| tool.behaviour()).unwrap_or_default()
    }

    /// Returns whether the time of the turn is over for a call. A sub-agent's call may be resumed in the
    /// middle, and handles its time itself.
    pub(super) fn is_late(&self, call: &Pending) -> bool {
        self.out_of_time.is_some_and(|end| end <= Instant::now()) && !self.is_sub_agent(call)
    }

    /// Returns the rules that were granted on the thread, also during this round.
    pub(super) fn grants(&self) -> Vec<PermissionRule> {
        self.permissions.lock().expect("no code panics while holding the lock").clone()
    }

    /// Adds a permanent grant for the later calls of the round.
    pub(super) fn grant(&self, rule: Option<PermissionRule>) {
        let rule = rule.filter(|rule| rule.problem().is_none());
        self.permissions.lock().expect("no code panics while holding the lock").extend(rule);
    }

    /// Ends the turn after this round. The first failure is reported.
    pub(super) fn fail(&self, failure: HookFailure) {
        let _ = self.failed.set(failure);
    }

    /// Emits that a call is answered without execution.
    pub(super) fn skipped(&self, call: &Pending, reason: &str) {
        emit(&self.cx, || AgentEvent::ToolSkipped {
            tool: call.name.clone(),
            id: call.call.id.clone(),
            reason: reason.to_owned(),
        });
    }
}

/// Returns the rules that were granted on the thread, without untrusted ones and those granted for another
/// folder.
fn granted(deps: &AgentDeps, state: &AgentState, cx: &Cx) -> Vec<PermissionRule> {
    let is_here = state.permitted_in == state.cwd;
    let is_foreign = |rule: &&PermissionRule| {
        let knows = |trust: &Arc<dyn Trust>| trust.is_granted(cx.thread(), rule);
        rule.then == Permit::Allow && !(is_here && deps.trust.as_ref().is_none_or(knows))
    };
    let foreign: Vec<_> = state.permissions.iter().filter(is_foreign).cloned().collect();
    let foreign = cx.noted("foreign", foreign);
    state.permissions.iter().filter(|rule| !foreign.contains(rule)).cloned().collect()
}

/// The order of a response's calls within the sequences of their tools, such as those to one server.
#[derive(Default)]
pub(super) struct Order {
    places: Vec<Option<QueuePosition>>,
}

struct QueuePosition {
    sequence: String,
    overlaps: bool,
    /// Fires when the call was sent.
    sent: CancellationToken,
    /// Fires when the call is answered.
    answered: CancellationToken,
}

impl Order {
    /// Returns the order of all calls of a response.
    fn of(deps: &AgentDeps, calls: &[Pending]) -> Self {
        let place = |call: &Pending| {
            let Sequence { name, overlaps } = deps.tools.get(&call.name)?.sequence()?;
            let (sent, answered) = (CancellationToken::new(), CancellationToken::new());
            Some(QueuePosition { sequence: name.to_owned(), overlaps, sent, answered })
        };
        // The calls may be in another order than in the response.
        let mut places: Vec<_> = calls.iter().map(|_| None).collect();
        for call in calls {
            places[call.position] = place(call);
        }
        Self { places }
    }

    /// Marks the call as answered when the guard is dropped.
    pub(super) fn until_answered(&self, position: usize) -> Option<DropGuard> {
        Some(self.places[position].as_ref()?.answered.clone().drop_guard())
    }

    /// Returns the token to cancel when the call was sent.
    pub(super) fn sent(&self, position: usize) -> Option<CancellationToken> {
        Some(self.places[position].as_ref()?.sent.clone())
    }

    /// Waits until the call may be sent.
    pub(super) async fn turn(&self, position: usize) {
        let Some(place) = &self.places[position] else { return };
        let earlier = self.places[..position].iter().flatten();
        for before in earlier.filter(|before| before.sequence == place.sequence) {
            if place.overlaps && before.overlaps {
                tokio::select! {
                    () = before.sent.cancelled() => {}
                    () = before.answered.cancelled() => {}
                }
            } else {
                before.answered.cancelled().await;
            }
        }
    }

    /// Returns whether a call has to wait for one of the calls at these positions.
    pub(super) fn is_behind(&self, position: usize, mut others: impl Iterator<Item = usize>) -> bool {
        let Some(place) = &self.places[position] else { return false };
        others.any(|other| {
            let other = self.places[other].as_ref().filter(|_| other < position);
            other.is_some_and(|other| other.sequence == place.sequence)
        })
    }
}

/// The count of running calls. An interrupt ends the node, so a question waits until there are none, and none
/// begins after it.
#[derive(Default)]
pub(super) struct RunningCalls(watch::Sender<Count>);

#[derive(Default)]
struct Count {
    running: usize,
    has_asked: bool,
}

/// Adds or removes one call from the count until it is dropped.
pub(super) struct Counted<'a> {
    calls: &'a RunningCalls,
    is_pause: bool,
}

impl RunningCalls {
    /// Counts a call that starts running. Does not return once the node is about to end.
    pub(super) async fn begin(&self) -> Counted<'_> {
        if self.0.borrow().has_asked {
            pending::<()>().await;
        }
        self.0.send_modify(|count| count.running += 1);
        Counted { calls: self, is_pause: false }
    }

    /// Excludes a call that waits for an answer.
    pub(super) fn pause(&self) -> Counted<'_> {
        self.0.send_modify(|count| count.running -= 1);
        Counted { calls: self, is_pause: true }
    }

    /// Waits until no call is running, and prevents new ones.
    pub(super) async fn end(&self) {
        let over = self.0.subscribe().wait_for(|count| count.running == 0).await.map(drop);
        over.expect("the sender lives as long as this");
        self.0.send_modify(|count| count.has_asked = true);
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let is_pause = self.is_pause;
        let change = |count: &mut Count| if is_pause { count.running += 1 } else { count.running -= 1 };
        self.calls.0.send_modify(change);
    }
}
