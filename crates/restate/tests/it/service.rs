//! Services of this process, each with a namespace of its own.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
    thread::JoinHandle,
};

use superstep_graph::checkpoint::CheckpointError;
use superstep_restate::{Endpoint, EndpointBuilder, Restate, listen};
use tokio_util::sync::CancellationToken;

use crate::node::Node;

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A registered service.
pub(crate) struct Service {
    pub(crate) restate: Restate,
    namespace: String,
    address: SocketAddr,
    stop: CancellationToken,
    crash: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts a service on a runtime of its own.
    pub(crate) fn start(node: &Node, graphs: impl FnOnce(EndpointBuilder) -> EndpointBuilder) -> Self {
        Self::try_start(node, graphs).unwrap()
    }

    /// Starts a service that may not be registered.
    pub(crate) fn try_start(
        node: &Node,
        graphs: impl FnOnce(EndpointBuilder) -> EndpointBuilder,
    ) -> Result<Self, CheckpointError> {
        let namespace = format!("test{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let restate = node.client().namespace(&namespace);
        let service = Self::serve(restate, namespace, "127.0.0.1:0".parse().unwrap(), graphs);
        let (restate, url) = (service.restate.clone(), format!("http://{}", service.address));
        // A test may be within a runtime already.
        let registering = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(restate.register(&url))
        });
        registering.join().unwrap().map(|()| service)
    }

    /// Starts another one at its address.
    pub(crate) fn again(&self, graphs: impl FnOnce(EndpointBuilder) -> EndpointBuilder) -> Self {
        Self::serve(self.restate.clone(), self.namespace.clone(), self.address, graphs)
    }

    fn serve(
        restate: Restate,
        namespace: String,
        address: SocketAddr,
        graphs: impl FnOnce(EndpointBuilder) -> EndpointBuilder,
    ) -> Self {
        let endpoint = graphs(Endpoint::builder()).namespace(&namespace).build().unwrap();
        let (stop, crash) = (CancellationToken::new(), CancellationToken::new());
        let (stopped, crashed) = (stop.clone(), crash.clone());
        let (listens, address_of) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = listen(address).unwrap();
                listens.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! {
                    served = endpoint.serve_on(listener, stopped) => served.unwrap(),
                    () = crashed.cancelled() => {}
                }
            });
            // Drops all tasks with their connections.
            runtime.shutdown_timeout(std::time::Duration::from_secs(5));
        });
        let address = address_of.recv().unwrap();
        Self { restate, namespace, address, stop, crash, thread: Some(thread) }
    }

    /// Ends it as a crash does: all connections break.
    pub(crate) fn crash(mut self) {
        self.crash.cancel();
        self.thread.take().unwrap().join().unwrap();
    }

    /// Ends it as a crash does. The result starts another one at its address.
    pub(crate) fn crash_before(
        self,
        graphs: impl FnOnce(EndpointBuilder) -> EndpointBuilder,
    ) -> impl FnOnce() -> Self {
        let (restate, namespace, address) = (self.restate.clone(), self.namespace.clone(), self.address);
        self.crash();
        move || Self::serve(restate, namespace, address, graphs)
    }

    /// Ends it as a signal does: it drains its runs.
    pub(crate) fn stop(mut self) {
        self.stop.cancel();
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.crash.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
