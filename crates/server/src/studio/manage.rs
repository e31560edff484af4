//! Whole threads: copies, prunes, deletions; messages to running ones, and the files that their tools changed.
//!
//! Start at [`copy`].

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use serde::Deserialize;
use superstep_graph::{CheckpointId, checkpoint::Retention};

use super::{
    Studio,
    threads::Head,
    types::{Accepted, Pruned, Reverted},
};
use crate::{
    api::{extract::Body, threads::remove},
    error::ApiError,
    thread_actions::ThreadActions,
    wire::{ids, time},
};

#[derive(Deserialize)]
pub(super) struct Steer {
    text: String,
}

#[derive(Deserialize)]
pub(super) struct Copy {
    /// The name of the copy; a new one if absent.
    to: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Prune {
    /// The number of the newest checkpoints that stay; without it the last ones of all branches.
    last: Option<usize>,
    expected: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Revert {
    to: u64,
    expected: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Delete {}

/// Sends a message to the run of a thread.
pub(super) async fn steer(
    State(studio): State<Arc<Studio>>,
    Path(thread): Path<String>,
    Body(Steer { text }): Body<Steer>,
) -> Result<Json<Accepted>, ApiError> {
    let head = studio.head(&thread).await?;
    let actions = studio.actions_of(&head).ok_or_else(|| {
        ApiError::conflict(format!("the graph of thread `{thread}` reads no messages while it runs"))
    })?;
    if text.trim().is_empty() {
        return Err(ApiError::invalid("text: expected a message"));
    }
    actions.steer(Studio::thread_id(&thread), text).await.map_err(ApiError::conflict)?;
    Ok(Json(Accepted { checkpoint: None, thread }))
}

/// Copies a thread with all of its checkpoints.
pub(super) async fn copy(
    State(studio): State<Arc<Studio>>,
    Path(thread): Path<String>,
    Body(Copy { to }): Body<Copy>,
) -> Result<Json<Accepted>, ApiError> {
    let head = studio.head(&thread).await?;
    let to = to.filter(|to| !to.is_empty()).unwrap_or_else(ids::new_ordered);
    if studio.head(&to).await.is_ok() {
        return Err(ApiError::conflict(format!("thread `{to}` exists already")));
    }
    let (from, copy) = (Studio::thread_id(&thread), Studio::thread_id(&to));
    match studio.actions_of(&head) {
        Some(actions) => actions.copy(from, copy).await.map_err(ApiError::conflict)?,
        None => studio.open(&head, None)?.copy_to(copy).await?,
    }
    if let Some(mut row) = studio.hub.threads.get(&thread) {
        row.id.clone_from(&to);
        (row.created_us, row.updated_us, row.temporary) = (time::now_us(), time::now_us(), false);
        studio.hub.threads.put(&to, row).await?;
    }
    Ok(Json(Accepted { checkpoint: None, thread: to }))
}

/// Deletes older checkpoints of a thread.
pub(super) async fn prune(
    State(studio): State<Arc<Studio>>,
    Path(thread): Path<String>,
    Body(Prune { last, expected }): Body<Prune>,
) -> Result<Json<Pruned>, ApiError> {
    let head = studio.expect_head(&thread, expected).await?;
    let keep = last.map_or(Retention::Leaves, |last| Retention::Last(last.max(1)));
    let id = Studio::thread_id(&thread);
    let pruned = match studio.actions_of(&head) {
        Some(actions) => actions.prune(id.clone(), keep).await.map_err(ApiError::conflict)?,
        None => studio.open(&head, None)?.prune(keep).await?,
    };
    Ok(Json(Pruned { pruned, left: studio.hub.checkpointer.count(&id).await? }))
}

/// Restores the files that tools changed after a checkpoint.
pub(super) async fn revert(
    State(studio): State<Arc<Studio>>,
    Path(thread): Path<String>,
    Body(Revert { to, expected }): Body<Revert>,
) -> Result<Json<Reverted>, ApiError> {
    let head = studio.expect_head(&thread, expected).await?;
    let actions = studio.actions_of(&head).ok_or_else(|| {
        ApiError::conflict(format!("the graph of thread `{thread}` does not store the files that it changes"))
    })?;
    let files = actions.revert(Studio::thread_id(&thread), CheckpointId(to)).await;
    let files = files.map_err(ApiError::conflict)?;
    studio.adopt(&head).await?;
    Ok(Json(Reverted { files }))
}

/// Stops the runs of a thread, and deletes it, also if it is damaged.
pub(super) async fn delete(
    State(studio): State<Arc<Studio>>,
    Path(thread): Path<String>,
    Body(Delete {}): Body<Delete>,
) -> Result<Json<Accepted>, ApiError> {
    let head = studio.head(&thread).await?;
    if let Some(actions) = studio.actions_of(&head) {
        // It refuses a thread that runs.
        actions.delete(Studio::thread_id(&thread)).await.map_err(ApiError::conflict)?;
    }
    remove(&studio.hub, &thread).await?;
    Ok(Json(Accepted { checkpoint: None, thread }))
}

impl Studio {
    fn actions_of(&self, head: &Head) -> Option<&dyn ThreadActions> {
        self.hub.actions.get(head.graph.as_ref()?).map(|actions| &**actions)
    }
}
