//! The nodes of the agent graph, and the route after a model call.

use superstep_graph::{NodeRef, Route, StateGraph};
use superstep_llm::Role;

use crate::{
    AgentOutcome, AgentState, HasAgent,
    context::frame::SystemMessage,
    deps::AgentDeps,
    nodes::{
        agent::agent,
        compact::compact,
        finalize::finalize,
        init_state::init_state,
        memory_trigger::memory_trigger,
        record::record,
        retrieve::retrieve,
        tools::{discarded, tools},
    },
    state::has_agent::{add_node, finishes},
};

/// The route after a model call.
#[derive(Route, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To the called tools.
    Tools,
    /// To the model again: its response was empty or partial.
    Agent,
    /// To the summary of the overflowing conversation; without that node, to the model again.
    Compact,
    /// To the end.
    Finalize,
}

/// References to the nodes, in a graph without edges yet. Copies refer to the same nodes.
#[derive(Clone, Copy, Debug)]
pub struct ReactNodes {
    /// Begins a turn: resets the channels of the one before.
    pub init_state: NodeRef,
    /// Sends memory requests to the memory.
    pub memory_trigger: NodeRef,
    /// Calls the model once.
    pub agent: NodeRef,
    /// Executes the called tools.
    pub tools: NodeRef,
    /// Makes the reply.
    pub finalize: NodeRef,
    /// Summarizes the overflowing conversation; `None` if not configured.
    pub compact: Option<NodeRef>,
    /// Stores the turn in the history, after `finalize`; `None` if not configured.
    pub record: Option<NodeRef>,
    /// Retrieves entries for the user's message, before `memory_trigger`; `None` if not configured.
    pub retrieve: Option<NodeRef>,
}

impl ReactNodes {
    /// Adds the nodes without edges. A graph that replaces one of them calls [`add_agent`] and the others
    /// instead.
    #[track_caller]
    pub fn add<S: HasAgent>(graph: &mut StateGraph<S>, deps: &AgentDeps) -> Self {
        Self {
            init_state: add_init_state(graph, deps),
            memory_trigger: add_memory_trigger(graph, deps),
            agent: add_agent(graph, deps),
            tools: add_tools(graph, deps),
            finalize: add_finalize(graph, deps),
            compact: deps.config.context.consolidates().then(|| add_compact(graph, deps)),
            record: deps.history.is_some().then(|| add_record(graph, deps)),
            retrieve: deps.retrieves().then(|| add_retrieve(graph, deps)),
        }
    }

    /// Returns the target of a route in [`react_graph`](crate::graph::react_graph).
    pub fn target(self, next: Next) -> NodeRef {
        match next {
            Next::Tools => self.tools,
            Next::Agent => self.agent,
            Next::Compact => self.compact.unwrap_or(self.agent),
            Next::Finalize => self.finalize,
        }
    }
}

/// Adds the node `init_state`, which resets the channels of the turn before.
#[track_caller]
pub fn add_init_state<S: HasAgent>(graph: &mut StateGraph<S>, deps: &AgentDeps) -> NodeRef {
    add_node(graph, "init_state", deps.clone(), init_state)
}

/// Adds the node `memory_trigger`, which sends memory requests to the memory.
#[track_caller]
pub fn add_memory_trigger<S: HasAgent>(graph: &mut StateGraph<S>, deps: &AgentDeps) -> NodeRef {
    add_node(graph, "memory_trigger", deps.clone(), memory_trigger)
}

/// Adds the node `agent`, which calls the model once. [`should_continue`] chooses the next node. A turn whose model was
/// unavailable, or whose hook failed, is a [failed end](StateGraph::failed_end), from which a retry calls the model again.
#[track_caller]
pub fn add_agent<S: HasAgent>(graph: &mut StateGraph<S>, deps: &AgentDeps) -> NodeRef {
    let node = add_node(graph, &deps.node("agent"), (deps.clone(), SystemMessage::default()), agent);
    let (member, members) = (deps.group.member.clone(), deps.group.members.clone());
    let has_failed = move |state: &AgentState| {
        // The first agent also has a conversation of an agent that does not exist any more.
        let is_active =
            *state.active == *member || (member.is_empty() && !members.contains_key(&state.active));
        unanswered(state).filter(|_| is_active)
    };
    graph.failed_end(node, move |state: &S| has_failed(state.agent()));
    node
}

/// Adds the node `tools`, which executes the called tools and answers every call.
#[track_caller]
pub fn add_tools<S: HasAgent>(graph: &mut StateGraph<S>, deps: &AgentDeps) -> NodeRef {
    let node = graph.add_node_with(&deps.node("tools"), deps.clone(), tools);
    for (name, agent) in &*deps.sub_agents {
        graph.calls(node, name, agent.graph());
    }
    graph.on_discard(node, discarded);
    finishes(graph, node)
}

/// Adds the node `finalize`, which makes the reply and its metadata.
#[track_caller]
pub fn add_finalize<S: HasAgent>(graph: &mut StateGraph<S>, deps: &AgentDeps) -> NodeRef {
    add_node(graph, "finalize", deps.clone(), finalize)
}

/// Adds the node `compact`, which summarizes the part of the conversation that exceeds the context budget.
#[track_caller]
pub fn add_compact<S: HasAgent>(graph: &mut StateGraph<S>, deps: &AgentDeps) -> NodeRef {
    add_node(graph, &deps.node("compact"), deps.clone(), compact)
}

/// Adds the node `record`, which stores the turn in the history. It comes after `finalize`.
#[track_caller]
pub fn add_record<S: HasAgent>(graph: &mut StateGraph<S>, deps: &AgentDeps) -> NodeRef {
    add_node(graph, "record", deps.clone(), record)
}

/// Adds the node `retrieve`, which searches entries for the user's message. It comes before `memory_trigger`,
/// so that it does not find the message itself, and before the first model call.
#[track_caller]
pub fn add_retrieve<S: HasAgent>(graph: &mut StateGraph<S>, deps: &AgentDeps) -> NodeRef {
    add_node(graph, "retrieve", deps.clone(), retrieve)
}

/// The routes after a model call in a graph without the node `compact`.
#[derive(Route, Clone, Copy)]
pub(super) enum NextUncompacted {
    Tools,
    Agent,
    Finalize,
}

impl From<Next> for NextUncompacted {
    fn from(next: Next) -> Self {
        match next {
            Next::Tools => Self::Tools,
            // A summary is due only if the turn began with another configuration.
            Next::Agent | Next::Compact => Self::Agent,
            Next::Finalize => Self::Finalize,
        }
    }
}

impl From<NextUncompacted> for Next {
    fn from(next: NextUncompacted) -> Self {
        match next {
            NextUncompacted::Tools => Self::Tools,
            NextUncompacted::Agent => Self::Agent,
            NextUncompacted::Finalize => Self::Finalize,
        }
    }
}

/// Returns why a turn failed that a retry can answer. A cancelled one ended as its user wanted.
fn unanswered(state: &AgentState) -> Option<String> {
    let outcome =
        state.outcome.filter(|outcome| outcome.is_unanswered() && *outcome != AgentOutcome::Cancelled)?;
    let error = state.error.as_ref().map(|error| error.message.clone());
    let error = error.or(state.hook_error.as_ref().map(ToString::to_string)).unwrap_or_default();
    Some(format!("the turn has no answer ({outcome}): {error}"))
}

/// Chooses the route after a model call: pending tool calls, another model call, a summary, or the end.
pub fn should_continue<S: HasAgent>(state: &S) -> Next {
    let state = state.agent();
    let calls =
        state.messages.last().filter(|last| last.role == Role::Assistant && !last.tool_calls.is_empty());
    match calls {
        _ if state.stop => Next::Finalize,
        _ if state.context.due => Next::Compact,
        _ if state.answer.again => Next::Agent,
        Some(_) => Next::Tools,
        None => Next::Finalize,
    }
}
