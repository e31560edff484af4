//! The studio: a page for threads and graphs, and the API that only the page uses.
//!
//! ```text
//! page in the browser ── /studio/api/… ──▶ handlers ──▶ Studio ──▶ Hub (runs), Checkpointer (reads)
//!        ▲                                                │
//!        └──────────── /studio/api/events ◀── Watcher ────┘
//! ```
//!
//! | module | part |
//! |---|---|
//! | `types` | the JSON, from which the types of the page are generated |
//! | `threads` | heads of threads: the list, the inbox, one thread |
//! | `history` | the checkpoints of a thread: an overview in columns, and windows with details |
//! | `checkpoint`, `arrivals` | one checkpoint: outline, parts of values, tasks, messages, changes |
//! | `subgraph` | the states of called graphs |
//! | `actions`, `dry_run` | runs, answers, forks, updates, replays, comparisons |
//! | `cases` | threads as cases of tests |
//! | `manage` | copies, prunes and deletions; messages to runs, and restored files |
//! | `events` | the stream of a page |
//! | `diff`, `part`, `graph` | pure functions: differences, parts of values, layouts |
//! | `assets` | the built page |
//!
//! Start at [`routes`].

mod actions;
mod arrivals;
mod assets;
mod cases;
mod checkpoint;
mod diff;
mod dry_run;
mod events;
mod graph;
mod history;
mod manage;
mod part;
mod subgraph;
mod threads;
mod types;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    extract::{Request, State},
    http::{Method, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Map, Value};
use superstep_graph::ThreadId;

use crate::{
    access::{Role, User},
    api::extract::HasHub,
    error::ApiError,
    runs::hub::Hub,
    studio::{checkpoint::CachedState, threads::Head, types::Info},
};

/// The parts that all requests of the studio share.
pub(crate) struct Studio {
    hub: Arc<Hub>,
    /// `true` if everyone who passes the [check](check) has the key of an administrator, and sees hidden channels.
    shows_hidden: bool,
    /// The states that were read last, newest last.
    states: Mutex<VecDeque<Arc<CachedState>>>,
}

impl HasHub for Arc<Studio> {
    fn hub(&self) -> &Hub {
        &self.hub
    }
}

impl Studio {
    /// Creates the studio of a server; one that is not locked has no administrators.
    pub(crate) fn new(hub: Arc<Hub>, is_locked: bool) -> Arc<Self> {
        Arc::new(Self { hub, shows_hidden: is_locked, states: Mutex::default() })
    }

    fn thread_id(thread: &str) -> ThreadId {
        ThreadId::from(thread)
    }

    /// Returns the channels of a graph that the page shows; `None` for all.
    fn shown(&self, graph: Option<&str>) -> Option<&BTreeSet<String>> {
        static NONE: BTreeSet<String> = BTreeSet::new();
        if self.shows_hidden || self.hub.shown.is_empty() {
            return None;
        }
        match graph {
            Some(graph) => self.hub.shown.get(graph),
            // Which channels of another program's graph are to be hidden is unknown.
            None => Some(&NONE),
        }
    }

    /// Returns the channels of a thread's state, or of an update of it, that the page shows.
    fn shown_of(&self, head: &Head, mut channels: Map<String, Value>) -> Map<String, Value> {
        if let Some(shown) = self.shown(head.graph.as_deref()) {
            channels.retain(|channel, _| shown.contains(channel));
        }
        channels
    }
}

/// Returns the page and its API.
pub(crate) fn routes(studio: Arc<Studio>) -> Router {
    let api = Router::new()
        .route("/info", get(info))
        .route("/graphs/{graph}", get(graph::read))
        .route("/threads", get(threads::list).post(actions::create))
        .route("/inbox", get(threads::inbox))
        .route("/compare", get(actions::compare))
        .route("/events", get(events::follow))
        .route("/threads/{thread}", get(threads::read))
        .route("/threads/{thread}/overview", get(history::overview))
        .route("/threads/{thread}/checkpoints", get(history::window))
        .route("/threads/{thread}/at/{checkpoint}", get(checkpoint::read))
        .route("/threads/{thread}/at/{checkpoint}/value", get(checkpoint::value))
        .route("/threads/{thread}/at/{checkpoint}/changes", get(checkpoint::changes))
        .route("/threads/{thread}/at/{checkpoint}/messages", get(checkpoint::messages))
        .route("/threads/{thread}/subgraph", get(subgraph::read))
        .route("/threads/{thread}/subgraph/value", get(subgraph::value))
        .route("/threads/{thread}/run", post(actions::run))
        .route("/threads/{thread}/answers", post(actions::answer))
        .route("/threads/{thread}/cancel", post(actions::cancel))
        .route("/threads/{thread}/fork", post(actions::fork))
        .route("/threads/{thread}/update", post(actions::update))
        .route("/threads/{thread}/replay", post(actions::replay))
        .route("/threads/{thread}/steer", post(manage::steer))
        .route("/threads/{thread}/copy", post(manage::copy))
        .route("/threads/{thread}/prune", post(manage::prune))
        .route("/threads/{thread}/revert", post(manage::revert))
        .route("/threads/{thread}/delete", post(manage::delete))
        .route("/threads/{thread}/case", get(cases::export).post(cases::accept_thread))
        .route("/cases/replay", post(cases::replay))
        .route("/cases/accept", post(cases::accept))
        .route("/{*unknown}", get(unknown).post(unknown))
        .layer(middleware::from_fn_with_state(studio.clone(), check))
        .with_state(studio);
    Router::new()
        .route("/studio", get(assets::page))
        .route("/studio/", get(assets::page))
        .route("/studio/{*page}", get(assets::file))
        .nest("/studio/api", api)
}

/// Refuses users who may not see the threads of all, writes to a server for reading, and those that a form of another page can send.
async fn check(State(studio): State<Arc<Studio>>, user: User, request: Request, next: Next) -> Response {
    if user.role < Role::Admin {
        let detail = "the studio shows the threads of all users, and is for administrators";
        return ApiError::new(StatusCode::FORBIDDEN, detail).into_response();
    }
    if request.method() == Method::GET || request.method() == Method::HEAD {
        return next.run(request).await;
    }
    let content = request.headers().get(header::CONTENT_TYPE).and_then(|content| content.to_str().ok());
    let error = if studio.hub.read_only {
        ApiError::new(StatusCode::FORBIDDEN, "this server is read-only")
    } else if content.is_none_or(|content| !content.starts_with("application/json")) {
        ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "expected a body of the type `application/json`")
    } else {
        return next.run(request).await;
    };
    error.into_response()
}

async fn info(State(studio): State<Arc<Studio>>) -> Json<Info> {
    Json(Info {
        version: env!("CARGO_PKG_VERSION"),
        read_only: studio.hub.read_only,
        graphs: studio.hub.graphs.keys().cloned().collect(),
    })
}

async fn unknown() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "unknown path of the studio")
}
