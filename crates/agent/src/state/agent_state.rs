//! The state of the agent.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_graph::{
    Log, State, ThreadId,
    state::{ById, IdOf, Merge, Merges},
};
use superstep_llm::{Message, ModelErrorKind, Role, ToolCall, Usage, snapshots::FileChanges};

use super::{
    cost::{ModelCost, TurnCost, cost_of},
    guarding::{GuardVerdict, Guarding},
    guidance::Guidance,
    handoffs::{HandoffView, Handoffs, Parked},
    hook_failure::HookFailure,
    outcome::{AgentOutcome, StopReason},
    parts::Parts,
    request_frame::RequestFrame,
    spent::Spent,
    view::{ContextView, RequestSize},
};
use crate::{
    config::{Budget, PermissionRule, Pin, PinSource, pins},
    plain_name::hash_of,
};

/// Selects the id of a [`Message`].
#[derive(Clone, Copy, Debug)]
pub enum MessageIds {}

impl IdOf<Message> for MessageIds {
    fn id(message: &Message) -> &str {
        &message.id
    }

    fn set_id(message: &mut Message, id: String) {
        message.to_mut().id = id;
    }
}

/// The conversation.
pub type Messages = ById<Message, MessageIds>;

/// The pins of a thread, in the order in which they were added.
pub type Pins = ById<Pin>;

/// The state of the agent graph.
///
/// `messages`, `pins`, `guidance`, `context`, `request_size`, `parts`, `files`, `steered`, `offered`, `frame`, `permissions`,
/// `permitted_in`, `active` and `handoffs` last as long as the thread, `hints` until they are sent, `compact` until the summary, `user_id` and
/// `cwd` until another input writes them. Every other channel belongs to one turn and is reset at the next one.
#[derive(State, Clone, Debug, Default, PartialEq)]
pub struct AgentState {
    /// The conversation: messages of users, the model and tools, without the system prompt.
    #[channel(merge_by_id)]
    pub messages: Messages,
    /// User messages added to the end of the next request only, not to the conversation. They stay until that
    /// request is answered.
    #[channel(append)]
    pub hints: Log<String>,
    /// The texts that requests contain although earlier messages are left out; see [`AgentState::pin`].
    #[channel(merge_by_id)]
    pub pins: Pins,
    /// The instructions and skills that the thread has read, see [`AgentBuilder::instructions`](crate::AgentBuilder::instructions).
    pub guidance: Guidance,
    /// The parts of the model's responses, in order; empty unless
    /// [`ReactConfig::parts`](crate::ReactConfig::parts) is on.
    #[channel(merge_by_id)]
    pub parts: Parts,
    /// The file changes of the last round of tools with snapshots; see [`Snapshots`](superstep_llm::snapshots::Snapshots).
    pub files: Option<FileChanges>,
    /// The number of the last message in the conversation that was sent while a turn ran, see
    /// [`steer`](crate::steer()).
    pub steered: u64,
    /// The user whose memory is used, see [`LongTermMemory`](crate::deps::LongTermMemory); empty for the thread's
    /// own. It stays until another input writes it.
    pub user_id: String,
    /// The tools' folder, if it differs from the one they were made for: given with the input of a turn, and
    /// of a sub-agent by its caller. Canonical once the turn has begun.
    pub cwd: Option<PathBuf>,
    /// An additional budget of the turn: given with the input by an agent that calls this one.
    pub granted: Option<Budget>,
    /// Number of tool rounds in this turn.
    pub current_step: u32,
    /// Maximum number of rounds.
    pub max_steps: u32,
    /// Number of accepted model responses in this turn.
    pub llm_calls: u32,
    /// Number of model requests sent in this turn, including retries.
    pub model_requests: u32,
    /// Tokens of this turn; estimated where the provider did not report them, see [`LastAnswer::estimated`].
    pub usage: Usage,
    /// Tokens by model, once another model than the main one was called in this turn, also by sub-agents;
    /// empty before that. A sub-agent's turn always reports them.
    pub usage_by_model: BTreeMap<String, Usage>,
    /// The estimated cost of this turn by model, also of sub-agents, where the prices are known; see [`AgentState::cost`].
    pub estimated_cost: BTreeMap<String, ModelCost>,
    /// The name of the fallback model that gave this turn's last response; it is called first for the next
    /// one. Empty for the main model.
    // A return to the main model within the turn would wait for its retries before every call, and could send the
    // reasoning of one model to the other. Staying permanently would let one bad minute decide for the thread.
    pub model: String,
    /// The start of the turn in UTC milliseconds by the clock of the run, if its time is limited.
    pub started_ms: i64,
    /// The answered tool calls of this turn, in call order.
    #[channel(append)]
    pub tool_call_history: Log<ToolCallRecord>,
    /// Their results, in the same order, without the paths of full texts.
    #[channel(append)]
    pub tool_result_history: Log<String>,
    /// The executed tools of this turn, in call order, with repetitions.
    #[channel(append)]
    pub tools_used: Log<String>,
    /// Calls of a model that was offered no tools; never executed.
    #[channel(append)]
    pub ignored_tool_calls: Log<ToolCall>,
    /// Facts about the model's last response beside its message.
    pub answer: LastAnswer,
    /// The sent part of the conversation.
    pub context: ContextView,
    /// A summary of the conversation precedes the first model call of the turn, also of a small request. Given with the input;
    /// removed once the summary is made or has failed, and at the end of the turn.
    pub compact: bool,
    /// The size of the last request.
    pub request_size: RequestSize,
    /// The rules granted permanently on this thread.
    #[channel(append)]
    pub permissions: Log<PermissionRule>,
    /// The `cwd` of the turn in which they were granted. In a turn with another one, allowing rules do not
    /// apply.
    pub permitted_in: Option<PathBuf>,
    /// The source tools as recorded by the last superstep in which they changed: a JSON text each, with the
    /// specification. A replay offers them again, see [`ReplayTools`](crate::replay::ReplayTools).
    pub offered: Log<String>,
    /// The parts of the last request around the conversation: the model, the system prompt, the tools and the schema, as recorded
    /// when they changed.
    pub frame: RequestFrame,
    /// The agent that has the conversation; empty for the first one, see [`Handoff`](crate::deps::Handoff).
    pub active: String,
    /// The views and grants of the agents that have had it.
    pub handoffs: Handoffs,
    /// The progress of the guards in this turn; see [`guards`](crate::guards).
    pub guarding: Guarding,
    /// The verdicts of guards in this turn.
    #[channel(append)]
    pub verdicts: Log<GuardVerdict>,
    /// The turn ends now.
    pub stop: bool,
    /// The reason why the turn ended before the model was done.
    pub stop_reason: StopReason,
    /// The outcome of the turn.
    pub outcome: Option<AgentOutcome>,
    /// The failure of the model.
    pub error: Option<ModelFailure>,
    /// The failed hook, if any.
    pub hook_error: Option<HookFailure>,
    /// The JSON Schema of this turn's reply, if it differs from the configuration. Given with the input;
    /// removed at the end of the turn.
    pub output_schema: Option<Value>,
    /// The structured reply; `None` if there is no schema, or no matching reply.
    pub output: Option<Value>,
    /// The problem of the last invalid reply; empty if there was none.
    pub output_problem: String,
    /// The reply to the user, made at the end of the turn.
    pub final_reply: String,
    /// The summary of the turn.
    pub metadata: Metadata,
}

/// Facts about the model's last response, and about consecutive ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastAnswer {
    /// The answer was truncated, so its tool calls must not be executed.
    #[serde(skip_serializing_if = "is_default")]
    pub cut_off: bool,
    /// Number of consecutive truncated responses with tool calls.
    #[serde(skip_serializing_if = "is_default")]
    pub cut_rounds: u32,
    /// The answer is a part of a message, which the model is called to finish.
    #[serde(skip_serializing_if = "is_default")]
    pub continuing: bool,
    /// Number of continuations in this turn.
    #[serde(skip_serializing_if = "is_default")]
    pub continuations: u32,
    /// Number of consecutive empty responses that were not accepted.
    #[serde(skip_serializing_if = "is_default")]
    pub empty: u32,
    /// The model must be called again before anything else.
    #[serde(skip_serializing_if = "is_default")]
    pub again: bool,
    /// The reason why its tool calls must not be executed, if no more are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
    /// The reply was given by a call of the finish tool.
    #[serde(skip_serializing_if = "is_default")]
    pub finished: bool,
    /// Number of invalid replies in this turn.
    #[serde(skip_serializing_if = "is_default")]
    pub invalid: u32,
    /// Number of times that a user message extended the turn.
    #[serde(skip_serializing_if = "is_default")]
    pub steered: u32,
    /// The budget warning was emitted.
    #[serde(skip_serializing_if = "is_default")]
    pub budget_warned: bool,
    /// Some tokens of the turn were estimated.
    #[serde(skip_serializing_if = "is_default")]
    pub estimated: bool,
}

/// The reason why complete tool calls are not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The step limit was reached before the call.
    StepLimit,
    /// The budget of the turn is used up.
    Budget,
}

/// A tool call as the histories store it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCallRecord {
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The arguments; a string with the model's text if they are not valid JSON.
    pub args: Value,
}

/// The summary of a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// Number of tool rounds.
    pub steps_taken: u32,
    /// The executed tools, in call order, with repetitions.
    pub tools_used: Vec<String>,
    /// The reason why the turn ended before the model was done.
    pub stop_reason: StopReason,
    /// Number of accepted model responses.
    pub llm_calls: u32,
    /// The turn was cancelled.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_interrupted: bool,
    /// The name of the fallback model that replied; empty for the main one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub model: String,
    /// Tokens by model, if another than the main one was called.
    #[serde(default, skip_serializing_if = "is_default")]
    pub usage_by_model: BTreeMap<String, Usage>,
    /// The estimated cost by model, where the prices are known.
    #[serde(default, skip_serializing_if = "is_default")]
    pub estimated_cost: BTreeMap<String, ModelCost>,
    /// Calls of the model although it was offered no tools; never executed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ignored_tool_calls: Vec<ToolCall>,
    /// Number of tokens by which the last request exceeded its limit, because it could not be reduced.
    #[serde(default, skip_serializing_if = "is_default")]
    pub over_context: u64,
}

impl AgentState {
    /// Returns the update that adds pins, with the message by which the model learns of them. Apply it between two turns, by
    /// [`update`](superstep_graph::Thread::update), or with the input of one.
    pub fn pin(pins: impl IntoIterator<Item = Pin>) -> AgentStateUpdate {
        let pins: Vec<Pin> = pins.into_iter().collect();
        let message = pins::pinned(&pins);
        Self::update().pins(pins).messages([message])
    }

    /// Returns the update that removes pins by their ids, with the message by which the model learns of it. An id that is not there
    /// is an error of the update.
    pub fn unpin(&self, ids: impl IntoIterator<Item = String>) -> AgentStateUpdate {
        let ids: Vec<String> = ids.into_iter().collect();
        let gone: Vec<Pin> = ids.iter().filter_map(|id| self.pins.get(id)).cloned().collect();
        let message = pins::unpinned(&gone);
        let update = Self::update().pins(Merges(ids.into_iter().map(Merge::remove).collect()));
        if gone.is_empty() { update } else { update.messages([message]) }
    }

    /// Returns the configured pins that the thread does not have.
    pub(crate) fn missing_pins(&self, configured: &[Pin]) -> Vec<Pin> {
        let with_id = |pin: &Pin| {
            let pin = Pin { source: PinSource::Config, ..pin.clone() };
            if pin.id.is_empty() { Pin { id: hash_of(&pin.text), ..pin } } else { pin }
        };
        configured.iter().map(with_id).filter(|pin| self.pins.get(&pin.id) != Some(pin)).collect()
    }

    /// Returns the owner of the memory: the user, or the thread if no user is set; `None` if there is neither.
    pub fn memory_owner(&self, thread: Option<&ThreadId>) -> Option<String> {
        let user = Some(self.user_id.as_str()).filter(|user| !user.is_empty());
        user.or(thread.map(ThreadId::as_str)).map(str::to_owned)
    }

    /// Returns the estimated cost of the turn; `None` if no price is known.
    pub fn cost(&self) -> Option<TurnCost> {
        cost_of(self.usage, &self.usage_by_model, &self.estimated_cost)
    }

    /// Returns the resources used by the turn at a time.
    pub(crate) fn spent(&self, now_ms: i64) -> Spent {
        let ms = u64::try_from(now_ms.saturating_sub(self.started_ms)).unwrap_or(0);
        let (usage, cost) = (self.usage, self.cost().and_then(TurnCost::whole));
        Spent { usage, cost, tool_calls: self.tools_used.len(), time: Duration::from_millis(ms) }
    }

    /// Returns the used share of the turn's budget, that of the limit that is nearest; `None` without a limit. `now_ms` is the time in
    /// UTC milliseconds.
    pub fn budget_used(&self, budget: &Budget, now_ms: i64) -> Option<f64> {
        self.spent(now_ms).shares(budget).map(|(_, share)| share).reduce(f64::max)
    }

    /// Returns the message that the next response continues, if the last one was a part.
    pub(crate) fn continued_message(&self) -> Option<&Message> {
        self.messages.last().filter(|_| self.answer.continuing)
    }

    /// Returns the messages of the user that guards check in this turn, in order.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &Message> {
        let after = self.guarding.after.as_ref().and_then(|after| self.messages.position(after));
        let since = after.map_or(0, |after| after + 1);
        let of_user = |message: &&Message| message.role == Role::User && !message.synthetic;
        self.messages.iter().skip(since).filter(of_user)
    }

    /// Returns the verdict of a guard on a text of a message, if there is one.
    pub(crate) fn verdict(&self, guard: &str, message: &str, text: &str) -> Option<&GuardVerdict> {
        let text = hash_of(text);
        let is_it =
            |made: &&GuardVerdict| made.guard == guard && made.message == message && made.text == text;
        self.verdicts.iter().find(is_it)
    }

    /// Returns the update with which an agent takes over: its own view and grants replace those of the agent before it. `None` if it has
    /// the conversation already.
    pub(crate) fn taken_over(&self, agent: &str, shows: HandoffView) -> Option<AgentStateUpdate> {
        if self.handoffs.current == agent {
            return None;
        }
        let mut handoffs = self.handoffs.clone();
        let before = std::mem::replace(&mut handoffs.current, agent.to_owned());
        let parked = Parked {
            context: self.context.clone(),
            permissions: self.permissions.iter().cloned().collect(),
            permitted_in: self.permitted_in.clone(),
        };
        handoffs.others.insert(before, parked);
        let earlier = handoffs.others.remove(agent);
        let is_first = earlier.is_none();
        let mut own =
            earlier.unwrap_or_else(|| Parked { context: self.context.clone(), ..Parked::default() });
        let newest = self.messages.last().map(|last| last.id.clone()).unwrap_or_default();
        // What fitted or did not fit another model.
        own.context = ContextView { settled: String::new(), full: None, refused: None, ..own.context };
        if is_first && shows == HandoffView::NoToolRounds {
            own.context.without_rounds = newest;
        }
        let update = Self::update()
            .handoffs(handoffs)
            .context(own.context)
            .request_size(RequestSize::default())
            .set_permissions(own.permissions)
            .permitted_in(own.permitted_in)
            .model("");
        Some(if is_first && shows == HandoffView::Summary { update.compact(true) } else { update })
    }

    /// Returns the summary of the turn so far; [`metadata`](Self::metadata) has it at the end.
    pub fn summary(&self) -> Metadata {
        Metadata {
            steps_taken: self.current_step,
            tools_used: self.tools_used.iter().cloned().collect(),
            stop_reason: self.stop_reason.clone(),
            llm_calls: self.llm_calls,
            is_interrupted: false,
            model: self.model.clone(),
            usage_by_model: self.usage_by_model.clone(),
            estimated_cost: self.estimated_cost.clone(),
            ignored_tool_calls: self.ignored_tool_calls.iter().cloned().collect(),
            over_context: self.context.over,
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The stored failure of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailure {
    /// The kind of failure.
    pub kind: ModelErrorKind,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// The error message. Never contains a key.
    pub message: String,
    /// The provider's requested wait in milliseconds, if any.
    pub retry_after_ms: Option<u64>,
    /// The end of that wait in UTC milliseconds, by the clock of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at_ms: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Permit;
    use superstep_graph::state::reduce;

    fn take(state: &AgentState, agent: &str, shows: HandoffView) -> AgentState {
        reduce(state, [state.taken_over(agent, shows).unwrap()]).unwrap()
    }

    #[test]
    fn an_agent_finds_its_own_view_and_grants_again() {
        let grant = PermissionRule::new("shell", Permit::Allow);
        let view = ContextView { summary: Some("so far".into()), ..ContextView::default() };
        let state = AgentState { context: view.clone(), ..AgentState::default() };
        let state = reduce(&state, [AgentState::update().permissions([grant.clone()])]).unwrap();
        let there = take(&state, "billing", HandoffView::All);
        assert_eq!((there.permissions.len(), &there.context), (0, &view));
        assert!(there.taken_over("billing", HandoffView::All).is_none());
        let back = take(&there, "", HandoffView::NoToolRounds);
        assert_eq!((back.permissions[0].clone(), &back.context), (grant, &view));
    }

    #[test]
    fn views_of_unknown_agents_are_read_and_stay() {
        let stored = r#"{"current":"gone","others":{"":{"context":{"summary":"mine"}},"never there":{"context":{"start":"no message"}}}}"#;
        let handoffs = serde_json::from_str(stored).unwrap();
        let state = AgentState { active: "gone".into(), handoffs, ..AgentState::default() };
        let first = take(&state, "", HandoffView::All);
        assert_eq!(first.context.summary.as_deref(), Some("mine"));
        assert_eq!(first.handoffs.others.keys().collect::<Vec<_>>(), ["gone", "never there"]);
        let there = take(&first, "never there", HandoffView::NoToolRounds);
        assert_eq!((there.context.start.as_str(), there.permissions.len()), ("no message", 0));
    }

    #[test]
    fn the_view_of_the_first_time_leaves_tool_rounds_out_or_requests_a_summary() {
        let said = AgentState::update().messages([Message::user("hi").with_id("m1")]);
        let state = reduce(&AgentState::default(), [said]).unwrap();
        assert_eq!(take(&state, "b", HandoffView::NoToolRounds).context.without_rounds, "m1");
        assert!(take(&state, "b", HandoffView::Summary).compact);
    }
}
