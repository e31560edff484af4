//! The stream of events of a page: of one thread, or of the list of them.
//!
//! | event | data |
//! |---|---|
//! | `head` | the thread has another head, status or pending nodes: `HeadEvent`. The first one is its present state |
//! | `message` | a piece of a message: `MessageEvent`, of runs of this server |
//! | `lagged` | events of a run are lost, and the page reads the thread again |
//! | `threads` | the list is another one |
//!
//! Runs of other processes are noticed by what they store. A page that connects again reads what is newer than it has, so events
//! need no ids.
//!
//! Start at [`follow`].

use std::{pin::pin, sync::Arc, time::Duration};

use axum::{body::Bytes, extract::State, response::Response};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::{
    sync::{broadcast::error::RecvError, mpsc},
    time::{Instant, MissedTickBehavior, interval, sleep},
};

use super::{
    Studio,
    types::{HeadEvent, MessageEvent},
};
use crate::{
    api::{extract::Query, streams::events},
    error::ApiError,
    events::{
        event::{Kind, MessagePart, PartKind, RunEvent},
        sse::{Frame, HEARTBEAT},
    },
    runs::{
        live::LiveRun,
        log::{LogReader, Read},
    },
};

/// The time between two reads of a thread whose storage does not wake its followers.
const THREAD: Duration = Duration::from_millis(250);

/// The shortest time between two reads of the list of threads.
const LIST: Duration = Duration::from_secs(1);

/// The number of frames that a slow page may be behind.
const FRAMES: usize = 64;

pub(super) async fn follow(State(studio): State<Arc<Studio>>, query: Query) -> Result<Response, ApiError> {
    let (frames, received) = mpsc::channel(FRAMES);
    let watcher = Watcher { studio: studio.clone(), frames };
    match query.get("thread").map(str::to_owned) {
        Some(thread) => studio.hub.spawn(watcher.thread(thread)),
        None => studio.hub.spawn(watcher.list()),
    }
    let frames = stream::unfold(received, |mut received| async move {
        let frame: Bytes = received.recv().await?;
        Some((frame, received))
    });
    Ok(events(frames))
}

/// The sender of one page's events. It ends with the page's connection, and when the server stops.
struct Watcher {
    studio: Arc<Studio>,
    frames: mpsc::Sender<Bytes>,
}

/// The page has hung up.
struct Gone;

impl Watcher {
    async fn thread(self, thread: String) {
        let hub = self.studio.hub.clone();
        let mut begun = hub.begun.subscribe();
        let mut reader =
            hub.live_of(&thread).into_iter().find(|run| !run.log.has_ended()).map(LogReader::new);
        let changes = hub.checkpointer.changes(&Studio::thread_id(&thread));
        let has_changes = changes.is_some();
        let mut changes = changes.unwrap_or_else(|| stream::pending().boxed());
        let mut ticks = interval(if has_changes { THREAD * 20 } else { THREAD });
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heartbeat = interval(hub.limits.heartbeat);
        let mut last = Value::Null;
        loop {
            let sent = tokio::select! {
                () = hub.stopping.cancelled() => return,
                () = self.frames.closed() => return,
                _ = ticks.tick() => self.head(&thread, &mut last).await,
                Some(()) = changes.next() => self.head(&thread, &mut last).await,
                _ = heartbeat.tick() => self.send(HEARTBEAT).await,
                run = begun.recv() => match run {
                    Ok(run) if run.about.thread == thread => {
                        // The log of the last run is complete when the next one begins.
                        reader = Some(LogReader::new(run));
                        self.head(&thread, &mut last).await
                    }
                    Ok(_) => Ok(()),
                    Err(RecvError::Lagged(_)) => self.frame("lagged", json!({})).await,
                    Err(RecvError::Closed) => return,
                },
                read = next(&mut reader) => match read {
                    Read::Event(entry) => match &entry.event {
                        RunEvent { path, kind: Kind::Message(part) } if path.is_root() => {
                            self.frame("message", json!(message(part))).await
                        }
                        _ => Ok(()),
                    },
                    Read::Lost => {
                        reader = None;
                        self.frame("lagged", json!({})).await
                    }
                    Read::End => {
                        reader = None;
                        self.head(&thread, &mut last).await
                    }
                },
            };
            if sent.is_err() {
                return;
            }
        }
    }

    async fn list(self) {
        let hub = self.studio.hub.clone();
        let mut heartbeat = interval(hub.limits.heartbeat);
        let mut wait = Duration::ZERO;
        let mut last = Value::Null;
        loop {
            let mut due = pin!(sleep(wait));
            let sent = loop {
                tokio::select! {
                    () = hub.stopping.cancelled() => return,
                    () = self.frames.closed() => return,
                    _ = heartbeat.tick() => if self.send(HEARTBEAT).await.is_err() { return },
                    () = &mut due => break self.threads(&mut last),
                }
            };
            let began = Instant::now();
            if sent.await.is_err() {
                return;
            }
            // Many threads are read less often.
            wait = LIST.max(began.elapsed() * 10);
        }
    }

    async fn head(&self, thread: &str, last: &mut Value) -> Result<(), Gone> {
        let Ok(head) = self.studio.head(thread).await else { return Ok(()) };
        let event = HeadEvent {
            thread: thread.to_owned(),
            head: head.meta.as_ref().map_or(0, |meta| meta.id.0),
            status: head.status,
            next: head.next(),
            waits: head.waits,
        };
        self.if_new("head", json!(event), last).await
    }

    async fn threads(&self, last: &mut Value) -> Result<(), Gone> {
        let Ok(heads) = self.studio.heads().await else { return Ok(()) };
        let heads = heads
            .iter()
            .map(|head| json!([head.id, head.meta.as_ref().map(|meta| meta.id), head.status, head.waits]));
        let now = Value::from_iter(heads);
        if now != *last {
            let is_first = last.is_null();
            *last = now;
            if !is_first {
                return self.frame("threads", json!({})).await;
            }
        }
        Ok(())
    }

    async fn if_new(&self, name: &str, data: Value, last: &mut Value) -> Result<(), Gone> {
        if data == *last {
            return Ok(());
        }
        last.clone_from(&data);
        self.frame(name, data).await
    }

    async fn frame(&self, name: &str, data: Value) -> Result<(), Gone> {
        self.send(Frame::new(name, data).encode(None)).await
    }

    async fn send(&self, frame: Bytes) -> Result<(), Gone> {
        self.frames.send(frame).await.map_err(|_| Gone)
    }
}

async fn next(reader: &mut Option<LogReader<Arc<LiveRun>>>) -> Read {
    match reader {
        Some(reader) => reader.next().await,
        None => std::future::pending().await,
    }
}

fn message(part: &MessagePart) -> MessageEvent {
    let is_chunk = part.kind == PartKind::Chunk;
    let (reasoning, text) = if is_chunk { part.texts() } else { ("", "") };
    MessageEvent {
        id: part.id.clone(),
        node: part.node.clone(),
        text: text.to_owned(),
        reasoning: reasoning.to_owned(),
        ended: !is_chunk,
    }
}
