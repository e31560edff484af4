//! The graph of stored threads, to look at them.

use std::sync::Arc;

use superstep::{
    CompiledGraph,
    agent::{AgentDeps, AgentState, MemoryTrigger, ReactConfig, TurnHistory, react_graph},
    llm::ToolRegistry,
};

use crate::{
    config::{
        dream,
        location::Place,
        memory::{self, Memory},
        remembered::Remembered,
        settings,
    },
    offline::planner::Offline,
    output::exit::{Exit, Failure},
    session::dream_thread,
};

/// Returns the graph of the agent, which does not depend on models and tools.
pub(crate) fn graph() -> Result<CompiledGraph<AgentState>, Failure> {
    let deps = AgentDeps::new(Arc::new(Offline), ToolRegistry::new(), ReactConfig::graph(25));
    react_graph(deps).compile().map_err(|error| Failure::caused(Exit::Failed, &error))
}

/// Returns the graph of a thread, with its configured optional nodes.
pub(crate) fn graph_of(remembered: &Remembered, place: &Place) -> Result<CompiledGraph<AgentState>, Failure> {
    let chosen = remembered.chosen().unwrap_or_default();
    let misfit =
        |error| Failure::usage(format!("the thread remembers a configuration that does not fit: {error}"));
    let config = settings::config(&chosen, false).map_err(|error| misfit(error.to_string()))?;
    let memory = Memory::of(&chosen).map_err(misfit)?;
    let dreams = dream::of(&chosen).map_err(misfit)?;
    let history = dreams.map(|_| dream_thread::history_to_look_at(&place.cwd)).transpose()?;
    let deps = AgentDeps::new(Arc::new(Offline), ToolRegistry::new(), config);
    let memory = memory.map(|_| MemoryTrigger::new(memory::to_look_at()));
    let history = history.map(|history| Arc::new(history) as Arc<dyn TurnHistory>);
    let deps = AgentDeps { memory, history, ..deps };
    react_graph(deps).compile().map_err(|error| Failure::caused(Exit::Failed, &error))
}
