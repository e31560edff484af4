//! The graph of stored threads, for inspection.

use std::sync::Arc;

use superstep::{
    CompiledGraph, RunOptions,
    agent::{
        AgentState, ReactConfig,
        deps::{AgentDeps, MemoryTrigger, TurnHistory},
        graph::react_graph,
    },
    erased::JsonGraph,
    llm::ToolRegistry,
    memory::{Dreams, HistoryFiles},
};

use crate::{
    config::{configuration::Configuration, location::Location, memory, settings::StoredSettings},
    graphs::graph_set::GraphSet,
    offline::planner::Offline,
    output::exit::{Exit, Failure},
    session::dream_thread,
};

/// Returns the graph of the agent without optional nodes, for what is the same in every graph of it.
pub(crate) fn graph() -> Result<CompiledGraph<AgentState>, Failure> {
    let deps = AgentDeps::new(Arc::new(Offline), ToolRegistry::new(), ReactConfig::graph(25));
    react_graph(deps).compile().map_err(|error| Failure::caused(Exit::Failed, &error))
}

/// Returns the graphs of the agent's program, for inspection: those of turns and of dreams.
pub(crate) fn agent_graphs(program: &str) -> Result<GraphSet, Failure> {
    let graphs: [Arc<dyn JsonGraph>; 2] = [graph()?.into(), Dreams::inspection_graph().into()];
    let mut graphs = GraphSet::new(program.to_owned(), graphs.into(), RunOptions::new())?;
    graphs.is_agent = true;
    Ok(graphs)
}

/// Returns the graph of a run without flags.
pub(crate) fn default_graph() -> Result<CompiledGraph<AgentState>, Failure> {
    let mut configuration = Configuration::default();
    configuration.add_usual_memory(false);
    configured(&configuration, None)
}

/// Returns the graph of a thread, with its configured optional nodes.
pub(crate) fn graph_of(
    remembered: &StoredSettings,
    location: &Location,
) -> Result<CompiledGraph<AgentState>, Failure> {
    let configuration = Configuration::of_thread(remembered.configuration(), None).map_err(|misfit| {
        Failure::usage(format!("the thread remembers a configuration that does not fit: {misfit}"))
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
) -> Result<CompiledGraph<AgentState>, Failure> {
    let react = configuration.react(false).map_err(|wrong| Failure::usage(wrong.to_string()))?;
    let deps = AgentDeps::new(Arc::new(Offline), ToolRegistry::new(), react);
    let memory = configuration.memory.on().map(|_| MemoryTrigger::new(memory::placeholder()));
    let history = history.map(|history| Arc::new(history) as Arc<dyn TurnHistory>);
    let deps = AgentDeps { memory, history, ..deps };
    react_graph(deps).compile().map_err(|error| Failure::caused(Exit::Failed, &error))
}
