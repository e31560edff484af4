//! The endpoint `/metrics`, and the count of all requests.
//!
//! Start at [`count`].

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{MatchedPath, Request, State},
    http::{HeaderValue, Method, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use futures::StreamExt as _;
use tokio::time::Instant;

use crate::{error::ApiError, runs::hub::Hub};

/// Counts a request, and its stream while that is open.
pub(crate) async fn count(State(hub): State<Arc<Hub>>, request: Request, next: Next) -> Response {
    let method = match *request.method() {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    };
    let route = request.extensions().get().map_or("unknown", MatchedPath::as_str).to_owned();
    let begin = Instant::now();
    let response = next.run(request).await;
    hub.metrics.answered(method, route, response.status().as_u16(), begin.elapsed());
    let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    if !kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
        return response;
    }
    let open = hub.metrics.open_stream();
    response.map(|body| {
        Body::from_stream(body.into_data_stream().map(move |chunk| {
            let _open = &open;
            chunk
        }))
    })
}

pub(super) async fn show(State(hub): State<Arc<Hub>>) -> Result<Response, ApiError> {
    let (queued, running) = hub.queued_and_running();
    let text = hub.metrics.text(queued, running).map_err(|error| ApiError::internal(error.to_string()))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
