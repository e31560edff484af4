//! The size of what is stored for a thread.
//!
//! Start at [`read`].

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    extract::{Path, State},
};
use serde_json::{Map, Value, json};
use superstep_graph::{History, RunOptions};

use crate::{error::ApiError, runs::hub::Hub};

/// The number of checkpoints that are read at once.
const PAGE: usize = 32;

/// The values of a channel over the checkpoints of a thread.
#[derive(Default)]
struct Versions {
    newest: Option<String>,
    count: usize,
    bytes: usize,
}

/// Returns how many checkpoints, values and results of tasks a thread has, and their sizes as JSON in bytes. A value counts for each
/// checkpoint that changed it.
pub(super) async fn read(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let row = hub.thread_row(&id)?;
    let mut channels: BTreeMap<String, Versions> = BTreeMap::new();
    let (mut checkpoints, mut checkpoint_bytes) = (0, 0);
    let (mut pending, mut pending_bytes) = (0, 0);
    if row.graph().is_some() {
        let thread = hub.thread(&row, RunOptions::new())?;
        let mut before = None;
        loop {
            let page = thread.history(History { limit: Some(PAGE), before, ..History::default() }).await?;
            for snapshot in &page {
                checkpoints += 1;
                checkpoint_bytes += json!(snapshot.checkpoint).to_string().len();
                for (name, value) in snapshot.state.values()? {
                    channels.entry(name).or_default().add(value.to_string());
                }
            }
            before = page.last().and_then(|snapshot| snapshot.checkpoint.as_ref()).map(|meta| meta.id);
            if page.len() < PAGE || before.is_none() {
                break;
            }
        }
        for result in thread.state().await?.tasks.into_iter().filter_map(|task| task.result) {
            pending += 1;
            pending_bytes += result.to_string().len();
        }
    }
    let (count, bytes) = channels
        .values()
        .fold((0, 0), |(count, bytes), versions| (count + versions.count, bytes + versions.bytes));
    let by_channel = channels
        .into_iter()
        .map(|(name, versions)| (name, json!({ "versions": versions.count, "bytes": versions.bytes })));
    Ok(Json(json!({
        "thread_id": id,
        "total_bytes": checkpoint_bytes + bytes + pending_bytes,
        "checkpoints": { "count": checkpoints, "bytes": checkpoint_bytes },
        "channel_values": { "count": count, "bytes": bytes, "by_channel": by_channel.collect::<Map<_, _>>() },
        "pending_writes": { "count": pending, "bytes": pending_bytes },
    })))
}

impl Versions {
    fn add(&mut self, value: String) {
        if self.newest.as_ref() != Some(&value) {
            self.count += 1;
            self.bytes += value.len();
            self.newest = Some(value);
        }
    }
}
