//! The states of the graphs that pending tasks of a thread called.
//!
//! Start at [`read`].

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use superstep_graph::{RunError, RunOptions, ThreadId, checkpoint::CheckpointMeta, erased::SubgraphValues};

use super::{
    Studio,
    part::{entry, part_of},
    types::{Part, SubgraphView},
};
use crate::{api::extract::Query, error::ApiError};

/// Returns the state of a subgraph in outline.
pub(super) async fn read(
    State(studio): State<Arc<Studio>>,
    Path(thread): Path<String>,
    query: Query,
) -> Result<Json<SubgraphView>, ApiError> {
    let SubgraphValues { thread, checkpoint, values, .. } = studio.subgraph(&thread, &query).await?;
    let children = studio.hub.checkpointer.children(&thread).await?;
    let children = children.iter().filter(|child| child.parent().is_some_and(|(parent, _)| parent == thread));
    Ok(Json(SubgraphView {
        checkpoint: checkpoint.id.0,
        step: checkpoint.control.step,
        next: checkpoint.control.next.iter().map(|node| node.as_str().to_owned()).collect(),
        created_ms: checkpoint.created_ms,
        channels: values.iter().map(|(name, value)| entry(name.clone(), value)).collect(),
        subgraphs: children.map(|child| child.path().to_string()).collect(),
    }))
}

/// Returns a part of a value of a subgraph.
pub(super) async fn value(
    State(studio): State<Arc<Studio>>,
    Path(thread): Path<String>,
    query: Query,
) -> Result<Json<Part>, ApiError> {
    let values = studio.subgraph(&thread, &query).await?.values;
    Ok(Json(part_of(&values, &query)?))
}

impl Studio {
    /// Returns the state of the subgraph at a path.
    ///
    /// # Errors
    /// 404 if nothing of it is stored; 400 if its state is not known here.
    async fn subgraph(&self, thread: &str, query: &Query) -> Result<SubgraphValues, ApiError> {
        let path = query.get("path").ok_or_else(|| ApiError::invalid("path: expected that of a subgraph"))?;
        let missing = || ApiError::not_found("subgraph", path);
        let head = self.head(thread).await?;
        let children = self.hub.checkpointer.children(&Self::thread_id(thread)).await?;
        let child =
            children.into_iter().find(|child| child.path().to_string() == path).ok_or_else(missing)?;
        let nodes = child.path().0.iter().map(|segment| segment.node.as_str().to_owned()).collect();
        let found = match self.open(&head, None)?.subgraph(nodes).await {
            Ok(found) => found.ok_or_else(missing)?,
            // A node called it; its state is known if this server has the graph.
            Err(error @ RunError::NoSubgraph { .. }) => {
                self.called(&child).await?.ok_or_else(|| ApiError::from(error))?
            }
            Err(error) => return Err(error.into()),
        };
        // Of subgraphs clients see the channels that have the name of a shown one.
        Ok(SubgraphValues { values: self.shown_of(&head, found.values), ..found })
    }

    /// Returns the state of a thread of a called graph that this server has.
    async fn called(&self, thread: &ThreadId) -> Result<Option<SubgraphValues>, ApiError> {
        let newest = self.hub.newest(thread).await?;
        let owner = newest.as_ref().and_then(CheckpointMeta::graph);
        let graph = owner.and_then(|owner| self.hub.graphs.values().find(|graph| graph.name() == owner.name));
        let (Some(checkpoint), Some(graph)) = (newest, graph) else { return Ok(None) };
        let snapshot = graph.thread(RunOptions::new().thread(thread.clone())).state().await?;
        Ok(Some(SubgraphValues { thread: thread.clone(), checkpoint, values: snapshot.state.values()? }))
    }
}
