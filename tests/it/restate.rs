//! Scenarios on Restate: one server for all, and one namespace for each scenario at a time.

#[path = "../../crates/restate/tests/it/node.rs"]
#[allow(dead_code, reason = "the tests of the crate use more of it")]
mod node;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::sync_channel,
    },
    thread,
};

use futures_executor::block_on;
use superstep::{
    Checkpointer,
    restate::{Endpoint, Restate, listen},
};
use tokio_util::sync::CancellationToken;

use crate::{real::Real, support::line};

/// The namespaces that no scenario uses.
static FREE: Mutex<Vec<Restate>> = Mutex::new(Vec::new());

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// An empty namespace, until it is dropped.
pub(crate) struct Namespace(Restate);

impl Namespace {
    /// Returns a namespace; `None` where the server is not installed, and for most scenarios without the variable that
    /// `just restate-scenarios` sets: a request takes some milliseconds, and the scenarios make many.
    pub(crate) fn new() -> Option<Self> {
        if std::env::var_os("SUPERSTEP_RESTATE_SCENARIOS").is_none() && !is_chosen() {
            return None;
        }
        let node = node::shared()?;
        let free = FREE.lock().unwrap().pop();
        Some(Self(free.unwrap_or_else(|| served(node))))
    }

    /// Opens it as another process does.
    pub(crate) fn open(&self) -> Arc<dyn Checkpointer> {
        Arc::new(Real(self.0.checkpointer().unwrap()))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let store = self.0.checkpointer().unwrap();
        let orphans = block_on(store.orphans()).unwrap();
        for thread in block_on(store.names()).unwrap().into_iter().chain(orphans) {
            block_on(store.delete(&thread)).unwrap();
        }
        FREE.lock().unwrap().push(self.0.clone());
    }
}

/// Returns whether the scenario of this thread is one of those that all test runs have, about one of 32.
fn is_chosen() -> bool {
    let thread = thread::current();
    let name = thread.name().unwrap_or_default();
    name.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())).is_multiple_of(32)
}

/// Serves the objects of a new namespace until the end of this process.
fn served(node: &node::Node) -> Restate {
    let name = format!("scenario{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let restate = node.client().namespace(&name);
    let (registering, (done, registered)) = (restate.clone(), sync_channel(1));
    thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let endpoint = Endpoint::builder().graph(line(&["a"])).namespace(&name).build().unwrap();
            let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let serving = tokio::spawn(endpoint.serve_on(listener, CancellationToken::new()));
            registering.register(&url).await.unwrap();
            done.send(()).unwrap();
            serving.await.unwrap().unwrap();
        });
    });
    registered.recv().unwrap();
    restate
}
