//! Parts of requests and answers that several endpoints share.

use std::{cmp::Reverse, sync::Arc};

use axum::{
    Json,
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Request, rejection::BytesRejection},
    http::{HeaderValue, StatusCode, header, header::HeaderName, request::Parts},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{error::ApiError, runs::hub::Hub};

/// The state of routes, with the bounds of requests.
pub(crate) trait HasHub: Send + Sync {
    fn hub(&self) -> &Hub;
}

impl HasHub for Arc<Hub> {
    fn hub(&self) -> &Hub {
        self
    }
}

/// The JSON body of a request, of any content type. No body is an empty object.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: HasHub> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = arrived(state.hub(), request).await?;
        let json: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let mut reader = serde_json::Deserializer::from_slice(json);
        let read = serde_path_to_error::deserialize(&mut reader).map_err(invalid_field)?;
        reader.end().map_err(|error| ApiError::invalid(error.to_string()))?;
        Ok(Self(read))
    }
}

/// Names the field of JSON that does not fit.
pub(super) fn invalid_field(error: serde_path_to_error::Error<serde_json::Error>) -> ApiError {
    let place = error.path().to_string();
    let reason = error.into_inner();
    ApiError::invalid(if place == "." { reason.to_string() } else { format!("{place}: {reason}") })
}

/// Waits for the body of a request.
///
/// # Errors
/// 408 if it is late, 413 if it is too large, 400 if its connection breaks.
pub(crate) async fn arrived(hub: &Hub, request: Request) -> Result<Bytes, ApiError> {
    let bytes = tokio::time::timeout(hub.limits.arrival, Bytes::from_request(request, &())).await;
    let late =
        |_| ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body of the request did not arrive in time");
    let refused = |rejection: BytesRejection| ApiError::new(rejection.status(), rejection.body_text());
    bytes.map_err(late)?.map_err(refused)
}

/// The query of a request: names and values in order, of which a name may come several times.
pub(crate) struct Query(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let query = parts.uri.query().unwrap_or_default();
        let pairs = url::form_urlencoded::parse(query.as_bytes());
        Ok(Self(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect()))
    }
}

impl Query {
    /// Returns the first value of a name that is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Returns the values of a name that are not empty.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(known, value)| known == name && !value.is_empty())
            .map(|(_, value)| &**value)
    }

    /// Returns the beginnings of the namespaces that a stream is limited to; none for all.
    pub(crate) fn namespaces(&self) -> Vec<Vec<String>> {
        let levels = |namespace: &str| namespace.split('|').map(str::to_owned).collect();
        self.all("namespace").map(levels).collect()
    }

    /// Returns whether a flag is set: `true` or `1`.
    ///
    /// # Errors
    /// 422 for another value.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.get(name) {
            None | Some("false" | "0" | "False") => Ok(false),
            Some("true" | "1" | "True") => Ok(true),
            Some(_) => Err(ApiError::invalid(format!("{name}: expected `true` or `false`"))),
        }
    }

    /// Returns a number.
    ///
    /// # Errors
    /// 422 for another value.
    pub(crate) fn number(&self, name: &str) -> Result<Option<usize>, ApiError> {
        let read =
            |text: &str| text.parse().map_err(|_| ApiError::invalid(format!("{name}: expected a number")));
        self.get(name).map(read).transpose()
    }
}

/// Returns the maximum number of results of a search.
///
/// # Errors
/// 422 for a limit out of 1 to 1000.
pub(crate) fn limit(limit: Option<usize>, default: usize) -> Result<usize, ApiError> {
    let limit = limit.unwrap_or(default);
    if (1..=1_000).contains(&limit) { Ok(limit) } else { Err(ApiError::invalid("limit: expected 1 to 1000")) }
}

/// A part of a list: at most `limit` entries after the first `offset`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    limit: usize,
    offset: usize,
}

impl Page {
    /// # Errors
    /// 422 for a limit out of 1 to 1000.
    pub(crate) fn new(limit: Option<usize>, offset: Option<usize>) -> Result<Self, ApiError> {
        Ok(Self { limit: self::limit(limit, 10)?, offset: offset.unwrap_or(0) })
    }

    pub(crate) fn of<T>(self, all: Vec<T>) -> Vec<T> {
        all.into_iter().skip(self.offset).take(self.limit).collect()
    }

    /// Returns an answer with the selected fields of the rows of this page.
    pub(crate) fn answer_rows<T>(
        self,
        found: Vec<T>,
        to_wire: impl Fn(&T) -> Value,
        fields: Option<&[String]>,
    ) -> Response {
        let total = found.len();
        let entries = self.of(found).iter().map(|row| select(to_wire(row), fields)).collect();
        self.answer(entries, total)
    }

    /// Returns an answer with the entries of this page, and the headers that say what else there is.
    pub(crate) fn answer(self, entries: Vec<Value>, total: usize) -> Response {
        let next = self.offset + entries.len();
        let mut response = Json(entries).into_response();
        let mut set = |name: &'static str, value: usize| {
            response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from(value));
        };
        set("x-pagination-total", total);
        if next < total {
            set("x-pagination-next", next);
        }
        response
    }
}

/// The order of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SortOrder {
    Asc,
    #[default]
    Desc,
}

impl SortOrder {
    pub(crate) fn sort<T, K: Ord>(self, all: &mut [T], key: impl Fn(&T) -> K) {
        match self {
            Self::Asc => all.sort_by_cached_key(key),
            Self::Desc => all.sort_by_cached_key(|entry| Reverse(key(entry))),
        }
    }
}

/// Retains the selected fields of an object; all of them without a selection.
pub(crate) fn select(entry: Value, fields: Option<&[String]>) -> Value {
    match (entry, fields) {
        (Value::Object(mut entry), Some(fields)) => {
            entry.retain(|name, _| fields.contains(name));
            entry.into()
        }
        (entry, _) => entry,
    }
}

/// Reads an optional field that clients also send as null.
pub(crate) fn or_empty(map: Option<Map<String, Value>>) -> Map<String, Value> {
    map.unwrap_or_default()
}

/// The answer to what succeeds without a result.
pub(crate) const DONE: StatusCode = StatusCode::NO_CONTENT;

/// Adds the headers by which clients find a run again.
pub(crate) fn locate(response: &mut Response, thread: &str, run: &str, place: Option<&str>) {
    let run = format!("/threads/{thread}/runs/{run}");
    let mut set = |name, value: String| {
        // The name of a thread may have characters that a header cannot carry; such clients do without.
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    };
    if let Some(place) = place {
        set(header::LOCATION, format!("{run}/{place}"));
    }
    set(header::CONTENT_LOCATION, run);
}

/// The treatment of an id that is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Deserialize)]
pub(crate) enum IfExists {
    #[default]
    #[serde(rename = "raise")]
    Raise,
    #[serde(rename = "do_nothing")]
    DoNothing,
}
