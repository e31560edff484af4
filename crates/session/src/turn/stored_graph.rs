//! The graph of stored threads, for inspection.

use std::sync::Arc;

use superstep::{
    CompiledGraph,
    agent::{
        AgentState, ReactConfig,
        deps::{AgentDeps, MemoryTrigger, TurnHistory},
        graph::react_graph,
        guards::Guards,
    },
    llm::ToolRegistry,
    memory::HistoryFiles,
};

use crate::{
    config::{configuration::Configuration, location::Location, memory, settings::StoredSettings},
    error::{ErrorKind, SessionError},
    offline::planner::Offline,
    turn::dream_thread,
};

/// Returns the graph of the agent without optional nodes, for what is the same in every graph of it.
pub fn graph() -> Result<CompiledGraph<AgentState>, SessionError> {
    let deps = AgentDeps::new(Arc::new(Offline), ToolRegistry::new(), ReactConfig::graph(25));
    react_graph(deps).compile().map_err(|error| SessionError::caused(ErrorKind::Failed, &error))
}

/// Returns the graph of a run without flags.
pub fn default_graph() -> Result<CompiledGraph<AgentState>, SessionError> {
    let mut configuration = Configuration::default();
    configuration.add_usual_memory(false);
    configured(&configuration, None)
}

/// Returns the graph of a thread, with its configured optional nodes.
pub fn graph_of(
    remembered: &StoredSettings,
    location: &Location,
) -> Result<CompiledGraph<AgentState>, SessionError> {
    let configuration = Configuration::of_thread(remembered.configuration(), None).map_err(|misfit| {
        SessionError::usage(format!("the thread remembers a configuration that does not fit: {misfit}"))
    })?;
    let history = match configuration.dream.on() {
        Some(_) => Some(dream_thread::placeholder_history(&location.cwd)?),
        None => None,
    };
    configured(&configuration, history)
}

/// Returns the graph of an agent with a configuration and a history of turns.
fn configured(
    configuration: &Configuration,
    history: Option<HistoryFiles>,
) -> Result<CompiledGraph<AgentState>, SessionError> {
    let react = configuration.react(false).map_err(|wrong| SessionError::usage(wrong.to_string()))?;
    let deps = AgentDeps::new(Arc::new(Offline), ToolRegistry::new(), react);
    let memory = configuration.memory.on().map(|_| MemoryTrigger::new(memory::placeholder()));
    let history = history.map(|history| Arc::new(history) as Arc<dyn TurnHistory>);
    let guards = configuration.guardrails.guards(std::iter::empty());
    let guards = guards.map_err(|problem| SessionError::usage(format!("`guardrails.schema`: {problem}")))?;
    let deps = AgentDeps { memory, history, guards: Guards::new(guards), ..deps };
    react_graph(deps).compile().map_err(|error| SessionError::caused(ErrorKind::Failed, &error))
}
