//! The endpoint `/agui/{graph}`.
//!
//! Start at [`run`].

use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::{Path, State},
    response::Response,
};
use futures::{Stream, StreamExt as _, stream};
use serde_json::Map;
use superstep_graph::RunOptions;

use super::{
    extract::Body,
    runs::begin,
    streams::{Hangup, events},
};
use crate::{
    access::User,
    agui::{End, Projection, Question, RunAgentInput},
    error::ApiError,
    runs::{
        hub::Hub,
        live::LiveRun,
        log::{LogReader, Read},
        request::RunRequest,
    },
};

/// The sign of life of a quiet stream.
const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// Runs a graph on a thread, and sends its events. The run is cancelled when the client hangs up, which is how clients stop it.
pub(super) async fn run(
    State(hub): State<Arc<Hub>>,
    Path(graph): Path<String>,
    user: User,
    Body(input): Body<RunAgentInput>,
) -> Result<Response, ApiError> {
    hub.graph(&graph)?;
    let mut projection = Projection::new(input.thread_id.clone(), input.run_id.clone());
    let (values, open) = stand(&hub, &user, &input.thread_id).await?;
    let thread = input.thread_id.clone();
    let request = match input.request(&graph, &values, &open)? {
        Ok(request) => request,
        Err(message) => {
            let code = "INVALID_RESUME".to_owned();
            let frames = [projection.begin(), projection.end(End::Failed { code, message })];
            return Ok(events(stream::iter(frames)));
        }
    };
    let request: RunRequest =
        serde_json::from_value(request).map_err(|error| ApiError::invalid(error.to_string()))?;
    let live = begin(&hub, &user, &thread, request).await?;
    let hangup = Hangup::new(&hub, &live);
    let first = stream::iter([projection.begin()]);
    Ok(events(first.chain(follow(live, projection, hub.limits.heartbeat, hangup))))
}

/// Returns the values and the open questions of a thread; empty for a new one.
async fn stand(
    hub: &Hub,
    user: &User,
    thread: &str,
) -> Result<(Map<String, serde_json::Value>, Vec<Question>), ApiError> {
    let Some(row) = hub.threads.get(thread) else { return Ok(Default::default()) };
    if !user.owns(row.owner.as_ref()) {
        return Err(ApiError::not_found("thread", thread));
    }
    let Ok(handle) = hub.thread(&row, RunOptions::new()) else { return Ok(Default::default()) };
    let snapshot = handle.state().await?;
    if snapshot.checkpoint.is_none() {
        return Ok(Default::default());
    }
    let open = snapshot
        .interrupts()
        .map(|asked| Question { id: asked.id.to_string(), question: asked.question.clone() })
        .collect();
    Ok((snapshot.state.values()?, open))
}

/// Returns the frames of a run to its end. The stream has `hangup`, which acts when it is dropped.
fn follow(
    live: Arc<LiveRun>,
    projection: Projection,
    heartbeat: std::time::Duration,
    hangup: Hangup,
) -> impl Stream<Item = Bytes> + Send {
    let reader = LogReader::new(live.clone());
    stream::unfold(Some((live, reader, projection, hangup)), move |state| async move {
        let (live, mut reader, mut projection, hangup) = state?;
        loop {
            let end = match tokio::time::timeout(heartbeat, reader.next()).await {
                Err(_) => return Some((KEEP_ALIVE, Some((live, reader, projection, hangup)))),
                Ok(Read::Event(entry)) => {
                    let chunk = projection.event(&entry.event);
                    if chunk.is_empty() {
                        continue;
                    }
                    return Some((chunk, Some((live, reader, projection, hangup))));
                }
                Ok(Read::Lost) => End::Failed {
                    code: "STREAM_LOST".to_owned(),
                    message: "events are lost, because they were not read in time; the run goes on"
                        .to_owned(),
                },
                Ok(Read::End) => end_of(&live).await,
            };
            return Some((projection.end(end), None));
        }
    })
}

async fn end_of(live: &LiveRun) -> End {
    let end = live.ended().await;
    match end.failure {
        Some(failure) => End::Failed { code: failure.name, message: failure.message },
        None if live.stopped().is_some() => End::Cancelled,
        None if !end.interrupts.is_empty() => End::Interrupted(end.interrupts),
        None if end.state.is_none() => End::Failed {
            code: "SERVER_STOPPED".to_owned(),
            message: "the server stops; the run continues when it starts again".to_owned(),
        },
        None => End::Success,
    }
}
