//! One checkpoint: its state in outline and in parts, its tasks, messages and changes.
//!
//! Start at [`Studio::state`].

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, PoisonError},
};

use axum::{
    Json,
    extract::{Path, State},
};
use serde_json::{Map, Value};
use superstep_graph::{
    CheckpointId,
    checkpoint::{Commit, TaskRecord},
    erased::JsonSnapshot,
};
use tokio::sync::OnceCell;

use super::{
    Studio, diff,
    part::{entry, part_of, preview, shorten},
    threads::{Head, question},
    types::{
        CallView, Changes, CheckpointView, MessagePage, MessageView, Part, Status, TaskStatus, TaskView,
        WriteView,
    },
};
use crate::{
    api::extract::{Query, limit},
    error::ApiError,
    wire::{channels::retain, messages::CHANNEL},
};

/// The maximum number of states in the cache, and their size in bytes of JSON.
const MAX_STATES: usize = 16;
const MAX_BYTES: usize = 64 << 20;

/// The maximum size of a message's text on a page of them, in bytes.
const MAX_TEXT: usize = 65_536;

/// The maximum size of an update or an item in the list of tasks, in bytes.
const MAX_RESULT: usize = 4_096;

/// The thread, the checkpoint, and the time of the newest one: of a thread that was deleted and begun again it is another.
type Key = (String, CheckpointId, i64);

/// The state at a checkpoint that is not the head, and so does not change. Requests that come while it is read wait for it.
pub(super) struct CachedState {
    key: Key,
    state: OnceCell<Arc<ShownState>>,
}

/// The state at a checkpoint, as far as the page shows it.
pub(super) struct ShownState {
    bytes: usize,
    pub(super) snapshot: JsonSnapshot,
    pub(super) values: Map<String, Value>,
}

pub(super) async fn read(
    State(studio): State<Arc<Studio>>,
    Path((thread, at)): Path<(String, u64)>,
) -> Result<Json<CheckpointView>, ApiError> {
    let head = studio.head(&thread).await?;
    let state = studio.state(&head, at).await?;
    let missing = || ApiError::not_found("checkpoint", &at.to_string());
    let commit = studio.hub.checkpointer.read_commit(&Studio::thread_id(&thread), CheckpointId(at)).await?;
    let (meta, commit) =
        (state.snapshot.checkpoint.as_ref().ok_or_else(missing)?, commit.ok_or_else(missing)?);
    let wrote = commit.applied.iter().map(|task| {
        let writes = task.update.json().ok().and_then(|json| serde_json::from_str(json.as_str()).ok());
        let writes = studio.shown_of(&head, writes.unwrap_or_default());
        WriteView {
            node: task.node.as_str().to_owned(),
            channels: writes
                .into_iter()
                .map(|(name, _)| name)
                .filter(|name| !name.starts_with('$'))
                .collect(),
            bytes: task.update.bytes(),
        }
    });
    let shown = studio.shown(head.graph.as_deref());
    let metadata = match shown {
        Some(_) => studio.hub.own_metadata(&thread, meta.metadata.clone()),
        None => meta.metadata.clone(),
    };
    Ok(Json(CheckpointView {
        id: at,
        parent: meta.parent.map(|parent| parent.0),
        parent_pruned: meta.parent_pruned,
        source: meta.source.as_str(),
        step: meta.control.step,
        created_ms: meta.created_ms,
        next: state.snapshot.next.iter().map(|node| node.as_str().to_owned()).collect(),
        metadata: metadata.into(),
        channels: state.values.iter().map(|(name, value)| entry(name.clone(), value)).collect(),
        tasks: tasks(&state.snapshot, &commit, shown),
        wrote: wrote.collect(),
        has_messages: has_messages(&state.values),
    }))
}

pub(super) async fn value(
    State(studio): State<Arc<Studio>>,
    Path((thread, at)): Path<(String, u64)>,
    query: Query,
) -> Result<Json<Part>, ApiError> {
    let state = studio.state(&studio.head(&thread).await?, at).await?;
    Ok(Json(part_of(&state.values, &query)?))
}

pub(super) async fn changes(
    State(studio): State<Arc<Studio>>,
    Path((thread, at)): Path<(String, u64)>,
    query: Query,
) -> Result<Json<Changes>, ApiError> {
    let head = studio.head(&thread).await?;
    let state = studio.state(&head, at).await?;
    let parent = state.snapshot.checkpoint.as_ref().filter(|meta| !meta.parent_pruned);
    let parent = parent.and_then(|meta| meta.parent).map(|parent| parent.0);
    let against = query.number("against")?.map(|against| against as u64).or(parent);
    Ok(Json(match against {
        Some(against) => {
            let before = studio.state(&head, against).await?;
            diff::changes(&before.values, &state.values, Some(against))
        }
        None => diff::changes(&studio.initial(&head)?, &state.values, None),
    }))
}

pub(super) async fn messages(
    State(studio): State<Arc<Studio>>,
    Path((thread, at)): Path<(String, u64)>,
    query: Query,
) -> Result<Json<MessagePage>, ApiError> {
    let limit = limit(query.number("limit")?, 50)?;
    let head = studio.head(&thread).await?;
    let state = studio.state(&head, at).await?;
    let all = state.values.get(CHANNEL).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let end = query.number("before")?.unwrap_or(all.len()).min(all.len());
    let first = end.saturating_sub(limit);
    let shown = &all[first..end];
    let arrivals = studio.arrivals(&Studio::thread_id(&thread), CheckpointId(at), shown).await;
    let messages = shown.iter().zip(arrivals).map(|(json, from)| message(json, from)).collect();
    Ok(Json(MessagePage { total: all.len(), first, messages }))
}

impl Studio {
    /// Returns the state in which the threads of a thread's graph start.
    pub(super) fn initial(&self, head: &Head) -> Result<Map<String, Value>, ApiError> {
        Ok(self.shown_of(head, self.graph_of(head)?.1.initial()?))
    }

    /// Returns the state at a checkpoint, as far as the page shows it. At the head it includes the finished tasks of an incomplete
    /// superstep.
    ///
    /// # Errors
    /// 404 for an unknown checkpoint, 409 for a thread of a graph that this server does not have, 500 if it cannot be read.
    pub(super) async fn state(&self, head: &Head, at: u64) -> Result<Arc<ShownState>, ApiError> {
        let id = CheckpointId(at);
        let newest = head.meta.as_ref().ok_or_else(|| ApiError::not_found("checkpoint", &at.to_string()))?;
        // The head of a damaged thread is not the newest checkpoint.
        if newest.id == id && head.status != Status::Damaged {
            return self.read(head, None).await;
        }
        let cached = self.cached((head.id.clone(), id, newest.created_ms));
        let state = cached.state.get_or_try_init(|| self.read(head, Some(id))).await?.clone();
        make_room(&mut self.states.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(state)
    }

    async fn read(&self, head: &Head, at: Option<CheckpointId>) -> Result<Arc<ShownState>, ApiError> {
        let snapshot = self.open(head, at)?.state().await?;
        let values = self.shown_of(head, snapshot.state.values()?);
        // The head is not cached.
        let size = |values: &Map<String, Value>| values.iter().map(|(_, value)| preview(value, 0).1).sum();
        let bytes = at.map_or(0, |_| size(&values));
        Ok(Arc::new(ShownState { bytes, snapshot, values }))
    }

    fn cached(&self, key: Key) -> Arc<CachedState> {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let known = states.iter().position(|state| state.key == key).and_then(|found| states.remove(found));
        let state = known.unwrap_or_else(|| Arc::new(CachedState { key, state: OnceCell::new() }));
        states.push_back(state.clone());
        // Before it is read: one that cannot be read, or whose client is gone, stays as well.
        make_room(&mut states);
        state
    }
}

/// Removes the states that were not used for the longest time, as far as there are too many.
fn make_room(states: &mut VecDeque<Arc<CachedState>>) {
    let bytes = |states: &VecDeque<Arc<CachedState>>| -> usize {
        states.iter().filter_map(|cached| cached.state.get()).map(|state| state.bytes).sum()
    };
    while states.len() > MAX_STATES || bytes(states) > MAX_BYTES {
        states.pop_front();
    }
}

/// Returns the tasks of a checkpoint, with the shown channels of what they read and write; `None` for all.
fn tasks(snapshot: &JsonSnapshot, commit: &Commit, shown: Option<&BTreeSet<String>>) -> Vec<TaskView> {
    let items = &commit.control.items;
    let shown_text = |channels: &Value| {
        let mut channels = channels.clone();
        shown.iter().for_each(|shown| retain(&mut channels, shown));
        preview(&channels, MAX_RESULT).0
    };
    let task = |(slot, task): (u32, &superstep_graph::erased::JsonTask)| {
        let record = commit.records.iter().find(|(of, _)| *of == slot).map(|(_, record)| record.clone());
        let effects = record.as_ref().and_then(TaskRecord::once);
        let effects = effects.into_iter().flat_map(|effects| effects.keys().cloned()).collect();
        let end = record.map(|record| record.into_parts().1);
        let (mut attempts, mut answered) = (0, Vec::new());
        let status = match end {
            _ if task.is_done => TaskStatus::Done,
            _ if !task.interrupts.is_empty() => {
                if let Some(TaskRecord::Interrupted { attempts: failed, answers, .. }) = end {
                    attempts = failed;
                    answered = answers.into_keys().collect();
                }
                TaskStatus::Waits
            }
            Some(TaskRecord::Failed { attempts: failed, .. }) => {
                attempts = failed;
                TaskStatus::Failed
            }
            Some(TaskRecord::Started { attempts: failed, .. }) => {
                attempts = failed;
                TaskStatus::Started
            }
            Some(TaskRecord::Cancelled { .. }) => TaskStatus::Cancelled,
            _ => TaskStatus::Pending,
        };
        TaskView {
            slot: slot as usize,
            node: task.node.as_str().to_owned(),
            status,
            attempts,
            error: task.error.clone(),
            questions: task.interrupts.iter().map(question).collect(),
            answered,
            effects,
            result: task.result.as_ref().map(shown_text),
            item: items.get(&slot).and_then(|item| Some(shown_text(&serde_json::from_str(item).ok()?))),
            subgraphs: task.subgraphs.iter().map(|thread| thread.path().to_string()).collect(),
        }
    };
    (0u32..).zip(&snapshot.tasks).map(task).collect()
}

fn has_messages(values: &Map<String, Value>) -> bool {
    let messages = values.get(CHANNEL).and_then(Value::as_array);
    messages.is_some_and(|messages| messages.iter().all(|message| role(message).is_some()))
}

fn role(message: &Value) -> Option<&str> {
    message["role"].as_str().or_else(|| {
        let role = message["type"].as_str()?;
        Some(match role {
            "human" => "user",
            "ai" => "assistant",
            role => role,
        })
    })
}

fn message(message: &Value, from: Option<u64>) -> MessageView {
    let text = |name: &str| match &message[name] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let (mut content, mut reasoning) = (text("content"), text("reasoning"));
    let is_cut = shorten(&mut content, MAX_TEXT) | shorten(&mut reasoning, MAX_TEXT);
    let calls = message["tool_calls"].as_array().into_iter().flatten().map(|call| {
        let arguments = if call["arguments"].is_null() { &call["args"] } else { &call["arguments"] };
        let mut arguments = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
        shorten(&mut arguments, MAX_TEXT);
        let text = |name: &str| call[name].as_str().unwrap_or_default().to_owned();
        CallView { id: text("id"), name: text("name"), arguments }
    });
    let is = |name: &str| message[name].as_bool().unwrap_or(false);
    MessageView {
        id: text("id"),
        role: role(message).unwrap_or_default().to_owned(),
        content,
        is_cut,
        reasoning,
        calls: calls.collect(),
        call: message["tool_call_id"].as_str().filter(|id| !id.is_empty()).map(str::to_owned),
        failed: is("failed"),
        interrupted: is("interrupted"),
        from,
    }
}
