//! The calls of nodes to their [`Cx`] and their store, as an observer receives them.

use std::sync::Arc;

use futures::future::BoxFuture;
use superstep_checkpoint::{
    SubgraphPath,
    store::{Answer, Operation, StoreError},
};
use superstep_engine::NodeName;

use crate::{
    Cx, Store,
    node::call_observer::{CxCall, CxObserver},
};

/// A store that waits for an observer before and after each request.
pub(super) struct ObservedStore {
    store: Arc<dyn Store>,
    observer: Arc<dyn CxObserver>,
    path: SubgraphPath,
    node: NodeName,
}

impl ObservedStore {
    pub(super) fn shared(cx: &Cx, store: &Arc<dyn Store>, observer: &Arc<dyn CxObserver>) -> Arc<dyn Store> {
        let (path, node) = (cx.path().clone(), cx.node().clone());
        Arc::new(Self { store: store.clone(), observer: observer.clone(), path, node })
    }

    fn waits(&self, place: &'static str) -> BoxFuture<'static, ()> {
        self.observer.waits(CxCall { path: &self.path, node: &self.node, place, name: "" })
    }

    async fn observed<T>(&self, request: impl Future<Output = T>) -> T {
        self.waits("before store").await;
        let answer = request.await;
        self.waits("after store").await;
        answer
    }
}

impl Store for ObservedStore {
    fn batch(&self, operations: Vec<Operation>) -> BoxFuture<'_, Result<Vec<Answer>, StoreError>> {
        Box::pin(self.observed(async move { self.store.batch(operations).await }))
    }

    fn sweep(&self) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(self.observed(async { self.store.sweep().await }))
    }
}

impl Cx {
    fn at<'a>(&'a self, place: &'static str, name: &'a str) -> CxCall<'a> {
        CxCall { path: self.path(), node: self.node(), place, name }
    }

    pub(crate) fn is_observed(&self) -> bool {
        self.0.run.scope.config.call_observer.is_some()
    }

    /// Reports a call that does not wait.
    pub(crate) fn passes(&self, place: &'static str, name: &str) {
        if let Some(observer) = &self.0.run.scope.config.call_observer {
            observer.passes(self.at(place, name));
        }
    }

    /// Reports a place where the node can wait.
    pub(crate) async fn waits(&self, place: &'static str, name: &str) {
        if let Some(observer) = &self.0.run.scope.config.call_observer {
            observer.waits(self.at(place, name)).await;
        }
    }
}
