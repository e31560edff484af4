//! Endpoints about the server itself, and those that it refuses as a whole.

use axum::Json;
use serde_json::{Value, json};

use crate::error::ApiError;

pub(super) async fn ok() -> Json<Value> {
    Json(json!({ "ok": true, "services": {} }))
}

pub(super) async fn info() -> Json<Value> {
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "langgraph_py_version": null,
        "flags": { "assistants": true, "crons": false, "langsmith": false, "langsmith_tracing_replicas": false, "mcp": true },
        "host": { "kind": "self-hosted", "project_id": null, "revision_id": null, "tenant_id": null },
    }))
}

/// Crons need a process that runs them.
// 422 and not 501: some clients repeat the latter for 15 seconds.
pub(super) async fn no_crons() -> ApiError {
    ApiError::invalid("crons are not supported")
}
