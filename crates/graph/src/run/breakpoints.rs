//! The limits of a run: its number of supersteps, and the nodes at which it stops.
//!
//! Start at [`limits`].

use superstep_engine::{Breakpoints, NodeIndex, RunLimits, Topology};

use crate::{RunError, RunOptions, State, compiled::graph::Inner, node::run_options};

/// Returns the limits of a run.
pub(super) fn limits<S: State>(graph: &Inner<S>, config: &RunOptions) -> Result<RunLimits, RunError> {
    if config.step_limit == 0 {
        return Err(RunError::ZeroStepLimit);
    }
    let breakpoints = breakpoints(graph, &config.breakpoints)?;
    let drained = config.drain.requested().is_some();
    Ok(RunLimits { supersteps: config.step_limit, breakpoints, drained })
}

/// Returns the nodes at which the run stops: those of the graph, and those of the caller.
fn breakpoints<S: State>(
    graph: &Inner<S>,
    wanted: &run_options::Breakpoints,
) -> Result<Breakpoints, RunError> {
    let topology = &graph.topology;
    let find = |names: &[String]| -> Result<Vec<NodeIndex>, RunError> {
        if names.iter().any(|name| name == "*") {
            return Ok(topology.names().filter_map(|name| topology.find(name.as_str())).collect());
        }
        let unknown = |name: &String| RunError::UnknownNode { graph: graph.name.clone(), node: name.clone() };
        // The others are in called graphs.
        let here = names.iter().filter(|name| topology.find(name).is_some() || !is_inside(topology, name));
        here.map(|name| topology.find(name).ok_or_else(|| unknown(name))).collect()
    };
    let Breakpoints { mut before, mut after } = graph.breakpoints.clone();
    let is_handler = |name: &&String| topology.find(name).is_some_and(|node| topology.is_handler(node));
    if let Some(handler) = wanted.before.iter().find(is_handler) {
        return Err(RunError::NoStop { graph: graph.name.clone(), node: handler.clone() });
    }
    before.extend(find(&wanted.before)?);
    after.extend(find(&wanted.after)?);
    Ok(Breakpoints { before, after })
}

/// Returns whether a name refers to a node of a called graph: `sub/node`. The nodes of a subgraph are known
/// here; those of other called graphs are checked at the call.
fn is_inside(topology: &Topology, name: &str) -> bool {
    name.match_indices('/').any(|(at, _)| {
        let Some(node) = topology.find(&name[..at]) else { return false };
        let inner = &name[at + 1..];
        topology
            .subgraph(node)
            .is_none_or(|inside| inner == "*" || inside.find(inner).is_some() || is_inside(inside, inner))
    })
}
