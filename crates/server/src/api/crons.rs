//! Endpoints of crons: runs that begin at recurring times.

pub(crate) mod clock;

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::{
    extract::{Body, DONE, Page, SortOrder, invalid_field, or_empty},
    runs::new_run,
    system::crons_refused,
};
use crate::{
    access::User,
    error::ApiError,
    rows::{
        cron::{CronRow, Crons},
        table::contains,
    },
    runs::{
        hub::{Hub, lanes::NewRun},
        request::{OnCompletion, RunRequest},
    },
    wire::{ids, time},
};

/// The maximum size of the request for a cron's runs in bytes, as that of the input of a stored schedule.
const MAX_PAYLOAD: usize = 1 << 20;

#[derive(JsonSchema, Deserialize)]
pub(super) struct NewCron {
    schedule: String,
    timezone: Option<String>,
    end_time: Option<String>,
    enabled: Option<bool>,
    on_run_completed: Option<OnCompletion>,
    #[serde(flatten)]
    #[schemars(with = "RunRequest")]
    payload: Map<String, Value>,
}

#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "CronChanges")]
pub(super) struct Changes {
    schedule: Option<String>,
    timezone: Option<String>,
    /// Null removes the end.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<String>")]
    end_time: Option<Option<String>>,
    enabled: Option<bool>,
    on_run_completed: Option<OnCompletion>,
    /// Fields of the request for its runs; null removes one.
    #[serde(flatten)]
    payload: Map<String, Value>,
}

#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "CronSearch")]
pub(super) struct Search {
    assistant_id: Option<String>,
    thread_id: Option<String>,
    enabled: Option<bool>,
    metadata: Option<Map<String, Value>>,
    limit: Option<usize>,
    offset: Option<usize>,
    sort_by: Option<String>,
    sort_order: Option<SortOrder>,
    select: Option<Vec<String>>,
}

/// Reads a field that is there, and may be null.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

pub(super) async fn create(
    State(hub): State<Arc<Hub>>,
    user: User,
    Body(new): Body<NewCron>,
) -> Result<Json<Value>, ApiError> {
    add(&hub, user.owner(), None, new).await
}

pub(super) async fn create_on_thread(
    State(hub): State<Arc<Hub>>,
    user: User,
    Path(thread): Path<String>,
    Body(new): Body<NewCron>,
) -> Result<Json<Value>, ApiError> {
    let found = hub.threads.get(&thread).filter(|row| user.owns(row.owner.as_ref()));
    let thread = found.ok_or_else(|| ApiError::not_found("thread", &thread))?;
    add(&hub, thread.owner, Some(thread.id), new).await
}

async fn add(
    hub: &Hub,
    owner: Option<String>,
    thread: Option<String>,
    new: NewCron,
) -> Result<Json<Value>, ApiError> {
    let crons = crons(hub)?;
    let limit = hub.limits.crons;
    let _alone = crons.changing.lock().await;
    if crons.rows.count(|row| row.owner == owner) >= limit {
        return Err(ApiError::conflict(format!("there are {limit} crons already; delete one")));
    }
    let now_us = time::now_us();
    let mut row = CronRow {
        id: ids::new_random(),
        owner,
        thread,
        assistant: String::new(),
        schedule: new.schedule,
        timezone: new.timezone,
        end_us: new.end_time.map(|end| end_of(&end, now_us)).transpose()?,
        enabled: new.enabled.unwrap_or(true),
        keeps: new.on_run_completed == Some(OnCompletion::Keep),
        payload: Arc::new(new.payload),
        created_us: now_us,
        updated_us: now_us,
        next_us: None,
        begins: None,
        problem: None,
    };
    row.assistant = check_payload(hub, &row)?;
    row.next_us = row.next(now_us)?;
    crons.rows.put(&row.id, row.clone()).await?;
    crons.changed.notify_one();
    Ok(Json(row.to_wire()))
}

pub(super) async fn search(
    State(hub): State<Arc<Hub>>,
    user: User,
    Body(search): Body<Search>,
) -> Result<Response, ApiError> {
    let mut found = crons(&hub)?.rows.list(fits(&hub, &user, &search));
    let order = search.sort_order.unwrap_or_default();
    match search.sort_by.as_deref() {
        None | Some("created_at") => order.sort(&mut found, |row| row.created_us),
        Some("updated_at") => order.sort(&mut found, |row| row.updated_us),
        // In an ascending order, those without a time are the last.
        Some("next_run_date") => order.sort(&mut found, |row| (row.next_us.is_none(), row.next_us)),
        Some("end_time") => order.sort(&mut found, |row| (row.end_us.is_none(), row.end_us)),
        Some("cron_id") => order.sort(&mut found, |row| row.id.clone()),
        Some("assistant_id") => order.sort(&mut found, |row| row.assistant.clone()),
        Some("thread_id") => order.sort(&mut found, |row| row.thread.clone()),
        Some(_) => {
            return Err(ApiError::invalid(
                "sort_by: expected created_at, updated_at, next_run_date, end_time, cron_id, assistant_id or thread_id",
            ));
        }
    }
    let page = Page::new(search.limit, search.offset)?;
    Ok(page.answer_rows(found, CronRow::to_wire, search.select.as_deref()))
}

pub(super) async fn count(
    State(hub): State<Arc<Hub>>,
    user: User,
    Body(search): Body<Search>,
) -> Result<Json<usize>, ApiError> {
    Ok(Json(crons(&hub)?.rows.count(fits(&hub, &user, &search))))
}

pub(super) async fn read(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(cron(&hub, &id)?.to_wire()))
}

pub(super) async fn change(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
    Body(changes): Body<Changes>,
) -> Result<Json<Value>, ApiError> {
    let crons = crons(&hub)?;
    let _alone = crons.changing.lock().await;
    let (old, now_us) = (cron(&hub, &id)?, time::now_us());
    let Changes { schedule, timezone, end_time, enabled, on_run_completed, payload } = changes;
    let mut new = old.clone();
    new.schedule = schedule.unwrap_or(new.schedule);
    new.timezone = timezone.or(new.timezone);
    if let Some(end) = end_time {
        new.end_us = end.map(|end| end_of(&end, now_us)).transpose()?;
    }
    new.enabled = enabled.unwrap_or(new.enabled);
    new.keeps = on_run_completed.map_or(new.keeps, |completed| completed == OnCompletion::Keep);
    // Otherwise one that cannot run any more could not be paused.
    if !payload.is_empty() {
        let all = Arc::make_mut(&mut new.payload);
        all.extend(payload);
        all.retain(|_, value| !value.is_null());
        new.assistant = check_payload(&hub, &new)?;
    }
    new.updated_us = now_us;
    let times = |row: &CronRow| (row.schedule.clone(), row.timezone.clone(), row.enabled, row.end_us);
    let moves = times(&new) != times(&old);
    new.next(now_us)?;
    let change = |row: &mut CronRow| {
        // Its run may have begun meanwhile.
        (new.begins, new.problem) = (row.begins.take(), row.problem.take());
        // A time that is due begins a run, unless there are other times.
        new.next_us = if moves { new.next(time::now_us()).unwrap_or_default() } else { row.next_us };
        *row = new;
    };
    let row = crons.rows.change(&id, change).await?.ok_or_else(|| missing(&id))?;
    crons.changed.notify_one();
    Ok(Json(row.to_wire()))
}

pub(super) async fn delete(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    crons(&hub)?.rows.delete(&id).await?.ok_or_else(|| missing(&id))?;
    Ok(DONE)
}

/// Checks the request for the runs of a cron, and returns the id of its assistant.
///
/// # Errors
/// 422 if it is not valid.
fn check_payload(hub: &Hub, row: &CronRow) -> Result<String, ApiError> {
    let size = serde_json::to_vec(&row.payload).map_or(usize::MAX, |json| json.len());
    if size > MAX_PAYLOAD {
        return Err(ApiError::invalid("the request for the runs is longer than 1 MiB"));
    }
    Ok(new_run_of(hub, row)?.assistant)
}

/// Returns a run of a cron, by the assistant as it is now.
///
/// # Errors
/// 404 or 422 if its user has no such assistant, 422 if the request does not fit the graph.
fn new_run_of(hub: &Hub, row: &CronRow) -> Result<NewRun, ApiError> {
    let request = serde_path_to_error::deserialize(Value::Object(Map::clone(&row.payload)));
    let mut new = new_run(hub, &row.user(), request.map_err(invalid_field)?)?;
    new.plan.metadata.insert("cron_id".to_owned(), row.id.as_str().into());
    Ok(new)
}

/// Reads the time of an end; one without an offset is UTC.
fn end_of(text: &str, now_us: i64) -> Result<i64, ApiError> {
    let in_utc = || text.parse::<DateTime>()?.to_zoned(TimeZone::UTC).map(|time| time.timestamp());
    let end = text.parse::<Timestamp>().or_else(|_| in_utc());
    let end =
        end.map_err(|_| ApiError::invalid("end_time: expected a time, such as `2026-11-21T20:33:49Z`"))?;
    let end_us = end.as_microsecond();
    if end_us > now_us { Ok(end_us) } else { Err(ApiError::invalid("end_time: expected a time to come")) }
}

/// Returns the crons of a server.
///
/// # Errors
/// 422 if it has none.
fn crons(hub: &Hub) -> Result<&Crons, ApiError> {
    hub.crons.as_ref().ok_or_else(crons_refused)
}

fn cron(hub: &Hub, id: &str) -> Result<CronRow, ApiError> {
    crons(hub)?.rows.get(id).ok_or_else(|| missing(id))
}

fn missing(id: &str) -> ApiError {
    ApiError::not_found("cron", id)
}

fn fits<'s>(hub: &Hub, user: &'s User, search: &'s Search) -> impl Fn(&CronRow) -> bool + 's {
    // Runs name it by its id, searches also by the name of its graph.
    let assistant =
        search.assistant_id.as_ref().map(|id| hub.assistant(id).map_or_else(|| id.clone(), |row| row.id));
    let metadata = or_empty(search.metadata.clone());
    move |row| {
        user.owns(row.owner.as_ref())
            && assistant.as_ref().is_none_or(|id| row.assistant == *id)
            && search.thread_id.as_ref().is_none_or(|id| row.thread.as_ref() == Some(id))
            && search.enabled.is_none_or(|enabled| row.enabled == enabled)
            && row.metadata().map_or(metadata.is_empty(), |all| contains(all, &metadata))
    }
}
