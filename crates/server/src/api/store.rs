//! Endpoints of the items that outlive threads.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State, http::StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use superstep_graph::{
    Store,
    store::{
        Filter, Found, Index, Item, ListNamespaces, Namespace, Operation, PutOptions, RESERVED_LABEL, Search,
        StoreError, Ttl,
    },
};

use super::extract::{Body, DONE, Query, limit};
use crate::{
    access::{Role, User},
    error::ApiError,
    rows::table::LABEL,
    runs::hub::Hub,
    wire::time,
};

#[derive(JsonSchema, Deserialize)]
pub(super) struct Put {
    namespace: Vec<String>,
    key: String,
    value: Map<String, Value>,
    #[serde(default)]
    index: Option<IndexChoice>,
    ttl: Option<f64>,
}

/// `false`, or the fields to index.
#[derive(JsonSchema, Deserialize)]
#[serde(untagged)]
enum IndexChoice {
    Switch(bool),
    Fields(Vec<String>),
}

#[derive(JsonSchema, Deserialize)]
pub(super) struct Delete {
    namespace: Vec<String>,
    key: String,
}

#[derive(JsonSchema, Deserialize)]
pub(super) struct ItemSearch {
    #[serde(default)]
    namespace_prefix: Vec<String>,
    filter: Option<Value>,
    query: Option<String>,
    limit: Option<usize>,
    offset: Option<usize>,
    refresh_ttl: Option<bool>,
}

#[derive(JsonSchema, Deserialize)]
pub(super) struct NamespaceSearch {
    prefix: Option<Vec<String>>,
    suffix: Option<Vec<String>>,
    max_depth: Option<usize>,
    limit: Option<usize>,
    offset: Option<usize>,
}

pub(super) async fn put(
    State(hub): State<Arc<Hub>>,
    user: User,
    Body(put): Body<Put>,
) -> Result<StatusCode, ApiError> {
    let mut options = PutOptions::new();
    options = match put.index {
        None | Some(IndexChoice::Switch(true)) => options,
        Some(IndexChoice::Switch(false)) => options.index(Index::Nothing),
        Some(IndexChoice::Fields(fields)) => options.index(Index::Fields(fields)),
    };
    if let Some(minutes) = put.ttl {
        let lifetime = Duration::try_from_secs_f64(minutes * 60.0);
        options = options.ttl(Ttl::After(lifetime.map_err(|_| ApiError::invalid("ttl: expected minutes"))?));
    }
    let namespace = namespace(&user, &put.namespace)?;
    items(&hub)?.put_with(&namespace, &put.key, put.value.into(), options).await?;
    Ok(DONE)
}

pub(super) async fn read(
    State(hub): State<Arc<Hub>>,
    user: User,
    query: Query,
) -> Result<Json<Value>, ApiError> {
    let labels: Vec<String> =
        query.all("namespace").flat_map(|part| part.split('.')).map(str::to_owned).collect();
    let key = query.get("key").ok_or_else(|| ApiError::invalid("key: field required"))?;
    let refresh = if query.get("refresh_ttl").is_some() { Some(query.flag("refresh_ttl")?) } else { None };
    let get = Operation::Get { namespace: namespace(&user, &labels)?, key: key.to_owned(), refresh };
    let answer = items(&hub)?.batch(vec![get]).await?.into_iter().next();
    let item = answer.and_then(superstep_graph::store::Answer::into_item).flatten();
    Ok(Json(item.map_or(Value::Null, |item| to_wire(&user, &item).into())))
}

pub(super) async fn delete(
    State(hub): State<Arc<Hub>>,
    user: User,
    Body(delete): Body<Delete>,
) -> Result<StatusCode, ApiError> {
    items(&hub)?.delete(&namespace(&user, &delete.namespace)?, &delete.key).await?;
    Ok(DONE)
}

pub(super) async fn search(
    State(hub): State<Arc<Hub>>,
    user: User,
    Body(search): Body<ItemSearch>,
) -> Result<Json<Value>, ApiError> {
    let items = items(&hub)?;
    let within = match &*search.namespace_prefix {
        [] => owned(&user).map(|label| Namespace::new([label])).transpose()?,
        labels => Some(namespace(&user, labels)?),
    };
    let request = Search {
        within,
        filter: search
            .filter
            .as_ref()
            .filter(|filter| !filter.is_null())
            .map_or(Ok(Vec::new()), Filter::parse)?,
        query: None,
        limit: limit(search.limit, 10)?,
        offset: search.offset.unwrap_or(0),
        refresh: search.refresh_ttl,
    };
    let found = match search.query.filter(|query| !query.is_empty()) {
        None => items.search(request).await?,
        Some(query) => match items.search(request.clone().meaning(&query)).await {
            // A store without an embedding model searches for words.
            Err(StoreError::NoEmbedding) => items.search(request.words(query)).await?,
            found => found?,
        },
    };
    let entry = |found: Found| {
        let mut item = to_wire(&user, &found.item);
        item.insert("score".to_owned(), found.score.into());
        Value::from(item)
    };
    // The rows of the server may be in the same store.
    let found = found.into_iter().filter(|found| !is_own(&found.item.namespace));
    Ok(Json(json!({ "items": found.map(entry).collect::<Vec<_>>() })))
}

pub(super) async fn namespaces(
    State(hub): State<Arc<Hub>>,
    user: User,
    Body(search): Body<NamespaceSearch>,
) -> Result<Json<Value>, ApiError> {
    let owner = owned(&user);
    let own_labels = usize::from(owner.is_some());
    let which = ListNamespaces {
        prefix: owner.into_iter().chain(search.prefix.unwrap_or_default()).collect(),
        suffix: search.suffix.unwrap_or_default(),
        max_depth: search.max_depth.map(|depth| depth.saturating_add(own_labels)),
        limit: limit(search.limit, 100)?,
        offset: search.offset.unwrap_or(0),
    };
    let found = items(&hub)?.list_namespaces(which).await?;
    let found = found.iter().filter(|namespace| !is_own(namespace));
    let labels: Vec<Vec<&str>> =
        found.map(|namespace| namespace.labels().skip(own_labels).collect()).collect();
    Ok(Json(json!({ "namespaces": labels })))
}

fn items(hub: &Hub) -> Result<&Arc<dyn Store>, ApiError> {
    hub.items.as_ref().ok_or_else(|| ApiError::invalid("this server has no store"))
}

/// Returns the first label of the items of a user; `None` for administrators, who find the items of all.
fn owned(user: &User) -> Option<String> {
    // Labels have no dots.
    let label = || format!("user:{}", user.id.replace('%', "%25").replace('.', "%2E"));
    (user.role < Role::Admin).then(label)
}

/// # Errors
/// 422 for labels that the store does not take, and for those of the server's own rows.
fn namespace(user: &User, labels: &[String]) -> Result<Namespace, ApiError> {
    if labels.first().is_some_and(|label| label == LABEL || label == RESERVED_LABEL) {
        return Err(ApiError::invalid(format!("namespace: the first label `{}` is reserved", labels[0])));
    }
    let own = Namespace::new(labels)?;
    match owned(user) {
        None => Ok(own),
        Some(label) => Ok(Namespace::new([&*label].into_iter().chain(own.labels()))?),
    }
}

fn is_own(namespace: &Namespace) -> bool {
    namespace.labels().next() == Some(LABEL)
}

fn to_wire(user: &User, item: &Item) -> Map<String, Value> {
    let own_labels = usize::from(owned(user).is_some());
    let Item { namespace, key, value, created_ms, updated_ms, .. } = item;
    Map::from_iter([
        ("namespace".to_owned(), namespace.labels().skip(own_labels).collect()),
        ("key".to_owned(), key.as_str().into()),
        ("value".to_owned(), value.clone()),
        ("created_at".to_owned(), time::of_ms(*created_ms)),
        ("updated_at".to_owned(), time::of_ms(*updated_ms)),
    ])
}
