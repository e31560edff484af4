//! Streams of runs: from the request that begins one, by joining one, and of all runs of a thread.
//!
//! Start at [`of_run`].

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use axum::{
    body::{Body as Bytes, Bytes as Chunk},
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, header},
    response::Response,
};
use futures::{Stream, stream};
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, error::RecvError};

use super::extract::{Query, locate};
use crate::{
    error::ApiError,
    events::{
        event::{Kind, RunEvent},
        modes::Modes,
        projection::RunsProjection,
        sse::{Frame, HEARTBEAT},
    },
    rows::{run::Stop, thread::ThreadKey},
    runs::{
        hub::Hub,
        live::LiveRun,
        log::{Entry, LogReader, Read},
    },
    wire::time,
};

/// The number of ids for one event, which is fewer frames.
const FRAMES: u64 = 4_096;

/// Returns the number that is greater than those of all frames of the event with this number, and of none after it.
fn last_frame(event: u64) -> u64 {
    event * FRAMES + FRAMES - 1
}

/// The part of a run that a stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// All frames.
    Begin,
    /// The frames after the one with this number.
    After(u64),
    /// The frames that are still to come.
    Now,
}

/// Cancels a run when its client hangs up.
pub(super) struct Hangup {
    hub: Arc<Hub>,
    run: String,
}

impl Hangup {
    pub(super) fn new(hub: &Arc<Hub>, live: &LiveRun) -> Self {
        Self { hub: hub.clone(), run: live.about.run.clone() }
    }
}

impl Drop for Hangup {
    fn drop(&mut self) {
        // No effect on a run that has ended.
        let reason = "client disconnected from the run stream (on_disconnect=cancel)";
        self.hub.stop_run(&self.run, Stop::Interrupt, reason);
    }
}

impl From {
    /// Reads the header `Last-Event-ID`.
    ///
    /// # Errors
    /// 422 for an id that is not of this server.
    fn of_headers(headers: &HeaderMap) -> Result<Self, ApiError> {
        let Some(id) = headers.get("last-event-id") else { return Ok(Self::Now) };
        let wrong = || ApiError::invalid("Last-Event-ID: expected the id of an event of this stream, or -1");
        match id.to_str().map_err(|_| wrong())?.trim() {
            "" => Ok(Self::Now),
            "-1" | "-" | "0" => Ok(Self::Begin),
            id => {
                let (_, number) = id.rsplit_once('-').ok_or_else(wrong)?;
                number.parse().map(Self::After).map_err(|_| wrong())
            }
        }
    }
}

/// Reads the modes of a stream that is joined: a list in JSON, repeated values, or none for those of the run.
fn modes_of(query: &Query) -> Result<Option<Modes>, ApiError> {
    let names: Vec<&str> = query.all("stream_mode").collect();
    match &*names {
        [] => Ok(None),
        [one] if one.starts_with('[') => {
            let names: Value =
                serde_json::from_str(one).map_err(|_| ApiError::invalid("stream_mode: invalid list"))?;
            let is_empty = names.as_array().is_some_and(Vec::is_empty);
            if is_empty { Ok(None) } else { Modes::read(&names).map(Some) }
        }
        names => Modes::of_names(names.iter().copied()).map(Some),
    }
}

pub(super) async fn join(
    State(hub): State<Arc<Hub>>,
    Path((thread, run)): Path<(String, String)>,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let (modes, from) = (modes_of(&query)?, From::of_headers(&headers)?);
    let live = match hub.live(&run).filter(|live| live.about.thread == thread) {
        Some(live) => Some(live),
        None => hub.logged_run(&hub.run_row(&thread, &run)?).await?,
    };
    let Some(live) = live else { return Ok(respond(&thread, &run, stream::empty())) };
    let hangup = query.flag("cancel_on_disconnect")?.then(|| Hangup::new(&hub, &live));
    Ok(of_run(&hub, live, Part { modes, namespaces: query.namespaces(), from }, hangup))
}

pub(super) async fn join_stateless(
    State(hub): State<Arc<Hub>>,
    Path(run): Path<String>,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let live = hub.live(&run).ok_or_else(|| ApiError::not_found("run", &run))?;
    let thread = live.about.thread.clone();
    join(State(hub), Path((thread, run)), query, headers).await
}

/// The part of a run that a client wants.
pub(super) struct Part {
    /// The modes; `None` for those of the run.
    pub(super) modes: Option<Modes>,
    pub(super) namespaces: Vec<Vec<String>>,
    pub(super) from: From,
}

/// Returns the stream of a run.
pub(super) fn of_run(hub: &Arc<Hub>, live: Arc<LiveRun>, part: Part, hangup: Option<Hangup>) -> Response {
    let Part { modes, namespaces, from } = part;
    let (thread, run) = (live.about.thread.clone(), live.about.run.clone());
    let modes = modes.unwrap_or_else(|| live.modes.clone());
    let with_ids = live.resumable;
    let follower = Follower::new(live, modes, namespaces, from, with_ids);
    let heartbeat = hub.limits.heartbeat;
    let frames = stream::unfold((follower, hangup), move |(mut follower, hangup)| async move {
        let next = match tokio::time::timeout(heartbeat, follower.next()).await {
            Err(_) => HEARTBEAT,
            Ok(Some(chunk)) => chunk,
            Ok(None) => return None,
        };
        Some((next, (follower, hangup)))
    });
    respond(&thread, &run, frames)
}

fn respond(thread: &str, run: &str, frames: impl Stream<Item = Chunk> + Send + 'static) -> Response {
    let mut response = events(frames);
    locate(&mut response, thread, run, Some("stream"));
    response
}

/// Returns an answer of server-sent events.
pub(crate) fn events(frames: impl Stream<Item = Chunk> + Send + 'static) -> Response {
    use futures::StreamExt as _;
    let mut response = Response::new(Bytes::from_stream(frames.map(Ok::<_, std::convert::Infallible>)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A reader of a run's log that makes frames for one client.
struct Follower {
    reader: LogReader<Arc<LiveRun>>,
    projection: RunsProjection,
    /// Frames up to this number are not sent.
    after: u64,
    with_ids: bool,
    ready: VecDeque<Chunk>,
    has_sent: bool,
    is_over: bool,
}

impl Follower {
    fn new(
        live: Arc<LiveRun>,
        modes: Modes,
        namespaces: Vec<Vec<String>>,
        from: From,
        with_ids: bool,
    ) -> Self {
        let after = match from {
            From::Begin => 0,
            From::After(number) => number,
            From::Now => live.log.newest().map_or(0, last_frame),
        };
        let mut ready = VecDeque::new();
        let is_over = after > 0 && !live.log.has_all_after(after / FRAMES);
        if is_over {
            ready.push_back(lost());
        }
        let projection = RunsProjection::new(modes, live.subgraphs, live.about.clone()).within(namespaces);
        Self { reader: LogReader::new(live), projection, after, with_ids, ready, has_sent: false, is_over }
    }

    /// Returns the next frame, and waits for it; `None` at the end of the run.
    async fn next(&mut self) -> Option<Chunk> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            if self.is_over {
                return None;
            }
            match self.reader.next().await {
                Read::Event(entry) => self.project(&entry),
                Read::End => {
                    self.is_over = true;
                    if self.has_sent {
                        self.ready.extend(self.projection.end().iter().map(|frame| frame.encode(None)));
                    }
                }
                Read::Lost => {
                    self.is_over = true;
                    self.ready.push_back(lost());
                }
            }
        }
    }

    fn project(&mut self, entry: &Entry) {
        for (number, frame) in (entry.number * FRAMES..).zip(self.projection.project(&entry.event)) {
            if number > self.after {
                let id = self.with_ids.then(|| format!("{}-{number}", entry.at_ms));
                self.ready.push_back(frame.encode(id.as_deref()));
                self.has_sent = true;
            }
        }
    }
}

/// The last frame of a stream whose client was too slow.
fn lost() -> Chunk {
    let message = "this stream was read too slowly, and events of it are lost; the run goes on, read the state of the thread";
    let kind = Kind::Failed { name: "StreamLagged".to_owned(), message: message.to_owned() };
    let mut projection =
        RunsProjection::new(Modes::default(), false, crate::events::projection::About::default());
    let frames = projection.project(&RunEvent::root(kind));
    frames.iter().map(|frame| frame.encode(None)).next().unwrap_or_default()
}

/// Follows all runs of a thread, those to come too.
pub(super) async fn follow_thread(
    State(hub): State<Arc<Hub>>,
    Path(thread): Path<String>,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let key = hub.thread_row(&thread)?.key();
    let mut modes: Vec<&str> = query.all("stream_modes").chain(query.all("stream_mode")).collect();
    modes.dedup();
    if modes.iter().any(|mode| *mode != "run_modes") {
        return Err(ApiError::invalid("stream_mode: a thread streams `run_modes` only"));
    }
    let from = From::of_headers(&headers)?;
    let begun = hub.begun.subscribe();
    // What was queued between the two is in both.
    let waiting = if from == From::Now { hub.live_of(&thread) } else { hub.logs_of(&thread).await? };
    let waiting = VecDeque::from(waiting);
    let known = waiting.iter().map(|live| live.about.run.clone()).collect();
    let follower =
        ThreadFollower { hub: hub.clone(), thread: key, from, begun, waiting, known, current: None };
    let heartbeat = hub.limits.heartbeat;
    let frames = stream::unfold(follower, move |mut follower| async move {
        let next = match tokio::time::timeout(heartbeat, follower.next()).await {
            Err(_) => HEARTBEAT,
            Ok(next) => next?,
        };
        Some((next, follower))
    });
    Ok(events(frames))
}

/// A reader of all runs of a thread.
struct ThreadFollower {
    hub: Arc<Hub>,
    thread: ThreadKey,
    from: From,
    begun: broadcast::Receiver<Arc<LiveRun>>,
    waiting: VecDeque<Arc<LiveRun>>,
    /// The runs that were there at the beginning.
    known: BTreeSet<String>,
    current: Option<(Arc<LiveRun>, Follower)>,
}

impl ThreadFollower {
    fn is_new(&self, live: &LiveRun) -> bool {
        !self.known.contains(&live.about.run)
    }

    /// Returns the next frame, and waits for it; `None` when the server stops.
    async fn next(&mut self) -> Option<Chunk> {
        loop {
            if let Some((live, follower)) = &mut self.current {
                if let Some(chunk) = follower.next().await {
                    return Some(chunk);
                }
                let done = json!({ "status": "run_done", "run_id": live.about.run });
                let last = live.log.newest().map(last_frame);
                let is_known = last.is_some_and(|last| last <= follower.after);
                self.current = None;
                if is_known {
                    continue;
                }
                let id = last.map(|last| format!("{}-{last}", time::now_us() / 1_000));
                return Some(Frame::new("metadata", done).encode(id.as_deref()));
            }
            let (live, from) = match self.waiting.pop_front() {
                // An ended run has nothing that is still to come.
                Some(live) if self.from == From::Now && live.log.has_ended() => continue,
                Some(live) => (live, self.from),
                None => tokio::select! {
                    () = self.hub.stopping.cancelled() => return None,
                    begun = self.begun.recv() => match begun {
                        Ok(live) if live.about.key() == self.thread && self.is_new(&live) => {
                            (live, if self.from == From::Now { From::Begin } else { self.from })
                        }
                        Ok(_) => continue,
                        // Only runs of other threads, most likely; a client that misses one reads the state.
                        Err(RecvError::Lagged(_)) => continue,
                        Err(RecvError::Closed) => return None,
                    },
                },
            };
            let follower = Follower::new(live.clone(), live.modes.clone(), Vec::new(), from, true);
            self.current = Some((live, follower));
        }
    }
}
