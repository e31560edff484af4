//! The five nodes and how they are wired.

use std::sync::Arc;

use superstep_graph::{END, NodeOptions, OnCancel, Route, START, StateGraph};
use superstep_llm::{ChatModel, Role, ToolRegistry};

use crate::{
    AgentState, Approvals, MemoryTrigger, ReactConfig,
    nodes::{
        agent::agent, finalize::finalize, init_state::init_state, memory_trigger::memory_trigger,
        tools::tools,
    },
};

/// What the nodes work with. Cheap to clone.
#[derive(Clone)]
pub struct AgentDeps {
    /// The model, its retries included: see [`Retrying`](superstep_llm::Retrying).
    pub model: Arc<dyn ChatModel>,
    /// What the model may call.
    pub tools: Arc<ToolRegistry>,
    /// Who is asked before a tool that wants it.
    pub approvals: Approvals,
    /// What to do with what users want remembered.
    pub memory: Option<MemoryTrigger>,
    /// Everything else.
    pub config: Arc<ReactConfig>,
}

impl AgentDeps {
    /// A model with tools; nobody is asked, so tools that want it are denied, and nothing is remembered.
    pub fn new(model: Arc<dyn ChatModel>, tools: ToolRegistry, config: ReactConfig) -> Self {
        let (tools, config) = (Arc::new(tools), Arc::new(config));
        Self { model, tools, approvals: Approvals::Deny, memory: None, config }
    }
}

/// Where a turn goes after the model has answered.
#[derive(Route, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To the tools it called.
    Tools,
    /// To the model once more: its answer was empty, or only a part.
    Agent,
    /// To the end.
    Finalize,
}

/// The agent as a graph: `init_state → memory_trigger → agent ⇄ tools → finalize`.
pub fn react_graph(deps: AgentDeps) -> StateGraph<AgentState> {
    let mut graph = StateGraph::new("react");
    let config = deps.config.clone();
    let init = graph.add_node_with("init_state", deps.config.clone(), init_state);
    let memory = graph.add_node_with("memory_trigger", deps.clone(), memory_trigger);
    let model = graph.add_node_with("agent", deps.clone(), agent);
    let tool = graph.add_node_with("tools", deps, tools);
    let end = graph.add_node_with("finalize", config, finalize);
    for node in [init, memory, model, tool, end] {
        // A cancelled turn still leaves a valid conversation behind, so every node gets to finish.
        graph.configure(node, NodeOptions { on_cancel: OnCancel::Finish, ..NodeOptions::default() });
    }
    graph.add_edge(START, init);
    graph.add_edge(init, memory);
    graph.add_edge(memory, model);
    graph.add_conditional_edges(model, should_continue, |next| match next {
        Next::Tools => tool,
        Next::Agent => model,
        Next::Finalize => end,
    });
    graph.add_edge(tool, model);
    graph.add_edge(end, END);
    graph
}

/// Whether the model called tools that are to be answered, or is to be asked again.
pub fn should_continue(state: &AgentState) -> Next {
    let calls =
        state.messages.last().filter(|last| last.role == Role::Assistant && !last.tool_calls.is_empty());
    match calls {
        _ if state.stop => Next::Finalize,
        _ if state.answer.again => Next::Agent,
        Some(_) => Next::Tools,
        None => Next::Finalize,
    }
}
