//! A run whose requests to its checkpointer are journaled.
//!
//! ```text
//!  driver ── request ──▶ RunObjects ── channel ──▶ serve_run ── entry ──▶ journal
//!     ▲                                               │
//!     └───────────────────── reply ◀── storage::serve ┘
//! ```
//! The driver is a client of the handler, which is the storage of its thread. An entry of the journal is a request itself, so a replay
//! serves the same requests to the same entries, without a driver; then the driver begins, and resumes the thread.
//!
//! Start at [`serve_run`].

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_checkpoint::{CheckpointError, CheckpointMeta, Checkpointer, Lease, ThreadId};
use tokio::sync::{mpsc, oneshot};

use crate::{
    keys::is_beside,
    kv::{Kv, Memory},
    request::{Reply, Request},
    requests::{Names, Objects, Requests},
    storage::serve,
};

/// The journal of an invocation, with the entries of its object.
pub(crate) trait Journal: Kv {
    /// Returns the next entry of an earlier attempt. Without one, polls `make` and appends its result, unless it is [`Drained`]. If it
    /// takes long, or the invocation is cancelled meanwhile, drops it and appends [`NOTHING`].
    fn entry<'a>(
        &'a mut self,
        make: BoxFuture<'a, Result<Vec<u8>, Drained>>,
    ) -> BoxFuture<'a, Result<Bytes, AttemptError>>;

    /// Serves a request about a thread of the object beside.
    fn serve_beside(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, CheckpointError>>;
}

/// The end of an attempt whose run was stopped to go on elsewhere.
#[derive(Debug, thiserror::Error)]
#[error("the run was drained; another worker continues it")]
pub(crate) struct Drained;

/// The end of an attempt that is not the end of its run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttemptError {
    #[error(transparent)]
    Drained(#[from] Drained),
    /// The journal ended the invocation, or was written by a newer version.
    #[error("{0}")]
    Journal(String),
}

/// The end of a run: its outcome, or the error with its causes.
pub(crate) type End = Result<Value, String>;

/// An entry of the journal. Stable format.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Entry {
    Request(Request),
    Nothing,
    Ended(Value),
    Failed(String),
}

/// The entry without a request.
pub(crate) const NOTHING: &[u8] = b"\"nothing\"";

/// The longest wait for a request before its entry begins.
const PROMPT: Duration = Duration::from_millis(50);

/// A request of the driver, or its end.
struct Sent {
    entry: Entry,
    text: Vec<u8>,
    reply: Option<oneshot::Sender<Result<Reply, CheckpointError>>>,
}

impl Sent {
    fn of(entry: Entry) -> Self {
        let text = serde_json::to_vec(&entry).expect("an outcome is JSON");
        Self { entry, text, reply: None }
    }
}

/// Runs a thread until its end, and serves its requests.
///
/// `begin` is called once the journal of earlier attempts is served. The future that it returns is polled here, and dropped with
/// this one; it is `None` at the end of a drained run.
pub(crate) async fn serve_run<J: Journal>(
    journal: &mut J,
    place: &(dyn std::fmt::Display + Sync),
    begin: impl FnOnce(Arc<dyn Checkpointer>) -> BoxFuture<'static, Option<End>> + Send,
) -> Result<End, AttemptError> {
    let (sender, mut requests) = mpsc::unbounded_channel::<Sent>();
    let mut begin = Some(begin);
    let mut driver: Option<BoxFuture<'static, Drained>> = None;
    let mut memory = Memory::default();
    loop {
        // Once the replay is over, the next request is usually there before its entry begins: the entry and its result are one message.
        // A cancellation is noticed within an entry only, as in a replay.
        let mut sent = match &mut driver {
            Some(driver) => match tokio::time::timeout(PROMPT, next(driver, &mut requests)).await {
                Ok(sent) => Some(sent?),
                Err(_) => None,
            },
            None => None,
        };
        let mut live = None;
        let make = async {
            let sent = match sent.take() {
                Some(sent) => sent,
                None => {
                    if let Some(begin) = begin.take() {
                        let objects = Arc::new(RunObjects(sender.clone()));
                        let run = driven(begin(Arc::new(Requests(objects))), sender.clone());
                        driver = Some(Box::pin(run));
                    }
                    next(driver.as_mut().expect("it has begun"), &mut requests).await?
                }
            };
            live = Some((sent.entry, sent.reply));
            Ok(sent.text)
        };
        let text = journal.entry(Box::pin(make)).await?;
        let (entry, reply) = match live {
            Some(live) => live,
            None => {
                let entry = serde_json::from_slice(&text).map_err(|cause| {
                    AttemptError::Journal(format!("a newer version of superstep began this run: {cause}"))
                })?;
                (entry, None)
            }
        };
        let request = match entry {
            Entry::Request(request) => request,
            Entry::Nothing => continue,
            Entry::Ended(outcome) => return Ok(Ok(outcome)),
            Entry::Failed(error) => return Ok(Err(error)),
        };
        let served = if is_beside(request.thread()) {
            journal.serve_beside(request).await
        } else {
            serve(journal, &mut memory, place, request).await
        };
        if let Some(reply) = reply {
            // The driver may have dropped its request.
            let _ = reply.send(served);
        }
    }
}

/// Polls the driver until its next request.
async fn next(
    driver: &mut BoxFuture<'static, Drained>,
    requests: &mut mpsc::UnboundedReceiver<Sent>,
) -> Result<Sent, Drained> {
    tokio::select! {
        biased;
        drained = driver => Err(drained),
        sent = requests.recv() => Ok(sent.expect("the handler has a sender")),
    }
}

/// Runs the driver, and sends its end. Ends only if the run was drained.
async fn driven(run: BoxFuture<'static, Option<End>>, sender: mpsc::UnboundedSender<Sent>) -> Drained {
    let entry = match run.await {
        None => return Drained,
        Some(Ok(outcome)) => Entry::Ended(outcome),
        Some(Err(error)) => Entry::Failed(error),
    };
    let _ = sender.send(Sent::of(entry));
    std::future::pending().await
}

/// The objects of a run: its thread and those below it, which the handler serves.
struct RunObjects(mpsc::UnboundedSender<Sent>);

impl Objects for RunObjects {
    fn serve(&self, request: Request) -> BoxFuture<'static, Result<Reply, CheckpointError>> {
        let thread = request.thread().clone();
        let (reply, replied) = oneshot::channel();
        let sent = request.encode().map(|text| {
            let text = [b"{\"request\":", &*text, b"}"].concat();
            let _ = self.0.send(Sent { entry: Entry::Request(request), text, reply: Some(reply) });
        });
        Box::pin(async move {
            sent?;
            // The handler drops the driver with everything else.
            replied.await.map_err(|_| CheckpointError::LeaseLost { thread })?
        })
    }

    // The handler of an object runs once at a time.
    fn lease(&self, _: &ThreadId) -> BoxFuture<'static, Result<Lease, CheckpointError>> {
        Box::pin(std::future::ready(Ok(Lease::new(()))))
    }

    fn has_writer(&self, _: &ThreadId) -> BoxFuture<'static, Result<bool, CheckpointError>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    fn copy(&self, _: &ThreadId, _: &ThreadId) -> BoxFuture<'static, Result<(), CheckpointError>> {
        Box::pin(std::future::ready(Err(other_threads())))
    }

    // A layer that compares a new thread with those of its database finds none.
    fn names(&self) -> BoxFuture<'static, Result<Names, CheckpointError>> {
        Box::pin(std::future::ready(Ok(Names::default())))
    }

    fn heads(&self) -> BoxFuture<'static, Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError>> {
        Box::pin(std::future::ready(Err(other_threads())))
    }
}

fn other_threads() -> CheckpointError {
    let what = "a run on Restate reaches its own thread only; use `Restate` for others".to_owned();
    CheckpointError::Storage { what, source: None }
}

#[cfg(test)]
mod memory;
#[cfg(test)]
mod tests;
