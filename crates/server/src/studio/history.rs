//! The checkpoints of a thread: all of them in columns, and the details of a few.
//!
//! Start at [`overview`].

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    extract::{Path, State},
};
use serde_json::value::RawValue;
use superstep_graph::{
    CheckpointId, History, ThreadId,
    checkpoint::{CheckpointError, CheckpointMeta, Commit, Source, TaskRecord},
};
use superstep_llm::Usage;

use super::{
    Studio,
    threads::Head,
    types::{Overview, Tokens, Window, WindowRow},
};
use crate::{api::extract::Query, error::ApiError};

/// The maximum number of checkpoints in an overview, and the number that is read at once.
const MAX: usize = 20_000;
const PAGE: usize = 512;

/// A number that is greater than those of all checkpoints.
const FIRST_ABOVE: u64 = 1 << 32;

/// The maximum number of checkpoints before a damaged one that are tried.
const UNREADABLE: usize = 8;

/// The maximum number of checkpoints in a window.
const WINDOW: u64 = 100;

/// The channel with the tokens of a turn of the agent.
const USAGE: &str = "usage";

/// Returns the checkpoints after one, or all.
pub(super) async fn overview(
    State(studio): State<Arc<Studio>>,
    Path(thread): Path<String>,
    query: Query,
) -> Result<Json<Overview>, ApiError> {
    let after = query.number("after")?.unwrap_or(0) as u64;
    let (metas, is_cut) = studio.checkpoints(&thread, after).await?;
    let mut overview = Overview {
        ids: Vec::with_capacity(metas.len()),
        parents: Vec::with_capacity(metas.len()),
        steps: Vec::with_capacity(metas.len()),
        sources: Vec::with_capacity(metas.len()),
        created_ms: Vec::with_capacity(metas.len()),
        next: Vec::with_capacity(metas.len()),
        nodes: Vec::new(),
        is_cut,
    };
    for meta in metas {
        overview.ids.push(meta.id.0);
        overview.parents.push(meta.parent.map_or(0, |parent| meta.id.0 - parent.0));
        overview.steps.push(meta.control.step);
        overview.sources.push(meta.source.as_str());
        overview.created_ms.push(meta.created_ms);
        let next = meta.control.next.iter().map(|node| {
            let known = overview.nodes.iter().position(|known| known == node.as_str());
            known.unwrap_or_else(|| {
                overview.nodes.push(node.as_str().to_owned());
                overview.nodes.len() - 1
            })
        });
        let next = next.collect();
        overview.next.push(next);
    }
    Ok(Json(overview))
}

/// Returns the details of the checkpoints `from` to `to`.
pub(super) async fn window(
    State(studio): State<Arc<Studio>>,
    Path(thread): Path<String>,
    query: Query,
) -> Result<Json<Window>, ApiError> {
    let missing = || ApiError::invalid("from, to: expected the ids of checkpoints");
    let from = query.number("from")?.ok_or_else(missing)? as u64;
    let to = query.number("to")?.ok_or_else(missing)? as u64;
    let head = studio.head(&thread).await?;
    let thread = Studio::thread_id(&thread);
    let mut rows = Vec::new();
    for id in from..=to.min(from.saturating_add(WINDOW - 1)) {
        match studio.hub.checkpointer.read_commit(&thread, CheckpointId(id)).await {
            Ok(Some(commit)) => rows.push(studio.row(&head, id, &commit)),
            // Pruned.
            Ok(None) => {}
            Err(error) => rows.push(WindowRow {
                id,
                wrote: Vec::new(),
                bytes: 0,
                tokens: None,
                title: None,
                error: Some(superstep_graph::error::chain(&error)),
            }),
        }
    }
    Ok(Json(Window { rows }))
}

impl Studio {
    /// Returns the checkpoints after one, newest first, and whether older ones are left out: there are too many, or they cannot be read.
    pub(super) async fn checkpoints(
        &self,
        thread: &str,
        after: u64,
    ) -> Result<(Vec<CheckpointMeta>, bool), ApiError> {
        let thread = Self::thread_id(thread);
        let mut metas: Vec<CheckpointMeta> = Vec::new();
        // A page that already has most of them needs few more.
        let mut limit = if after > 0 { PAGE } else { MAX };
        loop {
            let before = metas.last().map(|meta| meta.id);
            let range = History { limit: Some(limit), before, ..History::default() };
            let page = match self.hub.checkpointer.history(&thread, range).await {
                Ok(page) => page,
                // One of them is damaged. Those that are newer are read in smaller parts.
                Err(CheckpointError::Corrupt { .. }) if limit > 1 => {
                    limit = limit.min(PAGE) / 2;
                    continue;
                }
                Err(CheckpointError::Corrupt { .. }) if metas.is_empty() => {
                    metas.extend(self.newest_readable(&thread).await);
                    if metas.is_empty() {
                        return Ok((metas, true));
                    }
                    continue;
                }
                Err(CheckpointError::Corrupt { .. }) => return Ok((metas, true)),
                Err(error) => return Err(error.into()),
            };
            let is_last = page.len() < limit;
            metas.extend(page);
            if metas.len() >= MAX && !is_last {
                return Ok((metas, true));
            }
            if is_last || metas.last().is_none_or(|oldest| oldest.id.0 <= after + 1) {
                metas.retain(|meta| meta.id.0 > after);
                return Ok((metas, false));
            }
        }
    }

    /// Returns the newest checkpoint of a thread that can be read although the head cannot; `None` if there is none.
    pub(super) async fn newest_readable(&self, thread: &ThreadId) -> Option<CheckpointMeta> {
        // Before the first damaged checkpoint every one is found, after it none.
        let (mut below, mut above) = (1, FIRST_ABOVE);
        let mut found = None;
        while below < above {
            let middle = below + (above - below) / 2;
            let range =
                History { limit: Some(1), before: Some(CheckpointId(middle + 1)), ..History::default() };
            match self.hub.checkpointer.history(thread, range).await {
                Ok(mut page) => {
                    found = page.pop().or(found);
                    below = middle + 1;
                }
                Err(_) => above = middle,
            }
        }
        // The records of its tasks may be in one that follows it.
        for _ in 0..UNREADABLE {
            let id = found.as_ref()?.id;
            if matches!(self.hub.checkpointer.load(thread, Some(id)).await, Ok(Some(_))) {
                return found;
            }
            let range = History { limit: Some(1), before: Some(id), ..History::default() };
            found = self.hub.checkpointer.history(thread, range).await.ok()?.pop();
        }
        None
    }

    fn row(&self, head: &Head, id: u64, commit: &Commit) -> WindowRow {
        let mut row = WindowRow { id, wrote: Vec::new(), bytes: 0, tokens: None, title: None, error: None };
        let shown = self.shown(head.graph.as_deref());
        for task in &commit.applied {
            row.bytes += task.update.bytes();
            let Ok(json) = task.update.json() else { continue };
            let mut writes: BTreeMap<String, &RawValue> =
                serde_json::from_str(json.as_str()).unwrap_or_default();
            writes.retain(|name, _| !name.starts_with('$') && shown.is_none_or(|shown| shown.contains(name)));
            let usage = writes.get(USAGE).and_then(|json| serde_json::from_str::<Usage>(json.get()).ok());
            row.tokens = usage
                .map(|usage| Tokens { input: usage.input_tokens, output: usage.output_tokens })
                .or(row.tokens);
            for name in writes.into_keys() {
                if !row.wrote.contains(&name) {
                    row.wrote.push(name);
                }
            }
        }
        if commit.source == Source::Input {
            row.title = self.input_text(head, commit);
        }
        row.error = commit.records.iter().find_map(|(_, record)| match record.clone().into_parts().1 {
            TaskRecord::Failed { error, .. } => Some(error),
            _ => None,
        });
        row
    }
}
