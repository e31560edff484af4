//! The graph of a thread as a drawing.
//!
//! Start at [`of_thread`].

use superstep::{drawing::Drawing, memory::Dreams};
use superstep_session::{
    config::{location::Location, settings::StoredSettings},
    error::SessionError,
    turn::stored_graph::graph_of,
};

use crate::graphs::graph_set::Owned;

/// Draws the graph of a thread of the agent, with its path and its next tasks.
///
/// # Errors
/// The thread cannot be read.
pub(crate) async fn of_thread(location: &Location, found: Owned<'_>) -> Result<Drawing, SessionError> {
    let Owned { graph, store, name, options } = found;
    if Dreams::is_thread(&name) {
        return Ok(graph.with_checkpointer(store).thread(options).drawing().await?);
    }
    let graph = graph_of(&StoredSettings::load(&*store, &name, None).await?, location)?;
    Ok(graph.with_checkpointer(store).thread(&name).drawing().await?)
}
