//! Endpoints of runs.

use std::{io, sync::Arc};

use axum::{
    Json,
    body::{Body as Bytes, Bytes as Chunk},
    extract::{Path, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::stream;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    extract::{Body, DONE, Page, Query, locate, select},
    streams::{From, Hangup, Part, of_run},
    threads::new_row,
};
use crate::{
    access::User,
    error::ApiError,
    rows::run::{RunRow, RunStatus, Stop},
    runs::{
        hub::{
            Hub,
            lanes::{Cancelled, NewRun},
            run_key,
        },
        live::LiveRun,
        request::{IfNotExists, OnCompletion, OnDisconnect, RunRequest},
    },
    wire::ids,
};

pub(super) async fn create(
    State(hub): State<Arc<Hub>>,
    Path(thread): Path<String>,
    user: User,
    Body(request): Body<RunRequest>,
) -> Result<Response, ApiError> {
    let live = begin(&hub, &user, &thread, request).await?;
    background(&hub, &live)
}

pub(super) async fn stream(
    State(hub): State<Arc<Hub>>,
    Path(thread): Path<String>,
    user: User,
    query: Query,
    Body(request): Body<RunRequest>,
) -> Result<Response, ApiError> {
    let cancels = request.on_disconnect == Some(OnDisconnect::Cancel);
    let namespaces = query.namespaces();
    let live = begin(&hub, &user, &thread, request.with_namespaces(&namespaces)).await?;
    Ok(streamed(&hub, live, namespaces, cancels))
}

pub(super) async fn wait(
    State(hub): State<Arc<Hub>>,
    Path(thread): Path<String>,
    user: User,
    Body(request): Body<RunRequest>,
) -> Result<Response, ApiError> {
    let cancels = request.on_disconnect == Some(OnDisconnect::Cancel);
    let live = begin(&hub, &user, &thread, request).await?;
    Ok(waited(&hub, live, cancels))
}

pub(super) async fn create_stateless(
    State(hub): State<Arc<Hub>>,
    user: User,
    Body(request): Body<RunRequest>,
) -> Result<Response, ApiError> {
    let live = begin_stateless(&hub, &user, request).await?;
    background(&hub, &live)
}

pub(super) async fn stream_stateless(
    State(hub): State<Arc<Hub>>,
    user: User,
    query: Query,
    Body(request): Body<RunRequest>,
) -> Result<Response, ApiError> {
    let cancels = request.on_disconnect == Some(OnDisconnect::Cancel);
    let namespaces = query.namespaces();
    let live = begin_stateless(&hub, &user, request.with_namespaces(&namespaces)).await?;
    Ok(streamed(&hub, live, namespaces, cancels))
}

pub(super) async fn wait_stateless(
    State(hub): State<Arc<Hub>>,
    user: User,
    Body(request): Body<RunRequest>,
) -> Result<Response, ApiError> {
    let cancels = request.on_disconnect == Some(OnDisconnect::Cancel);
    let live = begin_stateless(&hub, &user, request).await?;
    Ok(waited(&hub, live, cancels))
}

/// Begins several stateless runs. If one is refused, those before it run.
pub(super) async fn batch(
    State(hub): State<Arc<Hub>>,
    user: User,
    Body(requests): Body<Vec<RunRequest>>,
) -> Result<Json<Vec<Value>>, ApiError> {
    let mut runs = Vec::new();
    for request in requests {
        let live = begin_stateless(&hub, &user, request).await?;
        runs.push(shown(&hub, &live)?);
    }
    Ok(Json(runs))
}

pub(super) async fn list(
    State(hub): State<Arc<Hub>>,
    Path(thread): Path<String>,
    query: Query,
) -> Result<Json<Vec<Value>>, ApiError> {
    hub.thread_row(&thread)?;
    let mut runs = hub.runs_of(&thread);
    if let Some(status) = query.get("status") {
        let known = ["pending", "running", "success", "error", "interrupted", "timeout"];
        if !known.contains(&status) {
            return Err(ApiError::invalid(format!("status: expected one of {}", known.join(", "))));
        }
        runs.retain(|run| run.status.as_str() == status);
    }
    runs.reverse();
    let fields: Vec<String> = query.all("select").map(str::to_owned).collect();
    let fields = (!fields.is_empty()).then_some(fields);
    let page = Page::new(query.number("limit")?, query.number("offset")?)?;
    Ok(Json(page.of(runs).iter().map(|run| select(run.to_wire(), fields.as_deref())).collect()))
}

pub(super) async fn read(
    State(hub): State<Arc<Hub>>,
    Path((thread, run)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(hub.run_row(&thread, &run)?.to_wire()))
}

pub(super) async fn delete(
    State(hub): State<Arc<Hub>>,
    Path((thread, run)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let row = hub.run_row(&thread, &run)?;
    if let Some(live) = hub.stop_run(&run, Stop::Interrupt, "the run is deleted") {
        live.ended().await;
    }
    hub.delete_run(&row).await?;
    Ok(DONE)
}

pub(super) async fn join(
    State(hub): State<Arc<Hub>>,
    Path((thread, run)): Path<(String, String)>,
    query: Query,
) -> Result<Response, ApiError> {
    if let Some(live) = hub.live(&run).filter(|live| live.about.thread == thread && !live.log.has_ended()) {
        return Ok(waited(&hub, live, query.flag("cancel_on_disconnect")?));
    }
    let row = hub.run_row(&thread, &run)?;
    if row.status.is_open() {
        // It continues after the next start, and has no result yet.
        return Err(ApiError::stopping());
    }
    let mut response = Json(result_of(&hub, &row).await?).into_response();
    locate(&mut response, &row.thread, &row.id, Some("join"));
    Ok(response)
}

/// Returns the result of a run that has ended, as its thread has it now.
pub(super) async fn result_of(hub: &Hub, row: &RunRow) -> Result<Value, ApiError> {
    if let Some(failure) = &row.failure {
        return Ok(json!({ "__error__": failure }));
    }
    let thread = hub.thread_row(&row.thread)?;
    let mut values = hub.values(&thread).await?;
    let mut interrupts: Vec<Value> =
        thread.interrupts.values().filter_map(Value::as_array).flatten().cloned().collect();
    for interrupt in interrupts.iter_mut().filter_map(Value::as_object_mut) {
        interrupt.entry("response_schema").or_insert(Value::Null);
    }
    if values.is_object() && !interrupts.is_empty() {
        values["__interrupt__"] = interrupts.into();
    }
    Ok(values)
}

pub(super) async fn cancel(
    State(hub): State<Arc<Hub>>,
    Path((thread, run)): Path<(String, String)>,
    query: Query,
) -> Result<Response, ApiError> {
    let stop = stop_of(&query)?;
    let nothing = || ApiError::new(StatusCode::NOT_FOUND, "No runs found to cancel.");
    let row = hub.run_row(&thread, &run).map_err(|_| nothing())?;
    let waits = query.flag("wait")?;
    let mut response = match hub.cancel_run(&row.thread, &row.id, stop, requested(stop)).await? {
        Cancelled::Nothing => return Err(nothing()),
        Cancelled::Stopping(live) if waits => {
            if live.ended().await.is_left {
                return Err(ApiError::stopping());
            }
            Json(json!({})).into_response()
        }
        Cancelled::AtNextStart if waits => return Err(ApiError::stopping()),
        Cancelled::Stopping(_) | Cancelled::AtNextStart => StatusCode::ACCEPTED.into_response(),
    };
    locate(&mut response, &thread, &run, Some("join"));
    Ok(response)
}

#[derive(JsonSchema, Deserialize)]
pub(super) struct CancelMany {
    thread_id: Option<String>,
    run_ids: Option<Vec<String>>,
    status: Option<String>,
}

pub(super) async fn cancel_many(
    State(hub): State<Arc<Hub>>,
    user: User,
    query: Query,
    Body(which): Body<CancelMany>,
) -> Result<StatusCode, ApiError> {
    let stop = stop_of(&query)?;
    let open = hub.runs.list(|row| {
        row.status.is_open()
            && hub.threads.get(&row.thread).is_some_and(|thread| user.owns(thread.owner.as_ref()))
            && which.thread_id.as_ref().is_none_or(|thread| row.thread == *thread)
            && which.run_ids.as_ref().is_none_or(|runs| runs.contains(&row.id))
    });
    let fits = |row: &RunRow| match which.status.as_deref() {
        Some("pending") => Ok(row.status == RunStatus::Pending),
        Some("running") => Ok(row.status == RunStatus::Running),
        Some("all") => Ok(true),
        None => Ok(which.thread_id.is_some() && which.run_ids.is_some()),
        Some(_) => Err(ApiError::invalid("status: expected pending, running or all")),
    };
    if which.status.is_none() && (which.thread_id.is_none() || which.run_ids.is_none()) {
        return Err(ApiError::invalid("expected `thread_id` and `run_ids`, or `status`"));
    }
    for row in open {
        if fits(&row)? {
            hub.cancel_run(&row.thread, &row.id, stop, REQUESTED_FOR_MANY).await?;
        }
    }
    Ok(DONE)
}

/// The texts of the reference.
const REQUESTED_FOR_MANY: &str = "interrupt requested via POST /runs/cancel";

fn requested(stop: Stop) -> &'static str {
    match stop {
        Stop::Interrupt => "interrupt requested via POST /threads/{thread_id}/runs/{run_id}/cancel",
        Stop::Rollback => "rollback requested via POST /threads/{thread_id}/runs/{run_id}/cancel",
    }
}

fn stop_of(query: &Query) -> Result<Stop, ApiError> {
    match query.get("action") {
        None | Some("interrupt") => Ok(Stop::Interrupt),
        Some("rollback") => Ok(Stop::Rollback),
        Some(_) => Err(ApiError::invalid("action: expected interrupt or rollback")),
    }
}

/// Queues a run on a thread that exists, or, if the request says so, is created.
pub(crate) async fn begin(
    hub: &Arc<Hub>,
    user: &User,
    thread: &str,
    request: RunRequest,
) -> Result<Arc<LiveRun>, ApiError> {
    begin_with(hub, user, thread, request, Map::new()).await
}

/// Queues a run as [`begin`] does; a thread that is created has this metadata.
pub(super) async fn begin_with(
    hub: &Arc<Hub>,
    user: &User,
    thread: &str,
    request: RunRequest,
    metadata: Map<String, Value>,
) -> Result<Arc<LiveRun>, ApiError> {
    let creates = request.if_not_exists == Some(IfNotExists::Create);
    let missing = || ApiError::not_found("thread", thread);
    let existing = hub.threads.get(thread);
    if existing.is_none() && !creates {
        return Err(missing());
    }
    let new = new_run(hub, user, request)?;
    let row = match existing {
        Some(row) => row,
        None => {
            let row = new_row(hub, user, thread.to_owned(), metadata).await?;
            hub.threads.add(thread, row.clone()).await?.unwrap_or(row)
        }
    };
    if !user.owns(row.owner.as_ref()) {
        return Err(missing());
    }
    hub.create(&row, new).await
}

/// Queues a run on a thread of its own.
pub(super) async fn begin_stateless(
    hub: &Arc<Hub>,
    user: &User,
    request: RunRequest,
) -> Result<Arc<LiveRun>, ApiError> {
    let keeps = request.on_completion == Some(OnCompletion::Keep);
    let new = new_run(hub, user, request)?;
    queue_stateless(hub, user, new, keeps).await
}

/// Queues a run on a thread of its own, which is deleted at the end unless the run `keeps` it.
pub(super) async fn queue_stateless(
    hub: &Arc<Hub>,
    user: &User,
    mut new: NewRun,
    keeps: bool,
) -> Result<Arc<LiveRun>, ApiError> {
    new.plan.temporary = !keeps;
    let mut row = new_row(hub, user, ids::of_own_thread(&new.id), Map::new()).await?;
    row.temporary = !keeps;
    hub.threads.put(&row.id, row.clone()).await?;
    hub.create(&row, new).await
}

/// Reads a request for a run of a user.
///
/// # Errors
/// 404 for the id of no assistant; 422 for the name of no graph, and for a request that is not valid.
pub(super) fn new_run(hub: &Hub, user: &User, request: RunRequest) -> Result<NewRun, ApiError> {
    let assistant = hub.assistant(&request.assistant_id).filter(|assistant| assistant.is_visible(user));
    let assistant = assistant.ok_or_else(|| {
        if ids::is_uuid(&request.assistant_id) {
            return ApiError::not_found("assistant", &request.assistant_id);
        }
        let graphs: Vec<_> = hub.graphs.keys().map(|name| format!("`{name}`")).collect();
        ApiError::invalid(format!(
            "assistant `{}` not found; the graphs of this server are {}",
            request.assistant_id,
            graphs.join(", ")
        ))
    })?;
    let version = assistant.version();
    let graph = hub.graph(&version.graph).map_err(|error| ApiError::invalid(error.detail))?;
    let mut plan = request.plan(&**graph, version)?;
    check_webhook(hub, plan.webhook.as_deref())?;
    plan.metadata.extend(user.owner().map(|owner| ("owner".to_owned(), owner.into())));
    Ok(NewRun { id: ids::new_ordered(), graph: version.graph.clone(), assistant: assistant.id, plan })
}

#[cfg(feature = "webhooks")]
fn check_webhook(hub: &Hub, address: Option<&str>) -> Result<(), ApiError> {
    address.map_or(Ok(()), |address| hub.webhooks.client_for(address).map(drop))
}

#[cfg(not(feature = "webhooks"))]
fn check_webhook(_: &Hub, address: Option<&str>) -> Result<(), ApiError> {
    match address {
        None => Ok(()),
        Some(_) => Err(ApiError::invalid("webhook: this server was built without the feature `webhooks`")),
    }
}

fn shown(hub: &Hub, live: &LiveRun) -> Result<Value, ApiError> {
    let row = hub.runs.get(&run_key(&live.about.thread, &live.about.run));
    // A short stateless run may be over and deleted.
    let row = row.map(|row| row.to_wire());
    row.ok_or_else(|| ApiError::not_found("run", &live.about.run))
}

fn background(hub: &Hub, live: &LiveRun) -> Result<Response, ApiError> {
    let mut response = Json(shown(hub, live)?).into_response();
    locate(&mut response, &live.about.thread, &live.about.run, None);
    Ok(response)
}

fn streamed(hub: &Arc<Hub>, live: Arc<LiveRun>, namespaces: Vec<Vec<String>>, cancels: bool) -> Response {
    let hangup = cancels.then(|| Hangup::new(hub, &live));
    of_run(hub, live, Part { modes: None, namespaces, from: From::Begin }, hangup)
}

/// Returns an answer with the result of a run, which sends blanks until it is there.
fn waited(hub: &Arc<Hub>, live: Arc<LiveRun>, cancels: bool) -> Response {
    let (thread, run) = (live.about.thread.clone(), live.about.run.clone());
    let hangup = cancels.then(|| Hangup::new(hub, &live));
    let (hub, heartbeat) = (hub.clone(), hub.limits.heartbeat);
    let body = stream::unfold(Some((hub, live, hangup)), move |waiting| async move {
        let (hub, live, hangup) = waiting?;
        let chunk = match tokio::time::timeout(heartbeat, live.ended()).await {
            Err(_) => return Some((Ok(Chunk::from_static(b"\n")), Some((hub, live, hangup)))),
            // Without an end the client asks again where `location` says.
            Ok(end) if end.is_left => Err(io::Error::other("the server stops")),
            Ok(end) => Ok(Chunk::from(hub.result(&live, &end).to_string())),
        };
        Some((chunk, None))
    });
    let mut response = Response::new(Bytes::from_stream(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    locate(&mut response, &thread, &run, Some("join"));
    response
}
