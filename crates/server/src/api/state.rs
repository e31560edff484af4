//! Endpoints of states and histories.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use superstep_graph::{CheckpointId, RunOptions, thread::AsNode};

use super::{
    extract::{Body, Query, limit, or_empty},
    selection::Selection,
};
use crate::{
    error::ApiError,
    rows::thread::{ThreadRow, ThreadStatus},
    runs::{
        hub::Hub,
        request::{CheckpointRequest, read_input},
    },
    wire::{ids, state as wire},
};

/// An update of a thread's state.
#[derive(JsonSchema, Deserialize)]
pub(super) struct Update {
    #[serde(default)]
    values: Value,
    #[serde(default)]
    command: Value,
    as_node: Option<String>,
    checkpoint: Option<CheckpointRequest>,
    checkpoint_id: Option<String>,
}

#[derive(JsonSchema, Deserialize)]
pub(super) struct Named {
    checkpoint: Option<CheckpointRequest>,
    subgraphs: Option<bool>,
    #[serde(default)]
    select: Selection,
}

#[derive(Default, JsonSchema, Deserialize)]
pub(super) struct HistorySearch {
    limit: Option<usize>,
    #[serde(default)]
    before: Value,
    metadata: Option<Map<String, Value>>,
    checkpoint: Option<CheckpointRequest>,
    #[serde(default)]
    select: Selection,
}

pub(super) async fn read(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
    query: Query,
) -> Result<Json<Value>, ApiError> {
    let selection = Selection::of_query(&query)?;
    let subgraphs = query.flag("subgraphs")?;
    Ok(Json(selection.of_state(hub.state(&hub.thread_row(&id)?, None, subgraphs).await?)))
}

pub(super) async fn read_at(
    State(hub): State<Arc<Hub>>,
    Path((id, checkpoint)): Path<(String, String)>,
    query: Query,
) -> Result<Json<Value>, ApiError> {
    let (selection, at) = (Selection::of_query(&query)?, ids::checkpoint(&checkpoint)?);
    let subgraphs = query.flag("subgraphs")?;
    Ok(Json(selection.of_state(hub.state(&hub.thread_row(&id)?, Some(at), subgraphs).await?)))
}

pub(super) async fn read_named(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
    Body(named): Body<Named>,
) -> Result<Json<Value>, ApiError> {
    let at = named.checkpoint.unwrap_or_default().number()?.map(CheckpointId);
    let subgraphs = named.subgraphs.unwrap_or(false);
    Ok(Json(named.select.of_state(hub.state(&hub.thread_row(&id)?, at, subgraphs).await?)))
}

pub(super) async fn update(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
    Body(update): Body<Update>,
) -> Result<Json<Value>, ApiError> {
    let row = hub.thread_row(&id)?;
    let at = match (&update.checkpoint, &update.checkpoint_id) {
        (Some(checkpoint), _) if checkpoint.checkpoint_id.is_some() => checkpoint.number()?,
        (_, Some(id)) => Some(ids::checkpoint(id)?.0),
        _ => None,
    };
    let checkpoint = apply(&hub, &row, at.map(CheckpointId), update).await?;
    let checkpoint = wire::checkpoint_of(&id, checkpoint);
    Ok(Json(json!({
        "checkpoint": checkpoint,
        "configurable": checkpoint,
        "checkpoint_id": checkpoint["checkpoint_id"],
    })))
}

pub(super) async fn history(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
    query: Query,
) -> Result<Json<Vec<Value>>, ApiError> {
    let before = query.get("before").map_or(Value::Null, Value::from);
    answer_history(
        &hub,
        &id,
        HistorySearch {
            limit: query.number("limit")?,
            before,
            select: Selection::of_query(&query)?,
            ..HistorySearch::default()
        },
    )
    .await
}

pub(super) async fn search_history(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
    Body(search): Body<HistorySearch>,
) -> Result<Json<Vec<Value>>, ApiError> {
    answer_history(&hub, &id, search).await
}

async fn answer_history(hub: &Hub, id: &str, search: HistorySearch) -> Result<Json<Vec<Value>>, ApiError> {
    let row = hub.thread_row(id)?;
    // Only whether it is of a subgraph matters.
    search.checkpoint.unwrap_or_default().number()?;
    let before = match &search.before {
        Value::Null => None,
        Value::String(id) => Some(ids::checkpoint(id)?),
        before => {
            let id =
                before["configurable"]["checkpoint_id"].as_str().or_else(|| before["checkpoint_id"].as_str());
            Some(ids::checkpoint(
                id.ok_or_else(|| ApiError::invalid("before: expected the id of a checkpoint"))?,
            )?)
        }
    };
    let limit = limit(search.limit, 10)?;
    let states = hub.history(&row, limit, before, &or_empty(search.metadata)).await?;
    Ok(Json(states.into_iter().map(|state| search.select.of_state(state)).collect()))
}

/// Stores an update of a thread, in the name of a node, and returns the new checkpoint.
///
/// # Errors
/// 400 for an unknown node, and for an update that does not say which node made it; 409 while a run is under way; 422 for values that
/// do not fit.
pub(super) async fn apply(
    hub: &Hub,
    row: &ThreadRow,
    at: Option<CheckpointId>,
    update: Update,
) -> Result<CheckpointId, ApiError> {
    if !update.command.is_null() {
        return Err(ApiError::invalid("command: commands are for runs; use `values` and `as_node`"));
    }
    let at = match at {
        Some(at) if hub.head(&row.id).await? == Some(at) => None,
        at => at,
    };
    let name = row.graph().unwrap_or_default();
    // Of its own, or it would have that of the run before it.
    let thread = hub.thread(row, RunOptions::new().at(at).metadata("graph_id", name))?;
    let graph = hub.graph(name)?;
    let as_node = update.as_node.map_or(AsNode::LastRun, AsNode::from);
    // No values stand for a copy of the checkpoint, which runs again from there.
    if update.values.is_null() && as_node == AsNode::LastRun && hub.head(&row.id).await?.is_some() {
        let head = hub.head(&row.id).await?;
        return Ok(thread.fork(at.or(head)).await?);
    }
    let values = match read_input(&**graph, update.values)? {
        Value::Null => json!({}),
        values => values,
    };
    let checkpoint = thread.update(as_node, &values)?.await?;
    if let Some(log) = hub.thread_logs.get(&row.key()) {
        // What waited before may be gone.
        log.idle_point();
    }
    hub.store_thread_end(&row.id, (ThreadStatus::Interrupted, None)).await?;
    Ok(checkpoint)
}
