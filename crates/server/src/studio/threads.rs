//! Threads at their heads: the list, the inbox, and one thread.
//!
//! Start at [`Studio::heads`].

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    Json,
    extract::{Path, State},
};
use serde_json::Value;
use superstep_graph::{
    CheckpointId, Interrupt, RunOptions, ThreadId,
    checkpoint::{CheckpointError, CheckpointMeta, Commit, Source, TaskRecord},
    erased::{JsonGraph, JsonThread},
    error::chain,
};

use super::{
    Studio,
    part::{preview, shorten},
    types::{Inbox, InboxThread, QuestionView, Status, ThreadLine, ThreadList, ThreadView},
};
use crate::{
    api::extract::{Query, limit},
    error::ApiError,
    rows::thread::{ThreadRow, ThreadStatus},
};

/// The maximum size of a title, in bytes.
const TITLE: usize = 200;

/// A thread at its head.
pub(super) struct Head {
    pub(super) id: String,
    /// `None` if nothing is stored yet, or it cannot be read.
    pub(super) meta: Option<CheckpointMeta>,
    /// The name on this server.
    pub(super) graph: Option<String>,
    pub(super) status: Status,
    pub(super) waits: usize,
    error: Option<String>,
    updated_ms: i64,
    /// The slots of the tasks that have finished since.
    done: BTreeSet<u32>,
}

/// The records of a checkpoint's tasks, counted.
#[derive(Default)]
struct Tasks {
    done: BTreeSet<u32>,
    waits: usize,
    error: Option<String>,
}

pub(super) async fn list(
    State(studio): State<Arc<Studio>>,
    query: Query,
) -> Result<Json<ThreadList>, ApiError> {
    let (status, graph, node) = (query.get("status"), query.get("graph"), query.get("node"));
    let words = query.get("q").map(str::to_lowercase);
    let since = query.number("since")?.and_then(|since| i64::try_from(since).ok());
    let (limit, offset) = (limit(query.number("limit")?, 50)?, query.number("offset")?.unwrap_or(0));
    let mut heads = studio.heads().await?;
    let waiting = heads.iter().map(|head| head.waits).sum();
    heads.retain(|head| {
        status.is_none_or(|status| head.status.name() == status)
            && graph.is_none_or(|graph| head.graph.as_deref() == Some(graph))
            && node.is_none_or(|node| head.next().iter().any(|next| next == node))
            && since.is_none_or(|since| head.updated_ms >= since)
    });
    let mut threads = Vec::new();
    let mut total = 0;
    for head in heads {
        // Only a search needs the titles of all.
        let is_on_page = total >= offset && threads.len() < limit;
        if words.is_none() && !is_on_page {
            total += 1;
            continue;
        }
        let line = studio.line(head).await;
        let fits = |words: &String| {
            line.id.to_lowercase().contains(words) || line.title.to_lowercase().contains(words)
        };
        if words.as_ref().is_none_or(fits) {
            total += 1;
            if is_on_page {
                threads.push(line);
            }
        }
    }
    Ok(Json(ThreadList { threads, total, waiting }))
}

pub(super) async fn read(
    State(studio): State<Arc<Studio>>,
    Path(thread): Path<String>,
) -> Result<Json<ThreadView>, ApiError> {
    let mut head = studio.head(&thread).await?;
    let questions = studio.questions(&mut head).await;
    let stored_by = head.meta.as_ref().and_then(CheckpointMeta::graph).map(|graph| graph.to_string());
    let checkpoints = match head.meta {
        Some(_) if head.status == Status::Damaged => 0,
        Some(_) => studio.hub.checkpointer.count(&Studio::thread_id(&thread)).await?,
        None => 0,
    };
    Ok(Json(ThreadView { line: studio.line(head).await, checkpoints, questions, stored_by }))
}

pub(super) async fn inbox(State(studio): State<Arc<Studio>>) -> Result<Json<Inbox>, ApiError> {
    let mut threads = Vec::new();
    for mut head in studio.heads().await?.into_iter().filter(|head| head.waits > 0) {
        let questions = studio.questions(&mut head).await;
        threads.push(InboxThread { line: studio.line(head).await, questions });
    }
    Ok(Json(Inbox { threads }))
}

impl Studio {
    /// Returns the heads of all threads, newest first; also of those that cannot be read.
    pub(super) async fn heads(&self) -> Result<Vec<Head>, ApiError> {
        let checkpointer = &self.hub.checkpointer;
        let mut heads = Vec::new();
        match checkpointer.threads().await {
            Ok(all) => {
                for (thread, meta) in all {
                    heads.push(self.head_of(&thread, Ok(Some(meta))).await);
                }
            }
            // One of them is damaged.
            Err(CheckpointError::Corrupt { .. }) => {
                for thread in checkpointer.names().await? {
                    let newest = self.hub.newest(&thread).await;
                    heads.push(self.head_of(&thread, newest).await);
                }
            }
            Err(error) => return Err(error.into()),
        }
        let stored: BTreeSet<String> = heads.iter().map(|head| head.id.clone()).collect();
        for row in self.hub.threads.list(|row| !stored.contains(&row.id)) {
            heads.push(self.head_of(&ThreadId::from(row.id.as_str()), Ok(None)).await);
        }
        heads.sort_by(|one, other| (other.updated_ms, &one.id).cmp(&(one.updated_ms, &other.id)));
        Ok(heads)
    }

    /// Returns the head of a thread.
    ///
    /// # Errors
    /// 404 if neither a checkpoint nor a row of it is stored.
    pub(super) async fn head(&self, thread: &str) -> Result<Head, ApiError> {
        let id = Self::thread_id(thread);
        let newest = self.hub.newest(&id).await;
        if matches!(newest, Ok(None)) && !self.hub.threads.has(thread) {
            return Err(ApiError::not_found("thread", thread));
        }
        let mut head = self.head_of(&id, newest).await;
        if head.status == Status::Damaged && head.meta.is_none() {
            // The checkpoints before it can still be inspected.
            head.meta = self.newest_readable(&id).await;
            head.graph = self.name_of(self.hub.threads.get(thread).as_ref(), head.meta.as_ref());
        }
        Ok(head)
    }

    async fn head_of(
        &self,
        thread: &ThreadId,
        newest: Result<Option<CheckpointMeta>, CheckpointError>,
    ) -> Head {
        let (id, row) = (thread.as_str().to_owned(), self.hub.threads.get(thread.as_str()));
        let created_ms = row.as_ref().map_or(0, |row| row.updated_us / 1_000);
        let mut head = Head {
            id,
            meta: None,
            graph: None,
            status: Status::Empty,
            waits: 0,
            error: None,
            updated_ms: created_ms,
            done: BTreeSet::new(),
        };
        let is_busy = self.hub.is_busy(&head.id);
        match newest {
            Err(error) => {
                (head.status, head.error) = (Status::Damaged, Some(chain(&error)));
                return head;
            }
            Ok(None) => {
                head.graph = self.name_of(row.as_ref(), None);
                if is_busy {
                    head.status = Status::Running;
                }
                return head;
            }
            Ok(Some(meta)) => {
                head.graph = self.name_of(row.as_ref(), Some(&meta));
                head.updated_ms = meta.created_ms;
                head.status = if meta.control.next.is_empty() { Status::Done } else { Status::Paused };
                head.meta = Some(meta);
            }
        }
        if is_busy {
            head.status = Status::Running;
        }
        if head.status == Status::Done {
            return head;
        }
        let at = head.meta.as_ref().map_or(CheckpointId(0), |meta| meta.id);
        let tasks = match self.hub.checkpointer.read_commit(thread, at).await {
            Ok(commit) => commit.map(|commit| Tasks::of(&commit)).unwrap_or_default(),
            Err(error) => {
                (head.status, head.error) = (Status::Damaged, Some(chain(&error)));
                return head;
            }
        };
        (head.waits, head.done) = (tasks.waits, tasks.done);
        // A thread whose writer is unknown is not shown as running.
        let is_running = is_busy || self.hub.checkpointer.has_writer(thread).await.unwrap_or(false);
        let of_run = row.filter(|row| row.status == ThreadStatus::Error).and_then(|row| row.error);
        head.error = tasks.error.or_else(|| of_run.map(|failure| failure.message));
        head.status = if is_running {
            head.error = None;
            Status::Running
        } else if head.waits > 0 {
            Status::Waits
        } else if head.error.is_some() {
            Status::Failed
        } else {
            Status::Paused
        };
        head
    }

    /// Returns the name on this server of the graph of a thread.
    fn name_of(&self, row: Option<&ThreadRow>, meta: Option<&CheckpointMeta>) -> Option<String> {
        let graphs = &self.hub.graphs;
        if let Some(name) = row.and_then(ThreadRow::graph).filter(|name| graphs.contains_key(*name)) {
            return Some(name.to_owned());
        }
        match meta?.graph() {
            Some(owner) => {
                graphs.iter().find(|(_, graph)| graph.name() == owner.name).map(|(name, _)| name.clone())
            }
            // An older program stored it without its graph.
            None => graphs.keys().next().filter(|_| graphs.len() == 1).cloned(),
        }
    }

    /// Returns the graph of a thread.
    ///
    /// # Errors
    /// 409 if this server does not have it.
    pub(super) fn graph_of(&self, head: &Head) -> Result<(&str, &Arc<dyn JsonGraph>), ApiError> {
        let found = head.graph.as_ref().and_then(|name| self.hub.graphs.get_key_value(name));
        let (name, graph) = found.ok_or_else(|| {
            let owner = head.meta.as_ref().and_then(CheckpointMeta::graph);
            let owner = owner.map_or("a graph".to_owned(), |owner| format!("graph {owner}"));
            ApiError::conflict(format!(
                "thread `{}` belongs to {owner}, which this server does not have",
                head.id
            ))
        })?;
        Ok((name.as_str(), graph))
    }

    /// Opens a thread at a checkpoint, or at its head, to read or change it.
    pub(super) fn open(
        &self,
        head: &Head,
        at: Option<CheckpointId>,
    ) -> Result<Box<dyn JsonThread>, ApiError> {
        let options = RunOptions::new().thread(Self::thread_id(&head.id)).at(at);
        Ok(self.graph_of(head)?.1.thread(options))
    }

    /// Returns the questions of a thread that wait. If they cannot be read, the head has the reason.
    async fn questions(&self, head: &mut Head) -> Vec<QuestionView> {
        if head.waits == 0 {
            return Vec::new();
        }
        let read = async { Ok::<_, ApiError>(self.open(head, None)?.state().await?) };
        match read.await {
            Ok(snapshot) => snapshot.interrupts().map(question).collect(),
            Err(error) => {
                if error.status.is_server_error() {
                    head.status = Status::Damaged;
                    head.meta = self.newest_readable(&Self::thread_id(&head.id)).await;
                }
                head.error = Some(error.detail);
                Vec::new()
            }
        }
    }

    pub(super) async fn line(&self, head: Head) -> ThreadLine {
        let title = match &head.meta {
            Some(_) if head.status != Status::Damaged => self.title(&head).await,
            _ => String::new(),
        };
        let next = head.next();
        let Head { id, meta, graph, status, waits, error, updated_ms, .. } = head;
        ThreadLine {
            id,
            graph,
            status,
            title,
            head: meta.as_ref().map_or(0, |meta| meta.id.0),
            step: meta.as_ref().map_or(-1, |meta| meta.control.step),
            next,
            waits,
            error,
            updated_ms,
        }
    }

    /// Returns the text of the first input; empty if that is pruned or cannot be read.
    async fn title(&self, head: &Head) -> String {
        let first = self.hub.checkpointer.read_commit(&Self::thread_id(&head.id), CheckpointId(1)).await;
        first.ok().flatten().and_then(|commit| self.input_text(head, &commit)).unwrap_or_default()
    }

    /// Returns the text of the input that a checkpoint stores: that of the first user message, or the JSON.
    pub(super) fn input_text(&self, head: &Head, commit: &Commit) -> Option<String> {
        let TaskRecord::Finished { update, .. } = &commit.records.first()?.1 else { return None };
        let json = update.json().ok()?;
        let mut update = self.shown_of(head, serde_json::from_str(json.as_str()).ok()?);
        let messages = update.get("messages").and_then(Value::as_array).into_iter().flatten();
        let of_user = |message: &&Value| message["role"] == "user" || message["type"] == "human";
        let mut text =
            match messages.into_iter().find(of_user).and_then(|message| message["content"].as_str()) {
                Some(text) => text.trim().to_owned(),
                None => {
                    update.retain(|name, value| !name.starts_with('$') && !value.is_null());
                    preview(&update.into(), TITLE).0
                }
            };
        shorten(&mut text, TITLE);
        Some(text)
    }
}

impl Head {
    /// Returns the nodes of the unfinished tasks.
    pub(super) fn next(&self) -> Vec<String> {
        let next = self.meta.iter().flat_map(|meta| (0u32..).zip(&meta.control.next));
        let open = next.filter(|(slot, _)| !self.done.contains(slot));
        open.map(|(_, node)| node.as_str().to_owned()).collect()
    }
}

impl Tasks {
    fn of(commit: &Commit) -> Self {
        let mut tasks = Self::default();
        // An accepted input is a finished task that is still to be applied.
        let is_input = commit.source == Source::Input;
        for (slot, record) in &commit.records {
            match record.clone().into_parts().1 {
                TaskRecord::Finished { .. } if !is_input => drop(tasks.done.insert(*slot)),
                TaskRecord::Interrupted { questions, error, .. } => {
                    tasks.waits += questions.len();
                    tasks.error = tasks.error.or(error);
                }
                TaskRecord::Failed { error, .. } => tasks.error = tasks.error.or(Some(error)),
                _ => {}
            }
        }
        tasks
    }
}

/// Returns a question as the page has it.
pub(super) fn question(interrupt: &Interrupt) -> QuestionView {
    QuestionView {
        id: interrupt.id.clone(),
        node: interrupt.node.as_str().to_owned(),
        key: interrupt.key.clone(),
        question: interrupt.question.clone(),
        schema: interrupt.schema.clone().unwrap_or_default(),
    }
}
