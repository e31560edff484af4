//! Changes of threads, comparisons and replays.
//!
//! Start at [`run`].

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    Json,
    extract::{Path, State},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use superstep_graph::{
    CheckpointId, RunOptions, ThreadId,
    checkpoint::{CheckpointMeta, Source},
    erased::ReplayRange,
    error::chain,
    replay::{Divergence, Replayed},
    thread::AsNode,
};

use super::{
    Studio, diff,
    dry_run::DryCheckpointer,
    part::preview,
    threads::Head,
    types::{Accepted, Comparison, DivergenceView, DryRun, PathStep, ReplayView},
};
use crate::{
    access::User,
    api::{
        extract::{Body, Query},
        runs::begin,
    },
    error::ApiError,
    rows::{
        run::Stop,
        thread::{ThreadRow, ThreadStatus},
    },
    runs::hub::lanes::Cancelled,
    wire::ids,
};

/// The mode of runs that the page begins. Everything else it reads from what they store.
const MODE: &str = "messages-tuple";

/// The maximum number of checkpoints on each side of a comparison.
const MAX_PATH: usize = 500;

/// The maximum size of a value in a divergence, in bytes.
const MAX_VALUE: usize = 4_096;

#[derive(Deserialize)]
pub(super) struct New {
    graph: String,
    input: Value,
    /// The name of the thread; a new one if absent.
    thread: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Run {
    /// The input; null to run what is pending.
    #[serde(default)]
    input: Value,
    /// The checkpoint at which it begins, if that is not the head.
    at: Option<u64>,
    expected: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Answers {
    /// By the ids of the questions.
    answers: Map<String, Value>,
    expected: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Fork {
    at: u64,
    expected: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Update {
    values: Value,
    as_node: Option<String>,
    at: Option<u64>,
    expected: Option<u64>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
pub(super) struct Range {
    from: Option<u64>,
    to: Option<u64>,
    #[serde(default)]
    live: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct Nothing {}

/// Begins a thread.
pub(super) async fn create(
    State(studio): State<Arc<Studio>>,
    user: User,
    Body(New { graph, input, thread }): Body<New>,
) -> Result<Json<Accepted>, ApiError> {
    let thread = thread.filter(|thread| !thread.is_empty()).unwrap_or_else(ids::new_ordered);
    if studio.head(&thread).await.is_ok() {
        return Err(ApiError::conflict(format!("thread `{thread}` exists already")));
    }
    let request = json!({
        "assistant_id": graph, "input": input, "stream_mode": MODE, "if_not_exists": "create",
        "multitask_strategy": "reject",
    });
    studio.begin(&user, &thread, request).await
}

/// Runs a thread on an input, or what is pending, or from an older checkpoint. While another run is under way it waits.
pub(super) async fn run(
    State(studio): State<Arc<Studio>>,
    user: User,
    Path(thread): Path<String>,
    Body(Run { input, at, expected }): Body<Run>,
) -> Result<Json<Accepted>, ApiError> {
    let head = studio.expect_head(&thread, expected).await?;
    studio.adopt(&head).await?;
    let mut request =
        json!({ "assistant_id": studio.graph_of(&head)?.0, "input": input, "stream_mode": MODE });
    if let Some(at) = at {
        request["checkpoint_id"] = at.to_string().into();
    }
    studio.begin(&user, &thread, request).await
}

/// Answers questions of a thread, and runs it.
pub(super) async fn answer(
    State(studio): State<Arc<Studio>>,
    user: User,
    Path(thread): Path<String>,
    Body(Answers { answers, expected }): Body<Answers>,
) -> Result<Json<Accepted>, ApiError> {
    let head = studio.expect_head(&thread, expected).await?;
    let snapshot = studio.open(&head, None)?.state().await?;
    let waiting: BTreeSet<&str> = snapshot.interrupts().map(|interrupt| &*interrupt.id).collect();
    if answers.is_empty() {
        return Err(ApiError::invalid("answers: expected at least one"));
    }
    if let Some(id) = answers.keys().find(|id| !waiting.contains(&***id)) {
        return Err(ApiError::conflict(format!(
            "question `{id}` does not wait any more; it may have been answered"
        )));
    }
    studio.adopt(&head).await?;
    let request = json!({
        "assistant_id": studio.graph_of(&head)?.0, "command": { "resume": answers }, "stream_mode": MODE,
        "multitask_strategy": "reject",
    });
    studio.begin(&user, &thread, request).await
}

/// Stops the runs of a thread on this server.
pub(super) async fn cancel(
    State(studio): State<Arc<Studio>>,
    Path(thread): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<Accepted>, ApiError> {
    let mut has_stopped = false;
    for run in studio.hub.live_of(&thread) {
        let reason = "stopped in the studio";
        let cancelled = studio.hub.cancel_run(&thread, &run.about.run, Stop::Interrupt, reason).await?;
        has_stopped |= !matches!(cancelled, Cancelled::Nothing);
    }
    if !has_stopped {
        return Err(ApiError::conflict(format!("no run of thread `{thread}` is under way on this server")));
    }
    Ok(Json(Accepted { checkpoint: None, thread }))
}

/// Makes a copy of a checkpoint the head.
pub(super) async fn fork(
    State(studio): State<Arc<Studio>>,
    Path(thread): Path<String>,
    Body(Fork { at, expected }): Body<Fork>,
) -> Result<Json<Accepted>, ApiError> {
    let head = studio.expect_head(&thread, expected).await?;
    let checkpoint = studio.open(&head, None)?.fork(Some(CheckpointId(at))).await?;
    studio.changed(&head).await?;
    Ok(Json(Accepted { checkpoint: Some(checkpoint.0), thread }))
}

/// Stores an update in the name of a node, or, as a dry run, returns what it would change.
pub(super) async fn update(
    State(studio): State<Arc<Studio>>,
    Path(thread): Path<String>,
    Body(update): Body<Update>,
) -> Result<Json<Value>, ApiError> {
    let head = studio.expect_head(&thread, update.expected).await?;
    let newest = head.meta.as_ref().map(|meta| meta.id);
    let at = update.at.map(CheckpointId).filter(|at| Some(*at) != newest);
    let as_node = update.as_node.map_or(AsNode::LastRun, AsNode::from);
    if !update.dry_run {
        let checkpoint = studio.open(&head, at)?.update(as_node, &update.values)?.await?;
        studio.changed(&head).await?;
        return Ok(Json(json!(Accepted { checkpoint: Some(checkpoint.0), thread })));
    }
    let before = match at.or(newest) {
        Some(at) => studio.state(&head, at.0).await?.values.clone(),
        None => studio.initial(&head)?,
    };
    let options = RunOptions::new().thread(Studio::thread_id(&thread));
    let graph = studio.graph_of(&head)?.1;
    let graph = graph.with_checkpointer(Arc::new(DryCheckpointer::new(studio.hub.checkpointer.clone())));
    graph.thread(options.clone().at(at)).update(as_node, &update.values)?.await?;
    let after = graph.thread(options).state().await?;
    let values = studio.shown_of(&head, after.state.values()?);
    let changes = diff::changes(&before, &values, at.or(newest).map(|at| at.0));
    let next = after.next.iter().map(|node| node.as_str().to_owned()).collect();
    Ok(Json(json!(DryRun { changes, next })))
}

/// Replays a part of a thread.
pub(super) async fn replay(
    State(studio): State<Arc<Studio>>,
    Path(thread): Path<String>,
    Body(Range { from, to, live }): Body<Range>,
) -> Result<Json<ReplayView>, ApiError> {
    let head = studio.head(&thread).await?;
    let graph = studio.graph_of(&head)?.1;
    if let Some(admit) = studio.hub.admit.as_ref().filter(|_| !live.is_empty()) {
        admit(Studio::thread_id(&thread), Vec::new()).await.map_err(ApiError::conflict)?;
    }
    let shows_values = studio.shown(head.graph.as_deref()).is_none();
    let range = ReplayRange { from: from.map(CheckpointId), to: to.map(CheckpointId), live };
    let replayed = graph.thread(studio.options(&Studio::thread_id(&thread))).replay(range).await;
    let replayed = replayed.map_err(|error| ApiError::impossible(chain(&error)))?;
    Ok(Json(replay_view(&replayed, shows_values)))
}

/// Compares two checkpoints, each as `THREAD@NUMBER`.
pub(super) async fn compare(
    State(studio): State<Arc<Studio>>,
    query: Query,
) -> Result<Json<Comparison>, ApiError> {
    let read = |name: &str| {
        let text = query.get(name).and_then(|text| text.rsplit_once('@'));
        let read = text.and_then(|(thread, at)| Some((thread.to_owned(), at.parse::<u64>().ok()?)));
        read.ok_or_else(|| ApiError::invalid(format!("{name}: expected `THREAD@NUMBER`")))
    };
    let ((thread, one), (other_thread, other)) = (read("a")?, read("b")?);
    let before = studio.state(&studio.head(&thread).await?, one).await?;
    let after = studio.state(&studio.head(&other_thread).await?, other).await?;
    let (mut one, mut other) = (studio.path(&thread, one).await?, studio.path(&other_thread, other).await?);
    let mut common = None;
    if thread == other_thread {
        let shared = one.iter().zip(&other).take_while(|(one, other)| one.id == other.id).count();
        common = shared.checked_sub(1).map(|last| one[last].id);
        one.drain(..shared);
        other.drain(..shared);
    }
    let last = |path: &mut Vec<PathStep>| drop(path.drain(..path.len().saturating_sub(MAX_PATH)));
    last(&mut one);
    last(&mut other);
    Ok(Json(Comparison { changes: diff::changes(&before.values, &after.values, None), common, one, other }))
}

impl Studio {
    /// Returns the head of a thread if it is the one that the page shows.
    ///
    /// # Errors
    /// 409 if the thread has moved.
    pub(super) async fn expect_head(&self, thread: &str, expected: Option<u64>) -> Result<Head, ApiError> {
        let head = self.head(thread).await?;
        let newest = head.meta.as_ref().map_or(0, |meta| meta.id.0);
        if expected.is_some_and(|expected| expected != newest) {
            return Err(ApiError::conflict(format!("the thread moved to #{newest}; nothing was changed")));
        }
        Ok(head)
    }

    /// Returns the options of replays of a thread.
    pub(super) fn options(&self, thread: &ThreadId) -> RunOptions {
        let options = self.hub.defaults.clone().thread(thread.clone());
        self.hub.options.iter().fold(options, |options, change| change(options))
    }

    /// Adds a row for a thread that no client of this server began.
    pub(super) async fn adopt(&self, head: &Head) -> Result<(), ApiError> {
        if self.hub.threads.has(&head.id) {
            return Ok(());
        }
        let graph = self.graph_of(head)?.0;
        let created_us = head.meta.as_ref().map_or(0, |meta| meta.created_ms.saturating_mul(1_000));
        let metadata = Map::from_iter([("graph_id".to_owned(), graph.into())]);
        let mut row = ThreadRow::new(head.id.clone(), metadata, created_us);
        row.state_us = Some(created_us);
        self.hub.threads.add(&head.id, row).await.map(drop)
    }

    /// Stores in its row that a thread was changed.
    async fn changed(&self, head: &Head) -> Result<(), ApiError> {
        self.adopt(head).await?;
        self.hub.store_thread_end(&head.id, (ThreadStatus::Interrupted, None)).await
    }

    async fn begin(&self, user: &User, thread: &str, request: Value) -> Result<Json<Accepted>, ApiError> {
        let request = serde_json::from_value(request).expect("a request of this server is valid");
        begin(&self.hub, user, thread, request).await?;
        Ok(Json(Accepted { checkpoint: None, thread: thread.to_owned() }))
    }

    /// Returns the checkpoints that lead to one, oldest first.
    async fn path(&self, thread: &str, to: u64) -> Result<Vec<PathStep>, ApiError> {
        let (metas, _) = self.checkpoints(thread, 0).await?;
        let mut wanted = Some(CheckpointId(to));
        let mut path: Vec<&CheckpointMeta> = Vec::new();
        for meta in &metas {
            if wanted == Some(meta.id) {
                wanted = meta.parent;
                path.push(meta);
            }
        }
        path.reverse();
        let step = |(nth, meta): (usize, &&CheckpointMeta)| {
            let before =
                nth.checked_sub(1).filter(|_| meta.source == Source::Loop).map(|before| path[before]);
            let ran = before.iter().flat_map(|before| &before.control.next);
            PathStep {
                id: meta.id.0,
                step: meta.control.step,
                source: meta.source.as_str(),
                ran: ran.map(|node| node.as_str().to_owned()).collect(),
                created_ms: meta.created_ms,
            }
        };
        Ok(path.iter().enumerate().map(step).collect())
    }
}

/// Returns the result of a replay as the page has it. The values of a request to a model have the system prompt, which is the value
/// of no channel; so they are left out where channels are hidden.
pub(super) fn replay_view(replayed: &Replayed, shows_values: bool) -> ReplayView {
    ReplayView {
        is_whole: replayed.is_whole(),
        same: replayed.supersteps,
        taken: replayed.taken,
        skipped: replayed.skipped,
        left: replayed.left,
        fork: replayed.fork.map(|fork| fork.0),
        divergence: replayed.divergence.as_ref().map(|found| divergence(found, shows_values)),
    }
}

fn divergence(found: &Divergence, shows_values: bool) -> DivergenceView {
    let value = |value| if shows_values { preview(value, MAX_VALUE).0 } else { String::new() };
    let mut text = found.to_string();
    if !shows_values {
        // The lines after the first one have the values.
        text.truncate(text.find('\n').unwrap_or(text.len()));
    }
    let changes = found.changes.iter().filter(|_| shows_values);
    DivergenceView {
        text,
        checkpoint: found.checkpoint.0,
        step: found.step,
        node: found.node.as_str().to_owned(),
        at: found.at.to_string(),
        kind: found.kind.name().to_owned(),
        place: found.place.clone(),
        recorded: value(&found.expected),
        now: value(&found.got),
        changes: changes.map(ToString::to_string).collect(),
    }
}
