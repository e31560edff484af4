//! Services of this process, each with a namespace of its own.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread::JoinHandle,
};

use superstep_restate::{Endpoint, EndpointBuilder, Restate};
use tokio_util::sync::CancellationToken;

use crate::node::Node;

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A registered service.
pub(crate) struct Service {
    pub(crate) restate: Restate,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts a service on a runtime of its own.
    pub(crate) fn start(node: &Node, graphs: impl FnOnce(EndpointBuilder) -> EndpointBuilder) -> Self {
        let namespace = format!("test{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let endpoint = graphs(Endpoint::builder()).namespace(&namespace).build().unwrap();
        let restate = node.client().namespace(namespace);
        let stop = CancellationToken::new();
        let (served, registering) = (stop.clone(), restate.clone());
        let (registered, is_registered) = std::sync::mpsc::sync_channel(1);
        // A test may be within a runtime already.
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            runtime.worker_threads(1).enable_all().build().unwrap().block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                let url = format!("http://{}", listener.local_addr().unwrap());
                let serving = tokio::spawn(endpoint.serve_on(listener, served));
                registered.send(registering.register(&url).await).unwrap();
                serving.await.unwrap().unwrap();
            });
        });
        is_registered.recv().unwrap().unwrap();
        Self { restate, stop, thread: Some(thread) }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
