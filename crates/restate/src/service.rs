//! The objects of the service, and their handlers.
//!
//! Start at [`Object`].

mod context;
pub(crate) mod graph;
mod run;
mod store;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use restate_sdk::{
    discovery,
    endpoint::{ContextInternal, Error},
    errors::{HandlerError, TerminalError},
    service::{Service, ServiceDefinition, macro_support::service_definition},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use superstep_checkpoint::{CheckpointError, Checkpointer, ThreadId};
use superstep_graph::{RunOptions, erased::JsonGraph, thread::Drain};
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::context::Handler;
use crate::{
    names::Names,
    wire::{Copy, Token, Write},
};

/// A wrapper of the checkpointer of runs.
pub(crate) type Layer = Arc<dyn Fn(Arc<dyn Checkpointer>) -> Arc<dyn Checkpointer> + Send + Sync>;

/// Decides whether a thread may run; the error is the reason why not.
pub(crate) type Admit = Arc<dyn Fn(ThreadId) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// The parts that all handlers of a process share.
pub(crate) struct Host {
    pub(crate) names: Names,
    pub(crate) graphs: BTreeMap<String, Arc<dyn JsonGraph>>,
    /// The options of all runs.
    pub(crate) options: RunOptions,
    pub(crate) layer: Option<Layer>,
    pub(crate) admit: Option<Admit>,
    /// A permit for each run.
    pub(crate) slots: Semaphore,
    /// Requested when the process stops.
    pub(crate) drain: Drain,
    /// A token for each run at work.
    pub(crate) runs: TaskTracker,
    /// Cancelled when the connections of a process that stops go away.
    pub(crate) leaves: CancellationToken,
}

/// The kind of an object.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A thread with those below it, whose handlers run its graph.
    Thread,
    /// The threads below it that others write during a run.
    Beside,
}

/// The handlers of an object: name, and whether they run beside others of the same key.
const HANDLERS: [(&str, bool); 7] = [
    ("write", false),
    ("copy", false),
    ("read", true),
    ("get", true),
    ("keys", true),
    ("writer", true),
    ("cancel", true),
];

/// The handlers that only the object of a thread has; the first five run its graph.
const OF_THREAD: [&str; 7] = ["run", "resume", "answer", "update", "fork", "lease", "release"];

/// The timeouts of handlers without entries, of which a run makes one every six hours. A worker that died is noticed by its connection.
const LONGEST_SILENCE_MS: u64 = 24 * 60 * 60 * 1000;

/// The time for which the result of a write is known to a caller that repeats it.
const REPEATED_MS: u64 = 60 * 60 * 1000;

impl Kind {
    /// Describes the object for Restate.
    fn discovery(self, name: &str) -> discovery::Service {
        let own = OF_THREAD.iter().map(|name| (*name, false)).filter(|_| matches!(self, Self::Thread));
        let handler = |(name, is_shared): (&str, bool)| {
            let is_run = OF_THREAD[..5].contains(&name);
            let mut handler = json!({
                "name": name,
                "ty": if is_shared { "SHARED" } else { "EXCLUSIVE" },
                "input": {"contentType": "*/*", "required": false},
                "output": {"contentType": "application/json", "setContentTypeIfEmpty": false},
            });
            if !is_run {
                handler["idempotencyRetention"] = REPEATED_MS.into();
                handler["journalRetention"] = 0.into();
            }
            handler
        };
        let handlers: Vec<_> = HANDLERS.into_iter().chain(own).map(handler).collect();
        // An attempt fails only with its worker, so there is no limit. The one of the server applies if the service has none.
        let definition = json!({
            "name": name,
            "ty": "VIRTUAL_OBJECT",
            "handlers": handlers,
            "enableLazyState": true,
            "inactivityTimeout": LONGEST_SILENCE_MS,
            "abortTimeout": LONGEST_SILENCE_MS,
            "retryPolicyInitialInterval": 50,
            "retryPolicyExponentiationFactor": 2.0,
            "retryPolicyMaxInterval": 2000,
            "retryPolicyMaxAttempts": u32::MAX,
        });
        serde_json::from_value(definition).expect("the name was checked")
    }

    /// Defines the object.
    pub(crate) fn definition(self, host: Arc<Host>) -> ServiceDefinition {
        let discovery = self.discovery(self.name(&host));
        service_definition(Object { kind: self, host }, discovery)
    }

    /// Returns the name of the object.
    fn name(self, host: &Host) -> &Arc<str> {
        match self {
            Self::Thread => &host.names.thread,
            Self::Beside => &host.names.beside,
        }
    }
}

/// An object of the service.
struct Object {
    kind: Kind,
    host: Arc<Host>,
}

impl Service for Object {
    type Future = BoxFuture<'static, Result<(), Error>>;

    fn handle(&self, context: ContextInternal) -> Self::Future {
        let (kind, host) = (self.kind, self.host.clone());
        Box::pin(async move {
            let name = context.handler_name().to_owned();
            let (mut handler, input) = Handler::begin(context, host.names.clone()).await;
            let output = handled(kind, &host, &mut handler, &name, &input).await;
            handler.end(output);
            Ok(())
        })
    }
}

async fn handled(
    kind: Kind,
    host: &Arc<Host>,
    handler: &mut Handler,
    name: &str,
    input: &Bytes,
) -> Result<Bytes, HandlerError> {
    match name {
        "write" => {
            let write: Write = read(input)?;
            Ok(store::write(kind, host, handler, write).await)
        }
        "copy" => {
            let copy: Copy = read(input)?;
            Ok(store::copy(kind, host, handler, copy).await)
        }
        "read" => served(store::read(kind, host, handler, read(input)?).await),
        "get" => served(store::get(handler, read(input)?).await),
        "keys" => served(store::keys(handler).await),
        "writer" => served(store::has_writer(handler, &read::<String>(input)?).await),
        "cancel" => served(store::cancel(handler).await),
        "lease" => {
            let token: Token = read(input)?;
            Ok(store::lease(handler, token).await)
        }
        "release" => {
            let token: Token = read(input)?;
            Ok(store::release(handler, token).await)
        }
        work => run::run(host, handler, work, input).await,
    }
}

/// Reads the input of a handler.
fn read<T: DeserializeOwned>(input: &[u8]) -> Result<T, HandlerError> {
    serde_json::from_slice(input).map_err(|error| {
        TerminalError::new_with_code(400, format!("the input cannot be read: {error}")).into()
    })
}

fn served(result: Result<Bytes, CheckpointError>) -> Result<Bytes, HandlerError> {
    result.map_err(|error| TerminalError::new(superstep_state::chain(&error)).into())
}
