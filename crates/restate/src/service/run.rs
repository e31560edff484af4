//! The handlers that run graphs.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use restate_sdk::errors::{HandlerError, TerminalError};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use superstep_checkpoint::{CheckpointError, Checkpointer, ThreadId};

use crate::{
    journaled::{AttemptError, Drained, End, serve_run},
    keys::{NAME, RUNNING},
    kv::Kv as _,
    service::{
        Host,
        context::Handler,
        graph::{self, Attempt, Stop, Work},
        read, served, store,
    },
    wire::Running,
};

/// The input of a handler that runs a graph; the name of the handler says what it does.
#[derive(Debug, Deserialize)]
struct Call {
    graph: String,
    /// The name of the thread, if it is not the key of the object.
    thread: Option<ThreadId>,
    #[serde(flatten)]
    work: Map<String, Value>,
}

/// The code of the error of a run on a thread that a program outside has leased.
const LOCKED: u16 = 423;

/// Runs a graph until its end.
pub(super) async fn run(
    host: &Arc<Host>,
    handler: &mut Handler,
    name: &str,
    input: &Bytes,
) -> Result<Bytes, HandlerError> {
    let turn = host.runs.token();
    if host.drain.requested().is_some() {
        drop(turn);
        // Restate prefers this connection, and would again.
        host.leaves.cancelled().await;
        return Err(AttemptError::Drained(Drained).into());
    }
    let Call { graph, thread, work } = read(input)?;
    let work: Work = read(json!({ name: work }).to_string().as_bytes())?;
    let thread = match thread {
        Some(thread) => thread,
        None => thread_of(handler).await.map_err(storage)?,
    };
    if crate::names::object_key(&thread) != handler.key {
        return Err(TerminalError::new_with_code(400, "the thread is not that of this object").into());
    }
    if let Some(leased) = store::leased(handler).await.map_err(storage)?
        && leased.until_ms > handler.now_ms().await.map_err(storage)?
    {
        let busy = CheckpointError::Busy { thread };
        return Err(TerminalError::new_with_code(LOCKED, busy.to_string()).into());
    }
    let running = Running { invocation: handler.invocation.clone(), graph: graph.clone() };
    let running = serde_json::to_vec(&running).expect("a name is JSON");
    handler.set(RUNNING.to_owned(), Some(running.into()));
    store::set_name(handler, &thread);
    // An attempt that waits here has its turn later.
    let _slot = host.slots.acquire().await.expect("the permits are never closed");
    if host.drain.requested().is_some() {
        return Err(AttemptError::Drained(Drained).into());
    }
    let begin = begin(host.clone(), graph, thread, work, handler);
    let end = serve_run(handler, &host.names.thread.clone(), begin).await;
    match end {
        Ok(end) => {
            handler.set(RUNNING.to_owned(), None);
            ended(end)
        }
        // The attempt ends, and the run continues with another one.
        Err(error @ (AttemptError::Drained(_) | AttemptError::Journal(_))) => Err(error.into()),
    }
}

fn begin(
    host: Arc<Host>,
    graph: String,
    thread: ThreadId,
    work: Work,
    handler: &Handler,
) -> impl FnOnce(Arc<dyn Checkpointer>) -> BoxFuture<'static, Option<End>> + Send + use<> {
    let stop = Stop { cancel: handler.cancel.clone(), drain: host.drain.clone() };
    let (work, progress) = (work.of_input(&handler.invocation), handler.progress.clone());
    move |threads| {
        Box::pin(async move {
            let Some(runs) = host.graphs.get(&graph) else {
                let known: Vec<_> = host.graphs.keys().map(|name| format!("`{name}`")).collect();
                let known = known.join(", ");
                return Some(Err(format!("this service has no graph `{graph}`; it has {known}")));
            };
            if let Some(admit) = &host.admit
                && let Err(reason) = admit(thread.clone()).await
            {
                return Some(Err(format!("the thread may not run: {reason}")));
            }
            let threads = match &host.layer {
                Some(layer) => layer(threads),
                None => threads,
            };
            let (has_begun, is_stored) = (progress.has_begun(), progress.has_committed());
            graph::work(
                &**runs,
                host.options.clone(),
                threads,
                thread,
                Attempt { work, has_begun, is_stored, stop },
            )
            .await
        })
    }
}

/// Returns the thread of an object.
async fn thread_of(handler: &mut Handler) -> Result<ThreadId, CheckpointError> {
    if !handler.key.starts_with('#') {
        return Ok(handler.key.as_str().into());
    }
    match handler.get_all(vec![NAME.to_owned()]).await?.pop().flatten() {
        Some(name) => Ok(String::from_utf8_lossy(&name).into_owned().into()),
        None => Err(CheckpointError::Storage {
            what: "the name of a new thread whose object has a hash as its key must be in the input, as `thread`"
                .to_owned(),
            source: None,
        }),
    }
}

fn ended(end: End) -> Result<Bytes, HandlerError> {
    match end {
        Ok(outcome) => Ok(serde_json::to_vec(&outcome).expect("an outcome is JSON").into()),
        Err(error) => Err(TerminalError::new(error).into()),
    }
}

fn storage(error: CheckpointError) -> HandlerError {
    served(Err(error)).expect_err("an error remains one")
}
