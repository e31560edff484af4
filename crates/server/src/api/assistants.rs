//! Endpoints of assistants.

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
use superstep_graph::erased::JsonGraph;

use super::extract::{Body, DONE, IfExists, Page, Query, SortOrder, or_empty};
use crate::{
    access::User,
    error::ApiError,
    rows::{
        assistant::{AssistantRow, AssistantVersion},
        table::contains,
        thread::ThreadRow,
    },
    runs::hub::Hub,
    wire::{graph as wire, ids, time},
};

#[derive(JsonSchema, Deserialize)]
pub(super) struct NewAssistant {
    graph_id: String,
    assistant_id: Option<String>,
    config: Option<Map<String, Value>>,
    context: Option<Map<String, Value>>,
    metadata: Option<Map<String, Value>>,
    name: Option<String>,
    description: Option<String>,
    #[serde(default)]
    if_exists: IfExists,
}

#[derive(Default, JsonSchema, Deserialize)]
#[schemars(rename = "AssistantChanges")]
pub(super) struct Changes {
    graph_id: Option<String>,
    config: Option<Map<String, Value>>,
    context: Option<Map<String, Value>>,
    metadata: Option<Map<String, Value>>,
    name: Option<String>,
    description: Option<String>,
}

#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "AssistantSearch")]
pub(super) struct Search {
    graph_id: Option<String>,
    name: Option<String>,
    metadata: Option<Map<String, Value>>,
    limit: Option<usize>,
    offset: Option<usize>,
    sort_by: Option<String>,
    sort_order: Option<SortOrder>,
    select: Option<Vec<String>>,
}

#[derive(JsonSchema, Deserialize)]
pub(super) struct VersionNumber {
    version: usize,
}

pub(super) async fn create(
    State(hub): State<Arc<Hub>>,
    user: User,
    Body(new): Body<NewAssistant>,
) -> Result<Json<Value>, ApiError> {
    hub.graph(&new.graph_id)?;
    if let Some(id) = new.assistant_id.as_deref()
        && uuid::Uuid::try_parse(id).is_err()
    {
        return Err(ApiError::invalid("assistant_id: expected a UUID"));
    }
    let id = new.assistant_id.unwrap_or_else(ids::new_random);
    let (config, context) = mirrored(or_empty(new.config), or_empty(new.context));
    let version = AssistantVersion {
        graph: new.graph_id,
        config,
        context,
        metadata: or_empty(new.metadata),
        name: new.name.unwrap_or_else(|| "Untitled".to_owned()),
        description: new.description,
        created_us: time::now_us(),
    };
    let row = AssistantRow { owner: AssistantRow::owner_of(&user), ..AssistantRow::new(id.clone(), version) };
    let existing = match hub.assistant(&id) {
        Some(existing) => Some(existing),
        None => hub.assistants.add(&id, row.clone()).await?,
    };
    match existing {
        None => Ok(Json(row.to_wire())),
        Some(existing) if new.if_exists == IfExists::DoNothing && existing.is_visible(&user) => {
            Ok(Json(existing.to_wire()))
        }
        Some(_) => Err(ApiError::conflict(format!("assistant `{id}` exists already"))),
    }
}

pub(super) async fn search(
    State(hub): State<Arc<Hub>>,
    user: User,
    Body(search): Body<Search>,
) -> Result<Response, ApiError> {
    let mut found = matching(&hub, &user, &search);
    let order = search.sort_order.unwrap_or_default();
    match search.sort_by.as_deref() {
        None | Some("created_at") => order.sort(&mut found, |row| row.created_us),
        Some("updated_at") => order.sort(&mut found, |row| row.updated_us),
        Some("name") => order.sort(&mut found, |row| row.version().name.clone()),
        Some("graph_id") => order.sort(&mut found, |row| row.version().graph.clone()),
        Some("assistant_id") => order.sort(&mut found, |row| row.id.clone()),
        Some(_) => {
            return Err(ApiError::invalid(
                "sort_by: expected created_at, updated_at, name, graph_id or assistant_id",
            ));
        }
    }
    let page = Page::new(search.limit, search.offset)?;
    Ok(page.answer_rows(found, AssistantRow::to_wire, search.select.as_deref()))
}

pub(super) async fn count(
    State(hub): State<Arc<Hub>>,
    user: User,
    Body(search): Body<Search>,
) -> Json<usize> {
    Json(matching(&hub, &user, &search).len())
}

pub(super) async fn read(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(assistant(&hub, &id)?.to_wire()))
}

pub(super) async fn change(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
    user: User,
    Body(changes): Body<Changes>,
) -> Result<Json<Value>, ApiError> {
    if let Some(graph) = &changes.graph_id {
        hub.graph(graph)?;
    }
    let row = stored(&hub, &user, &id).await?;
    let change = |row: &mut AssistantRow| {
        let mut version = row.version().clone();
        let Changes { graph_id, config, context, metadata, name, description } = changes;
        version.graph = graph_id.unwrap_or(version.graph);
        if config.is_some() || context.is_some() {
            (version.config, version.context) = mirrored(or_empty(config), or_empty(context));
        }
        version.metadata.extend(or_empty(metadata));
        version.name = name.unwrap_or(version.name);
        version.description = description.or(version.description);
        version.created_us = time::now_us();
        row.updated_us = version.created_us;
        row.versions.push(version);
        row.current = row.versions.len() - 1;
    };
    let row = hub.assistants.change(&row.id, change).await?.ok_or_else(|| missing(&id))?;
    Ok(Json(row.to_wire()))
}

pub(super) async fn delete(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
    user: User,
    query: Query,
) -> Result<StatusCode, ApiError> {
    let row = own(&hub, &user, &id)?;
    if hub.graphs.contains_key(&row.version().graph) && row.id == ids::of_graph(&row.version().graph) {
        return Err(ApiError::conflict("the assistant of a graph lives as long as the graph"));
    }
    if query.flag("delete_threads")? {
        let is_of = |value: Option<&Value>| value.is_some_and(|value| *value == row.id);
        let fits = |thread: &ThreadRow| {
            is_of(thread.metadata.get("assistant_id")) && user.owns(thread.owner.as_ref())
        };
        for thread in hub.threads.list(fits) {
            super::threads::remove(&hub, &thread.id).await?;
        }
    }
    hub.assistants.delete(&row.id).await?;
    Ok(DONE)
}

pub(super) async fn versions(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
    Body(search): Body<Search>,
) -> Result<Json<Vec<Value>>, ApiError> {
    let row = assistant(&hub, &id)?;
    let wanted = or_empty(search.metadata);
    let fits = |at: &usize| contains(&row.versions[*at].metadata, &wanted);
    let versions = (0..row.versions.len()).rev().filter(fits).map(|at| row.version_to_wire(at)).collect();
    Ok(Json(Page::new(search.limit, search.offset)?.of(versions)))
}

pub(super) async fn choose_version(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
    user: User,
    Body(VersionNumber { version }): Body<VersionNumber>,
) -> Result<Json<Value>, ApiError> {
    let row = stored(&hub, &user, &id).await?;
    if version == 0 || version > row.versions.len() {
        return Err(ApiError::not_found("version", &version.to_string()));
    }
    let change = |row: &mut AssistantRow| {
        row.current = version - 1;
        row.updated_us = time::now_us();
    };
    let row = hub.assistants.change(&row.id, change).await?.ok_or_else(|| missing(&id))?;
    Ok(Json(row.to_wire()))
}

pub(super) async fn graph(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
    query: Query,
) -> Result<Json<Value>, ApiError> {
    let expanded = query.get("xray").is_some_and(|xray| !["false", "False", "0"].contains(&xray));
    Ok(Json(wire::drawing(&**graph_of(&hub, &id)?, expanded)))
}

pub(super) async fn schemas(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let row = assistant(&hub, &id)?;
    let name = &row.version().graph;
    Ok(Json(wire::schemas(name, &**hub.graph(name)?, hub.shown.get(name))))
}

/// Schemas of subgraphs are not known to their callers.
pub(super) async fn subgraphs(
    State(hub): State<Arc<Hub>>,
    Path(path): Path<Vec<(String, String)>>,
) -> Result<Json<Value>, ApiError> {
    let id = path.first().map(|(_, id)| id.clone()).unwrap_or_default();
    graph_of(&hub, &id)?;
    Ok(Json(json!({})))
}

/// Returns an assistant by its id, or by the name of its graph.
///
/// # Errors
/// 404.
pub(super) fn assistant(hub: &Hub, id: &str) -> Result<AssistantRow, ApiError> {
    hub.assistant(id).ok_or_else(|| missing(id))
}

fn missing(id: &str) -> ApiError {
    ApiError::not_found("assistant", id)
}

fn graph_of<'a>(hub: &'a Hub, id: &str) -> Result<&'a Arc<dyn JsonGraph>, ApiError> {
    hub.graph(&assistant(hub, id)?.version().graph)
}

/// Returns an assistant that a user may change.
///
/// # Errors
/// 403 for one that is for everyone; 404.
fn own(hub: &Hub, user: &User, id: &str) -> Result<AssistantRow, ApiError> {
    let row = assistant(hub, id)?;
    if user.owns(row.owner.as_ref()) {
        return Ok(row);
    }
    let detail = "the assistant is for everyone, and only administrators change it; create one of your own";
    Err(ApiError::new(StatusCode::FORBIDDEN, detail))
}

/// Returns an assistant that a user may change, and whose row is stored: that of a graph is, from its first change on.
async fn stored(hub: &Hub, user: &User, id: &str) -> Result<AssistantRow, ApiError> {
    let row = own(hub, user, id)?;
    hub.assistants.add(&row.id, row.clone()).await?;
    Ok(row)
}

fn matching(hub: &Hub, user: &User, search: &Search) -> Vec<AssistantRow> {
    let wanted_metadata = search.metadata.clone().unwrap_or_default();
    let wanted_name = search.name.as_ref().map(|name| name.to_lowercase());
    let fits = |row: &AssistantRow| {
        let version = row.version();
        row.is_visible(user)
            && search.graph_id.as_ref().is_none_or(|graph| version.graph == *graph)
            && wanted_name.as_ref().is_none_or(|name| version.name.to_lowercase().contains(name))
            && contains(&version.metadata, &wanted_metadata)
    };
    let mut found = hub.assistants.list(fits);
    let virtual_ones = hub.graphs.keys().filter(|name| !hub.assistants.has(&ids::of_graph(name)));
    found.extend(virtual_ones.map(|name| hub.of_graph(name)).filter(fits));
    found
}

/// `config.configurable` and `context` are two names of one thing.
fn mirrored(
    mut config: Map<String, Value>,
    mut context: Map<String, Value>,
) -> (Map<String, Value>, Map<String, Value>) {
    if let Some(Value::Object(configurable)) = config.get("configurable") {
        let mut both = configurable.clone();
        both.extend(context);
        context = both;
    }
    if !context.is_empty() {
        config.insert("configurable".to_owned(), context.clone().into());
    }
    (config, context)
}
