//! The endpoints.
//!
//! Start at [`routes`].

mod a2a;
mod agui;
mod assistants;
#[cfg(feature = "crons")]
pub(crate) mod crons;
pub(crate) mod extract;
mod guard;
mod mcp;
pub(crate) mod metrics;
mod openapi;
mod protocol;
mod rpc;
pub(crate) mod runs;
mod selection;
mod state;
mod storage;
mod store;
pub(crate) mod streams;
mod system;
pub(crate) mod threads;

use std::sync::Arc;

use axum::{
    Router,
    http::StatusCode,
    middleware,
    routing::{get, post},
};

use self::guard::guard;
use crate::{error::ApiError, runs::hub::Hub};

/// Returns all endpoints.
pub(crate) fn routes(hub: Arc<Hub>) -> Router {
    Router::new()
        .route("/ok", get(system::ok))
        .route("/metrics", get(metrics::show))
        .route("/openapi.json", get(openapi::show))
        .route("/info", get(system::info))
        .route("/assistants", post(assistants::create))
        .route("/assistants/search", post(assistants::search))
        .route("/assistants/count", post(assistants::count))
        .route(
            "/assistants/{assistant}",
            get(assistants::read).patch(assistants::change).delete(assistants::delete),
        )
        .route("/assistants/{assistant}/versions", post(assistants::versions))
        .route("/assistants/{assistant}/latest", post(assistants::choose_version))
        .route("/assistants/{assistant}/graph", get(assistants::graph))
        .route("/assistants/{assistant}/schemas", get(assistants::schemas))
        .route("/assistants/{assistant}/subgraphs", get(assistants::subgraphs))
        .route("/assistants/{assistant}/subgraphs/{namespace}", get(assistants::subgraphs))
        .route("/threads", post(threads::create))
        .route("/threads/search", post(threads::search))
        .route("/threads/count", post(threads::count))
        .route("/threads/prune", post(threads::prune))
        .route("/threads/{thread}", get(threads::read).patch(threads::change).delete(threads::delete))
        .route("/threads/{thread}/copy", post(threads::copy))
        .route("/threads/{thread}/storage", get(storage::read))
        .route("/threads/{thread}/state", get(state::read).post(state::update))
        .route("/threads/{thread}/state/checkpoint", post(state::read_named))
        .route("/threads/{thread}/state/{checkpoint}", get(state::read_at))
        .route("/threads/{thread}/history", get(state::history).post(state::search_history))
        .route("/threads/{thread}/stream", get(streams::follow_thread))
        .route("/threads/{thread}/commands", post(protocol::command))
        .route("/threads/{thread}/stream/events", get(protocol::connect).post(protocol::follow))
        .route("/threads/{thread}/runs", get(runs::list).post(runs::create))
        .route("/threads/{thread}/runs/stream", post(runs::stream))
        .route("/threads/{thread}/runs/wait", post(runs::wait))
        .route("/threads/{thread}/runs/{run}", get(runs::read).delete(runs::delete))
        .route("/threads/{thread}/runs/{run}/join", get(runs::join))
        .route("/threads/{thread}/runs/{run}/stream", get(streams::join))
        .route("/threads/{thread}/runs/{run}/cancel", post(runs::cancel))
        .route("/runs", post(runs::create_stateless))
        .route("/runs/stream", post(runs::stream_stateless))
        .route("/runs/wait", post(runs::wait_stateless))
        .route("/runs/batch", post(runs::batch))
        .route("/runs/cancel", post(runs::cancel_many))
        .route("/runs/{run}/stream", get(streams::join_stateless))
        .route("/store/items", get(store::read).put(store::put).delete(store::delete))
        .route("/store/items/search", post(store::search))
        .route("/store/namespaces", post(store::namespaces))
        .route("/agui/{graph}", post(agui::run))
        .route("/.well-known/agent-card.json", get(a2a::card))
        .route("/a2a/{assistant}", post(a2a::call))
        .route("/a2a/{assistant}/.well-known/agent-card.json", get(a2a::card_of))
        .route("/mcp", post(mcp::message))
        .merge(if system::has_crons(&hub) { crons() } else { no_crons() })
        // It guards the routes above.
        .route_layer(middleware::from_fn_with_state(hub.clone(), guard))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .with_state(hub)
}

#[cfg(feature = "crons")]
fn crons() -> Router<Arc<Hub>> {
    Router::new()
        .route("/threads/{thread}/runs/crons", post(crons::create_on_thread))
        .route("/runs/crons", post(crons::create))
        .route("/runs/crons/search", post(crons::search))
        .route("/runs/crons/count", post(crons::count))
        .route("/runs/crons/{cron}", get(crons::read).patch(crons::change).delete(crons::delete))
}

#[cfg(not(feature = "crons"))]
use no_crons as crons;

fn no_crons() -> Router<Arc<Hub>> {
    Router::new()
        .route("/threads/{thread}/runs/crons", post(system::no_crons))
        .route("/runs/crons", post(system::no_crons))
        .route("/runs/crons/search", post(system::no_crons))
        .route("/runs/crons/count", post(system::no_crons))
        .route("/runs/crons/{cron}", get(system::no_crons).patch(system::no_crons).delete(system::no_crons))
}

async fn unknown() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "Not Found")
}

async fn wrong_method() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
}
