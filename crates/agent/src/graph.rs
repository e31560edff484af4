//! The five nodes and how they are wired.

use std::{collections::BTreeMap, sync::Arc};

use superstep_graph::{END, NodeRef, Route, START, StateGraph};
use superstep_llm::{ReadsTextCalls, Role, TokenCounter, ToolRegistry, ToolSource, default_counter};

use crate::{
    AgentState, Approvals, HasAgent, Hooks, Knowledge, MemoryTrigger, Models, ReactConfig, ReplayTools,
    Snapshots, Spill, Steps, SubAgent, Trust, TurnHistory,
    harness::{OnToolCheck, OnToolError},
    has_agent::{add_node, finishes},
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
};

/// What the nodes work with. Cheap to clone.
#[derive(Clone)]
pub struct AgentDeps {
    /// Who is asked.
    pub models: Models,
    /// What the model may call.
    pub tools: Arc<ToolRegistry>,
    /// Where it finds more of that; a name which one of `tools` has, or of a source before, is that one's.
    pub sources: Vec<Arc<dyn ToolSource>>,
    /// Which of them a replay has.
    pub replay_tools: ReplayTools,
    /// Who is asked before a tool that wants it.
    pub approvals: Approvals,
    /// Which stored decisions count; `None` if all do.
    pub trust: Option<Arc<dyn Trust>>,
    /// What to do with what users want remembered.
    pub memory: Option<MemoryTrigger>,
    /// Where turns are written down; `None` for nowhere.
    pub history: Option<TurnHistory>,
    /// What can be looked up beside it.
    pub knowledge: Arc<[Arc<dyn Knowledge>]>,
    /// Where long tool results are kept as a whole; `None` for nowhere.
    pub spill: Option<Arc<dyn Spill>>,
    /// What keeps the files that tools may change; `None` for nothing.
    pub snapshots: Option<Arc<dyn Snapshots>>,
    /// What the program does before and after model calls and tool calls.
    pub hooks: Hooks,
    /// What says of each call whether it may run, after the hooks before it; `None` if all may.
    pub check: Option<OnToolCheck>,
    /// How the program takes the steps itself; `None` if it does not.
    pub steps: Option<Arc<dyn Steps>>,
    /// Who is told of tools that fail; `None` for nobody.
    pub on_tool_error: Option<OnToolError>,
    /// What counts the tokens of requests.
    pub counter: Arc<dyn TokenCounter>,
    /// Those among the tools that are agents themselves, by their names.
    pub sub_agents: Arc<BTreeMap<String, SubAgent>>,
    /// Everything else.
    pub config: Arc<ReactConfig>,
}

impl AgentDeps {
    /// Models with tools; nobody is asked, so tools that want it are denied, and nothing is remembered.
    pub fn new(models: impl Into<Models>, tools: ToolRegistry, config: ReactConfig) -> Self {
        let mut models = models.into();
        if config.text_calls {
            models.main = Arc::new(ReadsTextCalls(models.main));
        }
        let (tools, config) = (Arc::new(tools), Arc::new(config));
        let (approvals, hooks, counter) = (Approvals::Deny, Hooks::default(), default_counter());
        Self {
            models,
            tools,
            sources: Vec::new(),
            replay_tools: ReplayTools::default(),
            approvals,
            trust: None,
            memory: None,
            history: None,
            knowledge: Arc::default(),
            spill: None,
            snapshots: None,
            hooks,
            check: None,
            steps: None,
            on_tool_error: None,
            counter,
            sub_agents: Arc::default(),
            config,
        }
    }

    /// Whether something is to be looked up, and there is something to look into.
    fn retrieves(&self) -> bool {
        self.config.retrieve.is_some() && (self.memory.is_some() || !self.knowledge.is_empty())
    }
}

/// Where a turn goes after the model has answered.
#[derive(Route, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To the tools it called.
    Tools,
    /// To the model once more: its answer was empty, or only a part.
    Agent,
    /// To a summary of what there is no room for; without a node for that, to the model once more.
    Compact,
    /// To the end.
    Finalize,
}

/// The nodes, in a graph whose wiring is still to come. Copies are the same nodes.
#[derive(Clone, Copy, Debug)]
pub struct ReactNodes {
    /// Begins a turn: resets what belongs to the one before.
    pub init_state: NodeRef,
    /// Hands to the memory what the user wants remembered.
    pub memory_trigger: NodeRef,
    /// Asks the model, once.
    pub agent: NodeRef,
    /// Executes the tools that it called.
    pub tools: NodeRef,
    /// Makes the reply.
    pub finalize: NodeRef,
    /// Sums up what there is no room for; `None` if that is not configured.
    pub compact: Option<NodeRef>,
    /// Writes the turn down, behind `finalize`; `None` if that is not configured.
    pub record: Option<NodeRef>,
    /// Looks up what is known about the user's message, before `memory_trigger`; `None` if that is not configured.
    pub retrieve: Option<NodeRef>,
}

impl ReactNodes {
    /// Adds the nodes, and no edges. A graph that has a node of its own in place of one of them calls
    /// [`add_agent`] and the others instead.
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

    /// Where a route leads in [`react_graph`].
    pub fn target(self, next: Next) -> NodeRef {
        match next {
            Next::Tools => self.tools,
            Next::Agent => self.agent,
            Next::Compact => self.compact.unwrap_or(self.agent),
            Next::Finalize => self.finalize,
        }
    }
}

/// Adds the node `init_state`: it resets what belongs to the turn before.
#[track_caller]
pub fn add_init_state<S: HasAgent>(graph: &mut StateGraph<S>, deps: &AgentDeps) -> NodeRef {
    add_node(graph, "init_state", deps.config.clone(), init_state)
}

/// Adds the node `memory_trigger`: it hands to the memory what the user wants remembered.
#[track_caller]
pub fn add_memory_trigger<S: HasAgent>(graph: &mut StateGraph<S>, deps: &AgentDeps) -> NodeRef {
    add_node(graph, "memory_trigger", deps.clone(), memory_trigger)
}

/// Adds the node `agent`: it asks the model, once. [`should_continue`] says where to go from there.
#[track_caller]
pub fn add_agent<S: HasAgent>(graph: &mut StateGraph<S>, deps: &AgentDeps) -> NodeRef {
    add_node(graph, "agent", deps.clone(), agent)
}

/// Adds the node `tools`: it executes the tools that the model called, and answers every call.
#[track_caller]
pub fn add_tools<S: HasAgent>(graph: &mut StateGraph<S>, deps: &AgentDeps) -> NodeRef {
    let node = graph.add_node_with("tools", deps.clone(), tools);
    for (name, agent) in &*deps.sub_agents {
        graph.calls(node, name, agent.graph());
    }
    graph.on_discard(node, discarded::<S>);
    finishes(graph, node)
}

/// Adds the node `finalize`: it makes the reply, and sums the turn up.
#[track_caller]
pub fn add_finalize<S: HasAgent>(graph: &mut StateGraph<S>, deps: &AgentDeps) -> NodeRef {
    add_node(graph, "finalize", deps.clone(), finalize)
}

/// Adds the node `compact`: it has a model sum up what the next request has no room for.
#[track_caller]
pub fn add_compact<S: HasAgent>(graph: &mut StateGraph<S>, deps: &AgentDeps) -> NodeRef {
    add_node(graph, "compact", deps.clone(), compact)
}

/// Adds the node `record`: it writes the turn down. It comes behind `finalize`.
#[track_caller]
pub fn add_record<S: HasAgent>(graph: &mut StateGraph<S>, deps: &AgentDeps) -> NodeRef {
    add_node(graph, "record", deps.clone(), record)
}

/// Adds the node `retrieve`: it looks up what is known about the user's message. It goes before `memory_trigger`, so that it
/// does not find the message itself, and before the first model call.
#[track_caller]
pub fn add_retrieve<S: HasAgent>(graph: &mut StateGraph<S>, deps: &AgentDeps) -> NodeRef {
    add_node(graph, "retrieve", deps.clone(), retrieve)
}

/// The agent as a graph: `init_state → memory_trigger → agent ⇄ tools → finalize`, with the others where they are configured.
#[track_caller]
pub fn react_graph(deps: AgentDeps) -> StateGraph<AgentState> {
    react_graph_as(deps)
}

/// The same, on a state that has channels beside the agent's. It is whole; to wire the nodes otherwise, see [`ReactNodes`].
#[track_caller]
pub fn react_graph_as<S: HasAgent>(deps: AgentDeps) -> StateGraph<S> {
    let mut graph = StateGraph::new("react");
    let nodes = ReactNodes::add(&mut graph, &deps);
    graph.add_edge(START, nodes.init_state);
    match nodes.retrieve {
        // Before what is said now is stored, or it would be found as something that was said earlier.
        Some(retrieve) => {
            graph.add_edge(nodes.init_state, retrieve);
            graph.add_edge(retrieve, nodes.memory_trigger);
        }
        None => graph.add_edge(nodes.init_state, nodes.memory_trigger),
    }
    graph.add_edge(nodes.memory_trigger, nodes.agent);
    graph.add_conditional_edges(nodes.agent, should_continue, |next| nodes.target(next));
    graph.add_edge(nodes.tools, nodes.agent);
    if let Some(compact) = nodes.compact {
        graph.add_edge(compact, nodes.agent);
    }
    match nodes.record {
        Some(record) => {
            graph.add_edge(nodes.finalize, record);
            graph.add_edge(record, END);
        }
        None => graph.add_edge(nodes.finalize, END),
    }
    graph
}

/// Whether the model called tools that are to be answered, or is to be asked again, or needs room first.
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
