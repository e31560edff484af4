//! Errors of the server: those of its start, and those that it answers.
//!
//! Start at [`ServerError`].

use std::{io, net::SocketAddr};

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::json;
use superstep_graph::{
    RunError, checkpoint::CheckpointError, erased::InputError, error::chain, store::StoreError,
};

/// An error of a server's start or end.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address can be reached from other machines, and the server has neither a token nor users.
    #[error(
        "the server listens on {address}, which other machines can reach, and has no token; set one with \
         `Server::token`, or users with `Server::authenticate`, or listen on 127.0.0.1"
    )]
    TokenNeeded {
        /// The address.
        address: SocketAddr,
    },
    /// The server has no graph to serve.
    #[error("the server has no graph; add one with `Server::graph`")]
    NoGraph,
    /// The graph of channels to hide, or of actions, is unknown.
    #[error(
        "the server has no graph `{graph}` whose channels could be hidden, or which could have actions; add it with `Server::graph`"
    )]
    UnknownGraph {
        /// The graph.
        graph: String,
    },
    /// A channel to hide is unknown.
    #[error("graph `{graph}` has no channel `{channel}` to hide; its channels are {known}")]
    UnknownChannel {
        /// The graph.
        graph: String,
        /// The channel.
        channel: String,
        /// The names that there are.
        known: String,
    },
    /// The token is empty or has characters that a header cannot carry.
    #[error("the token is not a visible ASCII text without spaces; choose another one")]
    InvalidToken,
    /// The rows of threads, assistants, runs and crons cannot be read.
    #[error("the rows of the server cannot be read or written")]
    Rows {
        /// The cause.
        #[source]
        source: StoreError,
    },
    /// Another process serves these rows, or begins to.
    #[error(
        "another server uses these rows, which one process keeps in memory; stop it, or give this one others with `Server::rows`"
    )]
    RowsInUse,
    /// The checkpointer does not reserve the rows for this process.
    #[error("the checkpointer cannot reserve the rows for this server")]
    Claim {
        /// The cause.
        #[source]
        source: CheckpointError,
    },
    /// A row was written by another version of the server, or was changed.
    #[error("the row `{key}` of `{table}` cannot be read; delete it, or use the version that wrote it")]
    InvalidRow {
        /// The table.
        table: &'static str,
        /// The key of the row.
        key: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// A stored run cannot be queued again.
    #[error("run `{run}` cannot be queued again: {detail}; delete its row")]
    InvalidRun {
        /// The run.
        run: String,
        /// The reason.
        detail: String,
    },
    /// The listener has no address.
    #[error("the listener has no address")]
    Listener {
        /// The cause.
        #[source]
        source: io::Error,
    },
}

superstep_graph::__private::debug_by_chain!(ServerError);

/// An error that a client sees, as `{"detail": TEXT}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) detail: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    /// An update or a command that is impossible on the thread.
    pub(crate) fn impossible(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn internal(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    }

    pub(crate) fn not_found(what: &str, id: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("{what} `{id}` not found"))
    }

    /// The server stops, and what the client wants is there after its next start.
    pub(crate) fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the server stops; try again")
    }

    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    /// A field that is not valid, or something that this server does not support.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(json!({ "detail": self.detail }))).into_response()
    }
}

impl From<InputError> for ApiError {
    fn from(error: InputError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<CheckpointError> for ApiError {
    fn from(error: CheckpointError) -> Self {
        let status = match error {
            CheckpointError::Busy { .. } | CheckpointError::ThreadExists { .. } => StatusCode::CONFLICT,
            CheckpointError::Conflict { .. } | CheckpointError::LeaseLost { .. } => StatusCode::CONFLICT,
            CheckpointError::NoThread { .. } => StatusCode::NOT_FOUND,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, chain(&error))
    }
}

impl From<RunError> for ApiError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Checkpoint(error) => error.into(),
            RunError::UnknownCheckpoint { .. } => Self::new(StatusCode::NOT_FOUND, chain(&error)),
            RunError::Decode { .. } | RunError::Unstorable { .. } | RunError::NewerChannel { .. } => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, chain(&error))
            }
            error => Self::impossible(chain(&error)),
        }
    }
}

impl From<ServerError> for ApiError {
    fn from(error: ServerError) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, chain(&error))
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let status = match error {
            StoreError::Namespace { .. } | StoreError::Filter { .. } | StoreError::NoEmbedding => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, chain(&error))
    }
}
