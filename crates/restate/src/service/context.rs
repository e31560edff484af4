//! The context of a handler: the only code that calls the SDK within a handler.
//!
//! A result of the SDK is journaled, or comes from the journal of an earlier attempt. An await of the SDK that does not return ends the
//! attempt.
//!
//! Start at [`Handler`].

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{
    FutureExt as _,
    future::{BoxFuture, Fuse},
};
use restate_sdk::{
    context::{RequestTarget, RunFuture as _},
    endpoint::ContextInternal,
    errors::{HandlerError, TerminalError},
};
use superstep_checkpoint::{CheckpointError, Clock as _, SystemClock};
use tokio_util::sync::CancellationToken;

use crate::{
    journaled::{AttemptError, Drained, Journal, NOTHING},
    keys::HEAD,
    kv::Kv,
    names::Names,
    remote::{Entries, Remote, read},
    request::{Reply, Request},
    wire::{Write, entries_of, keys_of, values_of, written_of},
};

/// The name of an entry, which a replay compares.
const REQUEST: &str = "request";

/// The invocation of a handler.
pub(super) struct Handler {
    context: ContextInternal,
    names: Names,
    /// The key of the object.
    pub(super) key: String,
    /// The id of the invocation.
    pub(super) invocation: String,
    /// Cancelled with the invocation, which is not ended by that.
    pub(super) cancel: CancellationToken,
    /// The progress of the invocation.
    pub(super) progress: Arc<Progress>,
    /// A signal that no one sends: a wait for it ends with a cancellation, once.
    signal: Fuse<Signal>,
    /// The number of calls of other objects.
    calls: u64,
}

type Signal = Pin<Box<dyn Future<Output = Result<Bytes, TerminalError>> + Send>>;

/// The name of that signal.
const STOP: &str = "stop";

/// The longest time without an entry, below the limit after which Restate ends the attempt.
const LONGEST_SILENCE: Duration = Duration::from_secs(6 * 60 * 60);

/// The progress of an invocation, with that of its earlier attempts.
#[derive(Debug, Default)]
pub(super) struct Progress {
    entries: AtomicUsize,
    commits: AtomicUsize,
}

impl Progress {
    /// Returns whether it has served a request.
    pub(super) fn has_begun(&self) -> bool {
        self.entries.load(Ordering::Acquire) > 0
    }

    /// Returns whether it has served a commit of the root thread.
    pub(super) fn has_committed(&self) -> bool {
        self.commits.load(Ordering::Acquire) > 0
    }
}

impl Handler {
    /// Begins the handler, and returns its input.
    pub(super) async fn begin(context: ContextInternal, names: Names) -> (Self, Bytes) {
        let (input, metadata) = context.input::<Bytes>().await;
        let cancel = CancellationToken::new();
        let signal: Signal = Box::pin(context.signal(STOP));
        let handler = Self {
            context,
            names,
            key: metadata.key,
            invocation: metadata.invocation_id,
            cancel,
            progress: Arc::default(),
            signal: signal.fuse(),
            calls: 0,
        };
        (handler, input)
    }

    /// Ends the invocation.
    pub(super) fn end(self, result: Result<Bytes, HandlerError>) {
        self.context.handle_handler_result(result);
        self.context.end();
    }

    /// Returns the time at which the handler was here first, in milliseconds.
    pub(super) async fn now_ms(&mut self) -> Result<i64, CheckpointError> {
        loop {
            let now = self.context.run(|| async { Ok(SystemClock.now_ms()) }).name("now");
            match now.await {
                Err(error) if self.is_cancellation(&error) => {}
                now => return now.map_err(failed),
            }
        }
    }

    /// Waits.
    pub(super) async fn sleep(&mut self, time: Duration) {
        // An early end of the pause does no harm.
        if let Err(error) = self.context.sleep(time).await {
            self.is_cancellation(&error);
        }
    }

    /// Cancels another invocation.
    pub(super) fn cancel_invocation(&self, id: &str) {
        self.context.cancel_invocation(id);
    }

    /// Calls a handler of an object. A call that writes is executed once, even if the cancellation of this invocation interrupts it.
    pub(super) async fn call(
        &mut self,
        object: &str,
        key: &str,
        handler: &str,
        body: Vec<u8>,
    ) -> Result<Bytes, CheckpointError> {
        let body = Bytes::from(body);
        self.calls += 1;
        loop {
            let target = RequestTarget::object(object, key, handler);
            let id = format!("{}.{}", self.invocation, self.calls);
            let call =
                self.context.call::<Bytes, Bytes>(target, Some(id), None, None, Vec::new(), body.clone());
            match call.await {
                Err(error) if self.is_cancellation(&error) => {}
                // The cancellation has reached the call before it began.
                Err(error) if error.code() == CANCELLED => self.calls += 1,
                reply => return reply.map_err(failed),
            }
        }
    }

    /// Returns whether the invocation was cancelled. The SDK reports that once, instead of the result that was waited for.
    fn is_cancellation(&self, error: &TerminalError) -> bool {
        // The text of a cancelled call is the server's: "canceled".
        let is = error.code() == CANCELLED && error.message() == "cancelled";
        if is {
            self.cancel.cancel();
        }
        is
    }
}

/// The code of the error of something that was cancelled.
const CANCELLED: u16 = 409;

fn failed(error: TerminalError) -> CheckpointError {
    CheckpointError::Storage { what: format!("Restate failed: {}", error.message()), source: None }
}

impl Kv for Handler {
    fn get_all(&mut self, keys: Vec<String>) -> BoxFuture<'_, Result<Vec<Option<Bytes>>, CheckpointError>> {
        Box::pin(async move {
            let context = &self.context;
            // All requests are sent before the first value is waited for. Values are waited for in order, which the SDK needs.
            let requests: Vec<_> = keys.iter().map(|key| context.get::<Bytes>(key)).collect();
            let mut values = Vec::with_capacity(keys.len());
            for (key, request) in keys.iter().zip(requests) {
                let mut value = request.await;
                while value.as_ref().is_err_and(|error| self.is_cancellation(error)) {
                    value = context.get::<Bytes>(key).await;
                }
                values.push(value.map_err(failed)?);
            }
            Ok(values)
        })
    }

    fn keys(&mut self) -> BoxFuture<'_, Result<Vec<String>, CheckpointError>> {
        Box::pin(async move {
            loop {
                match self.context.get_keys().await {
                    Err(error) if self.is_cancellation(&error) => {}
                    keys => return keys.map_err(failed),
                }
            }
        })
    }

    fn keys_beside(&mut self) -> BoxFuture<'_, Result<Vec<String>, CheckpointError>> {
        Box::pin(async move {
            let (object, key) = (self.names.beside.to_string(), self.key.clone());
            Elsewhere { handler: self, object, key }.all_keys().await
        })
    }

    fn set(&mut self, key: String, value: Option<Bytes>) {
        if key == HEAD {
            self.progress.commits.fetch_add(1, Ordering::Release);
        }
        match value {
            Some(value) => self.context.set(&key, value),
            None => self.context.clear(&key),
        }
    }
}

impl Journal for Handler {
    fn entry<'a>(
        &'a mut self,
        make: BoxFuture<'a, Result<Vec<u8>, Drained>>,
    ) -> BoxFuture<'a, Result<Bytes, AttemptError>> {
        Box::pin(async move {
            let mut make = Some(make);
            let mut made: Option<Bytes> = None;
            loop {
                let (make, made, signal, cancel) = (&mut make, &mut made, &mut self.signal, &self.cancel);
                let entry = self.context.run(move || async move {
                    if let Some(make) = make.take() {
                        *made = Some(tokio::select! {
                            biased;
                            // An error ends the attempt, and the server begins another one.
                            text = make => text?.into(),
                            // A replay learns of the cancellation instead of the result of this entry, which has nothing to be lost.
                            _ = signal => {
                                cancel.cancel();
                                Bytes::from_static(NOTHING)
                            }
                            () = tokio::time::sleep(LONGEST_SILENCE) => Bytes::from_static(NOTHING),
                        });
                    }
                    Ok(made.clone().expect("it was made by an entry before this one"))
                });
                match entry.name(REQUEST).await {
                    // The result of this entry is lost. The next one has it.
                    Err(error) if self.is_cancellation(&error) => {}
                    entry => {
                        self.progress.entries.fetch_add(1, Ordering::Release);
                        return entry.map_err(|error| AttemptError::Journal(error.message().to_owned()));
                    }
                }
            }
        })
    }

    fn serve_beside(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, CheckpointError>> {
        Box::pin(async move {
            let (object, key) = (self.names.beside.to_string(), self.key.clone());
            let place = object.clone();
            let mut beside = Elsewhere { handler: self, object, key };
            if request.is_read() {
                return read(&mut beside, &place, &request).await;
            }
            let thread = request.thread().clone();
            let write = Write { token: None, request };
            written_of(&thread, &beside.call("write", write.encode()).await?)
        })
    }
}

/// Another object, which a handler reads by calls.
pub(super) struct Elsewhere<'a> {
    pub(super) handler: &'a mut Handler,
    pub(super) object: String,
    pub(super) key: String,
}

impl Elsewhere<'_> {
    pub(super) async fn call(&mut self, handler: &str, body: Vec<u8>) -> Result<Bytes, CheckpointError> {
        self.handler.call(&self.object, &self.key, handler, body).await
    }
}

impl Remote for Elsewhere<'_> {
    fn entries_of<'a>(&'a mut self, request: &'a Request) -> BoxFuture<'a, Result<Entries, CheckpointError>> {
        Box::pin(async move { entries_of(&self.call("read", request.encode()?).await?) })
    }

    fn get_some<'a>(
        &'a mut self,
        keys: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Option<Bytes>>, CheckpointError>> {
        Box::pin(async move {
            let keys = serde_json::to_vec(keys).expect("keys are JSON");
            values_of(&self.call("get", keys).await?)
        })
    }

    fn all_keys(&mut self) -> BoxFuture<'_, Result<Vec<String>, CheckpointError>> {
        Box::pin(async move { keys_of(&self.call("keys", Vec::new()).await?) })
    }

    fn pause(&mut self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(self.handler.sleep(time))
    }
}
