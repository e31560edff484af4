//! Endpoints about the server itself, and those that it refuses as a whole.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde_json::{Value, json};

use crate::{error::ApiError, runs::hub::Hub};

pub(super) async fn ok() -> Json<Value> {
    Json(json!({ "ok": true, "services": {} }))
}

pub(super) async fn info(State(hub): State<Arc<Hub>>) -> Json<Value> {
    let crons = has_crons(&hub);
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "langgraph_py_version": null,
        "flags": { "assistants": true, "crons": crons, "langsmith": false, "langsmith_tracing_replicas": false, "mcp": true },
        "host": { "kind": "self-hosted", "project_id": null, "revision_id": null, "tenant_id": null },
    }))
}

#[cfg(feature = "crons")]
pub(super) fn has_crons(hub: &Hub) -> bool {
    hub.crons.is_some()
}

#[cfg(not(feature = "crons"))]
pub(super) fn has_crons(_: &Hub) -> bool {
    false
}

pub(super) async fn no_crons() -> ApiError {
    crons_refused()
}

/// Creates the error of a server that has no crons.
// 422 and not 501: some clients repeat the latter for 15 seconds.
pub(super) fn crons_refused() -> ApiError {
    ApiError::invalid("crons are not supported")
}
