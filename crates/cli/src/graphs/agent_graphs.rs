//! The graphs of the agent's program.

use std::sync::Arc;

use superstep::{RunOptions, erased::JsonGraph, memory::Dreams};
use superstep_session::{error::SessionError, turn::stored_graph::graph};

use crate::graphs::graph_set::GraphSet;

/// Returns the graphs of the agent's program, for inspection: those of turns and of dreams.
pub(crate) fn agent_graphs(program: &str) -> Result<GraphSet, SessionError> {
    let graphs: [Arc<dyn JsonGraph>; 2] = [graph()?.into(), Dreams::inspection_graph().into()];
    let mut graphs = GraphSet::new(program.to_owned(), graphs.into(), RunOptions::new())?;
    graphs.is_agent = true;
    Ok(graphs)
}
