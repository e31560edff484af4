//! The endpoints of the thread protocol: commands by POST, events by server-sent events or WebSocket, or both by one WebSocket.
//!
//! Start at [`command`] and [`follow`].

mod commands;
mod socket;

use std::sync::Arc;

use axum::{
    Json,
    body::Bytes,
    extract::{
        Path, State, WebSocketUpgrade,
        ws::{CloseFrame, rejection::WebSocketUpgradeRejection},
    },
    http::StatusCode,
    response::{IntoResponse, Response},
};
use futures::stream;
use serde_json::Value;
use tokio::time::Instant;

use self::commands::Command;
use super::streams::events;
use crate::{
    access::User,
    error::ApiError,
    events::sse::HEARTBEAT,
    rows::thread::ThreadKey,
    runs::hub::Hub,
    thread::{
        filter::Filter,
        log::{Read, ThreadReader},
    },
};

/// Executes a command, and replies with its result or with its refusal, both with the status 200.
pub(super) async fn command(
    State(hub): State<Arc<Hub>>,
    user: User,
    Path(thread): Path<String>,
    body: Bytes,
) -> Result<Response, ApiError> {
    let json = read(&body)?;
    let id = json["id"].as_u64();
    let command = match Command::read(json) {
        Ok(command) => command,
        Err(refusal) => return Ok((StatusCode::BAD_REQUEST, Json(refusal.reply(id))).into_response()),
    };
    let id = command.id;
    Ok(Json(commands::reply(id, commands::execute(&hub, &user, &thread, command).await)).into_response())
}

/// Streams the events of a thread, those of runs to come too. The thread need not exist yet.
pub(super) async fn follow(
    State(hub): State<Arc<Hub>>,
    user: User,
    Path(thread): Path<String>,
    body: Bytes,
) -> Result<Response, ApiError> {
    let filter = Filter::read(&read(&body)?).map_err(ApiError::impossible)?;
    let follower = Follower::new(&hub, &user, &thread, filter.since).await?;
    let heartbeat = hub.limits.heartbeat;
    // Also while events pass that the client does not want: it expects a line in this time.
    let due = Instant::now() + heartbeat;
    let frames = stream::unfold((hub, follower, filter, due), move |state| async move {
        let (hub, mut follower, filter, due) = state;
        let frame = loop {
            match follower.reader.read() {
                Read::Event(event) if filter.matches(&event) => break event.frame(),
                Read::Event(_) => {}
                // The client reconnects, and reads what there is.
                Read::Lost => return None,
                Read::Head => tokio::select! {
                    () = follower.reader.changed() => {}
                    () = hub.stopping.cancelled() => return None,
                    () = tokio::time::sleep_until(due) => break HEARTBEAT,
                },
            }
        };
        Some((frame, (hub, follower, filter, Instant::now() + heartbeat)))
    });
    Ok(events(frames))
}

/// Opens a connection for commands and events.
pub(super) async fn connect(
    State(hub): State<Arc<Hub>>,
    user: User,
    Path(thread): Path<String>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade = upgrade.map_err(|refused| ApiError::new(refused.status(), refused.body_text()))?;
    let upgrade = upgrade.max_message_size(hub.limits.body).max_frame_size(hub.limits.body);
    Ok(upgrade.on_upgrade(async move |socket| match Follower::new(&hub, &user, &thread, None).await {
        Ok(follower) => socket::Connection::new(hub, user, thread, follower, socket).serve().await,
        Err(error) => socket::close(socket, closing(&error)).await,
    }))
}

/// Clients that are closed with 4000 and the status of an error do not come again.
fn closing(error: &ApiError) -> CloseFrame {
    // The protocol allows 123 bytes.
    let reason: String = error.detail.chars().take(30).collect();
    CloseFrame { code: 4_000 + error.status.as_u16(), reason: reason.into() }
}

fn read(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::impossible(format!("invalid JSON: {error}")))
}

/// A reader of the log of a thread, which is dropped with its last reader if nothing is in it.
struct Follower {
    hub: Arc<Hub>,
    thread: ThreadKey,
    reader: ThreadReader,
}

impl Follower {
    async fn new(hub: &Arc<Hub>, user: &User, thread: &str, since: Option<u64>) -> Result<Self, ApiError> {
        let thread = hub.thread_key(user, thread)?;
        let log = hub.thread_log(&thread).await?;
        Ok(Self { hub: hub.clone(), thread, reader: ThreadReader::new(log, since) })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.hub.release_log(&self.thread);
    }
}
