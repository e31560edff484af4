//! Endpoints of threads.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use superstep_graph::{RunOptions, ThreadId, checkpoint::Retention};

use super::extract::{Body, DONE, IfExists, Page, SortOrder, or_empty, select};
use crate::{
    access::{Role, User},
    error::ApiError,
    rows::{
        table::contains,
        thread::{ThreadRow, ThreadStatus},
    },
    runs::hub::Hub,
    wire::{ids, time},
};

#[derive(JsonSchema, Deserialize)]
pub(super) struct NewThread {
    thread_id: Option<String>,
    metadata: Option<Map<String, Value>>,
    #[serde(default)]
    if_exists: IfExists,
    ttl: Option<Value>,
    supersteps: Option<Vec<Superstep>>,
}

#[derive(JsonSchema, Deserialize)]
struct Superstep {
    updates: Vec<super::state::Update>,
}

#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "ThreadChanges")]
pub(super) struct Changes {
    metadata: Option<Map<String, Value>>,
    ttl: Option<Value>,
}

#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "ThreadSearch")]
pub(super) struct Search {
    ids: Option<Vec<String>>,
    metadata: Option<Map<String, Value>>,
    exclude_metadata: Option<Value>,
    values: Option<Map<String, Value>>,
    status: Option<ThreadStatus>,
    limit: Option<usize>,
    offset: Option<usize>,
    sort_by: Option<String>,
    sort_order: Option<SortOrder>,
    select: Option<Vec<String>>,
    extract: Option<Value>,
}

#[derive(JsonSchema, Deserialize)]
pub(super) struct Prune {
    thread_ids: Vec<String>,
    #[serde(default)]
    strategy: PruneStrategy,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PruneStrategy {
    #[default]
    Delete,
    KeepLatest,
}

pub(super) async fn create(
    State(hub): State<Arc<Hub>>,
    user: User,
    Body(new): Body<NewThread>,
) -> Result<Json<Value>, ApiError> {
    refuse_ttl(new.ttl.as_ref())?;
    let id = new.thread_id.unwrap_or_else(ids::new_ordered);
    let row = new_row(&hub, &user, id.clone(), or_empty(new.metadata)).await?;
    let supersteps = new.supersteps.unwrap_or_default();
    if !supersteps.is_empty() && row.graph().is_none() {
        return Err(ApiError::invalid(
            "supersteps: `metadata.graph_id` has to name the graph that reads them",
        ));
    }
    if let Some(existing) = hub.threads.add(&id, row.clone()).await? {
        return match new.if_exists {
            IfExists::DoNothing if user.owns(existing.owner.as_ref()) => {
                Ok(Json(to_wire(&hub, &existing).await?))
            }
            _ => Err(ApiError::conflict(format!("thread `{id}` exists already"))),
        };
    }
    let updates = supersteps.into_iter().flat_map(|superstep| superstep.updates);
    for update in updates {
        if let Err(error) = super::state::apply(&hub, &row, None, update).await {
            // All or nothing.
            hub.delete_thread(&id).await?;
            return Err(error);
        }
    }
    Ok(Json(to_wire(&hub, &hub.thread_row(&id)?).await?))
}

/// Returns the row of a thread that a user creates.
///
/// # Errors
/// 409 for a thread that began elsewhere, and belongs to no user; 422 for an id that no thread can have.
pub(super) async fn new_row(
    hub: &Hub,
    user: &User,
    id: String,
    metadata: Map<String, Value>,
) -> Result<ThreadRow, ApiError> {
    ids::check_thread(&id)?;
    if user.role < Role::Admin && !hub.threads.has(&id) && hub.head(&id).await?.is_some() {
        return Err(ApiError::conflict(format!("thread `{id}` exists already")));
    }
    Ok(ThreadRow { owner: user.owner(), ..ThreadRow::new(id, metadata, time::now_us()) })
}

pub(super) async fn read(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(to_wire(&hub, &hub.thread_row(&id)?).await?))
}

pub(super) async fn change(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
    Body(changes): Body<Changes>,
) -> Result<Json<Value>, ApiError> {
    refuse_ttl(changes.ttl.as_ref())?;
    let change = |row: &mut ThreadRow| {
        row.metadata.extend(or_empty(changes.metadata));
        row.updated_us = time::now_us();
    };
    let row = hub.threads.change(&id, change).await?.ok_or_else(|| ApiError::not_found("thread", &id))?;
    Ok(Json(to_wire(&hub, &row).await?))
}

pub(super) async fn delete(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    hub.thread_row(&id)?;
    remove(&hub, &id).await?;
    Ok(DONE)
}

pub(super) async fn copy(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let mut row = hub.thread_row(&id)?;
    let (from, to) = (ThreadId::from(&row.id), ids::new_ordered());
    if hub.head(from.as_str()).await?.is_some() {
        hub.checkpointer.copy(&from, &ThreadId::from(&to)).await?;
    }
    row.id.clone_from(&to);
    (row.created_us, row.updated_us) = (time::now_us(), time::now_us());
    row.temporary = false;
    hub.threads.put(&to, row.clone()).await?;
    Ok(Json(to_wire(&hub, &row).await?))
}

pub(super) async fn search(
    State(hub): State<Arc<Hub>>,
    user: User,
    Body(search): Body<Search>,
) -> Result<Response, ApiError> {
    if search.extract.is_some() {
        return Err(ApiError::invalid("extract: extractions are not supported; use `select`"));
    }
    let mut found = matching(&hub, &user, &search).await?;
    let order = search.sort_order.unwrap_or_default();
    match search.sort_by.as_deref() {
        None | Some("created_at") => order.sort(&mut found, |row| (row.created_us, row.id.clone())),
        Some("updated_at") => order.sort(&mut found, |row| row.updated_us),
        Some("state_updated_at") => order.sort(&mut found, |row| row.state_us),
        Some("status") => order.sort(&mut found, |row| format!("{:?}", status(&hub, row))),
        Some("thread_id") => order.sort(&mut found, |row| row.id.clone()),
        Some(_) => {
            let known = "created_at, updated_at, state_updated_at, status or thread_id";
            return Err(ApiError::invalid(format!("sort_by: expected {known}")));
        }
    }
    let (page, total) = (Page::new(search.limit, search.offset)?, found.len());
    let fields = search.select.as_deref();
    let has_values = fields.is_none_or(|fields| fields.iter().any(|field| field == "values"));
    let mut entries = Vec::new();
    for row in page.of(found) {
        let values = if has_values { hub.listed_values(&row).await? } else { Value::Null };
        entries.push(select(with_values(&hub, &row, values), fields));
    }
    Ok(page.answer(entries, total))
}

pub(super) async fn count(
    State(hub): State<Arc<Hub>>,
    user: User,
    Body(search): Body<Search>,
) -> Result<Json<usize>, ApiError> {
    Ok(Json(matching(&hub, &user, &search).await?.len()))
}

pub(super) async fn prune(
    State(hub): State<Arc<Hub>>,
    user: User,
    Body(prune): Body<Prune>,
) -> Result<Json<Value>, ApiError> {
    let mut pruned = 0;
    for id in prune.thread_ids {
        let Some(row) = hub.threads.get(&id).filter(|row| user.owns(row.owner.as_ref())) else { continue };
        match prune.strategy {
            PruneStrategy::Delete => remove(&hub, &id).await?,
            PruneStrategy::KeepLatest if row.graph().is_none() => {}
            PruneStrategy::KeepLatest => {
                hub.thread(&row, RunOptions::new())?.prune(Retention::Last(1)).await?;
            }
        }
        pruned += 1;
    }
    Ok(Json(json!({ "pruned_count": pruned })))
}

/// Stops the runs of a thread, and deletes it.
pub(crate) async fn remove(hub: &Arc<Hub>, id: &str) -> Result<(), ApiError> {
    hub.close(id).await;
    let deleted = hub.delete_thread(id).await;
    hub.drop_logs(id);
    hub.reopen(id);
    deleted
}

/// Returns the wire form of a thread, with the values at its head.
pub(super) async fn to_wire(hub: &Hub, row: &ThreadRow) -> Result<Value, ApiError> {
    Ok(with_values(hub, row, hub.values(row).await?))
}

fn with_values(hub: &Hub, row: &ThreadRow, values: Value) -> Value {
    json!({
        "thread_id": row.id,
        "created_at": time::text(row.created_us),
        "updated_at": time::text(row.updated_us),
        "state_updated_at": time::text(row.state_us.unwrap_or(row.created_us)),
        "metadata": row.metadata,
        "status": status(hub, row),
        "config": row.config,
        "values": values,
        "error": row.error,
        "interrupts": row.interrupts,
    })
}

fn status(hub: &Hub, row: &ThreadRow) -> ThreadStatus {
    if hub.is_busy(&row.id) { ThreadStatus::Busy } else { row.status }
}

async fn matching(hub: &Hub, user: &User, search: &Search) -> Result<Vec<ThreadRow>, ApiError> {
    let wanted = search.metadata.clone().unwrap_or_default();
    let excluded = excluded(search.exclude_metadata.as_ref())?;
    let busy = hub.busy();
    let is_wanted = |row: &ThreadRow| match search.status {
        None => true,
        Some(ThreadStatus::Busy) => busy.contains(&row.id),
        Some(status) => row.status == status && !busy.contains(&row.id),
    };
    let fits = |row: &ThreadRow| {
        is_wanted(row)
            && user.owns(row.owner.as_ref())
            && search.ids.as_ref().is_none_or(|ids| ids.contains(&row.id))
            && contains(&row.metadata, &wanted)
            && !excluded.iter().any(|excluded| contains(&row.metadata, excluded))
    };
    let found = hub.threads.list(fits);
    let Some(wanted) = search.values.as_ref().filter(|values| !values.is_empty()) else { return Ok(found) };
    let mut with = Vec::new();
    for row in found {
        if hub.listed_values(&row).await?.as_object().is_some_and(|values| contains(values, wanted)) {
            with.push(row);
        }
    }
    Ok(with)
}

/// Reads the metadata of threads that are not wanted: one object, or several.
fn excluded(json: Option<&Value>) -> Result<Vec<Map<String, Value>>, ApiError> {
    let wrong = || {
        ApiError::invalid("exclude_metadata: expected an object, or a list of objects, none of them empty")
    };
    let several = match json {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(several)) => several.iter().collect(),
        Some(one) => vec![one],
    };
    let read = |object: &&Value| object.as_object().filter(|object| !object.is_empty()).cloned();
    let read: Option<Vec<_>> = several.iter().map(read).collect();
    read.filter(|several| !several.is_empty()).ok_or_else(wrong)
}

fn refuse_ttl(ttl: Option<&Value>) -> Result<(), ApiError> {
    match ttl {
        None | Some(Value::Null) => Ok(()),
        Some(_) => Err(ApiError::invalid("ttl: lifetimes of threads are not supported")),
    }
}
