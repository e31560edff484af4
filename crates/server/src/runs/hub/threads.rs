//! Reading the states of threads with the metadata of their runs.
//!
//! Start at [`Hub::history`].

use serde_json::{Map, Value, json};
use superstep_graph::{
    CheckpointId, History, RunError, RunOptions, ThreadId,
    checkpoint::{CheckpointError, CheckpointMeta},
    erased::{AnyState, JsonSnapshot},
    error::chain,
};

use crate::{
    error::ApiError,
    rows::{table::contains, thread::ThreadRow},
    runs::{
        hub::{Hub, run_key},
        live::{LiveRun, RunEnd},
    },
    wire::channels::retain,
    wire::state,
};

/// The metadata of all runs, which the server sets.
pub(super) const IDS: [&str; 5] = ["graph_id", "assistant_id", "run_id", "thread_id", "run_attempt"];

/// The number of checkpoints that are read at once; on the way to the beginning of a long run twice as many each time.
const PAGE: usize = 32;
const MAX_PAGE: usize = 4_096;

impl Hub {
    /// Returns the state of a thread at a checkpoint, or at its head, there with the states of `subgraphs`.
    ///
    /// # Errors
    /// 404 for an unknown checkpoint; those of the checkpointer.
    pub(crate) async fn state(
        &self,
        row: &ThreadRow,
        at: Option<CheckpointId>,
        subgraphs: bool,
    ) -> Result<Value, ApiError> {
        if row.graph().is_none() {
            return match at {
                None => Ok(state::empty()),
                Some(_) => Err(ApiError::not_found("checkpoint of thread", &row.id)),
            };
        }
        // At the head a state includes what has finished since.
        let at = match at {
            Some(at) if self.head(&row.id).await? == Some(at) => None,
            at => at,
        };
        let snapshot = self.thread(row, RunOptions::new().at(at))?.state().await?;
        let mut state = self.shown(row, &snapshot).await?;
        // Earlier states of subgraphs are not read.
        if subgraphs && at.is_none() {
            self.add_subgraphs(row, &snapshot, &mut state).await?;
        }
        Ok(state)
    }

    /// Adds the states of the subgraphs that waiting tasks called.
    async fn add_subgraphs(
        &self,
        row: &ThreadRow,
        snapshot: &JsonSnapshot,
        state: &mut Value,
    ) -> Result<(), ApiError> {
        let Some(checkpoint) = &snapshot.checkpoint else { return Ok(()) };
        let metadata = state["metadata"].as_object().cloned().unwrap_or_default();
        let thread = self.thread(row, RunOptions::new())?;
        for (task, shown) in snapshot.tasks.iter().zip(state["tasks"].as_array_mut().into_iter().flatten()) {
            let mut paths = task.subgraphs.iter().map(ThreadId::path);
            let Some(path) = paths.find(|path| path.0.len() == 1) else { continue };
            let nodes = path.nodes().map(|node| node.as_str().to_owned()).collect();
            let found = match thread.subgraph(nodes).await {
                // A node called a graph of its own.
                Err(RunError::NoSubgraph { .. }) => None,
                found => found?,
            };
            let Some(found) = found else { continue };
            let mut inner = state::of_subgraph(&row.id, (checkpoint.id, task), found, metadata.clone());
            self.hide(row.graph().unwrap_or_default(), &mut inner["values"]);
            (shown["state"], shown["checkpoint"]) = (inner, Value::Null);
        }
        Ok(())
    }

    /// Returns the values at the head of a thread; null before its first run.
    pub(crate) async fn values(&self, row: &ThreadRow) -> Result<Value, ApiError> {
        if !self.has_values(row) {
            return Ok(Value::Null);
        }
        let snapshot = self.thread(row, RunOptions::new())?.state().await?;
        self.values_of(row, &snapshot)
    }

    /// Returns the values at the head of a thread for a list, from which one that its graph cannot read does not take the others:
    /// its values are null.
    ///
    /// # Errors
    /// The checkpointer cannot be read at all.
    pub(crate) async fn listed_values(&self, row: &ThreadRow) -> Result<Value, ApiError> {
        if !self.has_values(row) {
            return Ok(Value::Null);
        }
        match self.thread(row, RunOptions::new())?.state().await {
            Ok(snapshot) => self.values_of(row, &snapshot),
            Err(RunError::Checkpoint(error @ CheckpointError::Storage { .. })) => Err(error.into()),
            Err(error) => {
                tracing::warn!(
                    thread = row.id,
                    error = chain(&error),
                    "the state of a thread cannot be read"
                );
                Ok(Value::Null)
            }
        }
    }

    /// Returns whether a thread may have values, and its graph is on this server.
    fn has_values(&self, row: &ThreadRow) -> bool {
        row.state_us.is_some() && row.graph().is_some_and(|graph| self.graphs.contains_key(graph))
    }

    fn values_of(&self, row: &ThreadRow, snapshot: &JsonSnapshot) -> Result<Value, ApiError> {
        if snapshot.checkpoint.is_none() {
            return Ok(Value::Null);
        }
        let mut values = state::values(snapshot)?;
        self.hide(row.graph().unwrap_or_default(), &mut values);
        Ok(values)
    }

    /// Returns the states of a thread, newest first, of all branches.
    ///
    /// # Errors
    /// The errors of the checkpointer.
    pub(crate) async fn history(
        &self,
        row: &ThreadRow,
        limit: usize,
        before: Option<CheckpointId>,
        metadata: &Map<String, Value>,
    ) -> Result<Vec<Value>, ApiError> {
        let mut states = Vec::new();
        if row.graph().is_none() {
            return Ok(states);
        }
        let thread = self.thread(row, RunOptions::new())?;
        let mut before = before;
        while states.len() < limit {
            let page = if metadata.is_empty() { (limit - states.len()).min(PAGE) } else { PAGE };
            let range = History { limit: Some(page), before, ..History::default() };
            let snapshots = thread.history(range).await?;
            for snapshot in &snapshots {
                let shown = self.shown(row, snapshot).await?;
                if shown["metadata"].as_object().is_some_and(|shown| contains(shown, metadata))
                    && states.len() < limit
                {
                    states.push(shown);
                }
            }
            before = snapshots.last().and_then(|snapshot| snapshot.checkpoint.as_ref()).map(|meta| meta.id);
            if snapshots.len() < page || before.is_none() {
                break;
            }
        }
        Ok(states)
    }

    async fn shown(&self, row: &ThreadRow, snapshot: &JsonSnapshot) -> Result<Value, ApiError> {
        let Some(meta) = &snapshot.checkpoint else { return Ok(state::empty()) };
        let metadata = self.run_metadata(&row.id, meta).await?;
        let graph = row.graph().unwrap_or_default();
        let metadata =
            if self.shown.contains_key(graph) { self.own_metadata(&row.id, metadata) } else { metadata };
        let mut state = state::state(&row.id, snapshot, metadata)?;
        self.hide(graph, &mut state["values"]);
        for task in state["tasks"].as_array_mut().into_iter().flatten() {
            self.hide(graph, &mut task["result"]);
        }
        Ok(state)
    }

    /// Returns the result of a run that has ended, as clients that wait for it see it.
    pub(crate) fn result(&self, live: &LiveRun, end: &RunEnd) -> Value {
        if let Some(failure) = &end.failure {
            return json!({ "__error__": failure });
        }
        match end.state.as_ref().map(AnyState::values) {
            None => json!({}),
            Some(Err(error)) => {
                json!({ "__error__": { "error": "ServerError", "message": chain(&error) } })
            }
            Some(Ok(values)) => {
                let mut values = state::shown_values(values).into();
                self.hide(&live.about.graph, &mut values);
                if !end.interrupts.is_empty() {
                    values["__interrupt__"] =
                        end.interrupts.iter().map(state::interrupt_with_schema).collect();
                }
                values
            }
        }
    }

    /// Removes the channels of a graph that clients do not see.
    pub(crate) fn hide(&self, graph: &str, channels: &mut Value) {
        if let Some(shown) = self.shown.get(graph) {
            retain(channels, shown);
        }
    }

    /// Returns the part of a checkpoint's metadata that the client of its run set, or may know.
    pub(crate) fn own_metadata(&self, thread: &str, mut metadata: Map<String, Value>) -> Map<String, Value> {
        let run = metadata.get("run_id").and_then(Value::as_str).map(str::to_owned);
        metadata.retain(|name, _| IDS.contains(&&**name));
        let row = run.and_then(|run| self.runs.get(&run_key(thread, &run)));
        // The values of the client, even if the server has replaced them.
        metadata.extend(row.map(|row| row.plan.metadata).unwrap_or_default());
        metadata
    }

    /// Returns the metadata of the run that made a checkpoint, which its first checkpoint has.
    async fn run_metadata(
        &self,
        thread: &str,
        meta: &CheckpointMeta,
    ) -> Result<Map<String, Value>, ApiError> {
        let (mut wanted, mut page) = (meta.clone(), Vec::new());
        // The ids up to the last one have no gap.
        let (mut is_gapless, mut limit) = (true, PAGE);
        loop {
            let parent = wanted.parent.filter(|_| !wanted.parent_pruned && !wanted.has_run_metadata());
            let metadata = wanted.clone().shown().metadata;
            let Some(parent) = parent.filter(|_| metadata.is_empty()) else {
                if is_gapless && meta.id.0 - wanted.id.0 >= PAGE as u64 {
                    self.origins.add(thread, &wanted, meta.id);
                }
                return Ok(metadata);
            };
            is_gapless &= parent.0 + 1 == wanted.id.0;
            // Newest first.
            let place = |page: &[CheckpointMeta]| page.binary_search_by(|meta| parent.cmp(&meta.id)).ok();
            if place(&page).is_none() {
                if let Some(first) = self.origins.find(thread, parent) {
                    let found = self.upto(thread, first, 1).await?.pop();
                    if self.origins.check(thread, first, found.as_ref())
                        && let Some(found) = found
                    {
                        wanted = found;
                        continue;
                    }
                }
                page = self.upto(thread, parent, limit).await?;
                limit = (limit * 2).min(MAX_PAGE);
            }
            match place(&page) {
                Some(at) => wanted = page[at].clone(),
                None => return Ok(Map::new()),
            }
        }
    }

    /// Returns at most so many checkpoints of a thread from one on, newest first.
    async fn upto(
        &self,
        thread: &str,
        newest: CheckpointId,
        limit: usize,
    ) -> Result<Vec<CheckpointMeta>, ApiError> {
        let before = Some(CheckpointId(newest.0 + 1));
        let range = History { limit: Some(limit), before, ..History::default() };
        Ok(self.checkpointer.history(&ThreadId::from(thread), range).await?)
    }
}
