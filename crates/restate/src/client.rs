//! Callers of the service.
//!
//! Start at [`Restate`].

mod background;
mod cluster;
mod http;
mod thread;

use std::{fmt, sync::Arc};

use rand::{TryRng as _, rngs::SysRng};
use serde_json::json;
use superstep_checkpoint::{CheckpointError, Checkpointer, ThreadId};

use self::{
    cluster::Cluster,
    http::{Http, failed},
};

pub use self::thread::{Ended, RestateError, RestateThread};
use crate::{endpoint::NAMESPACE, names::Names, requests::Requests};

/// A Restate cluster with threads of superstep.
#[derive(Clone)]
pub struct Restate {
    http: Http,
    namespace: String,
}

impl Restate {
    /// Describes a cluster by the URL of its ingress, such as `http://127.0.0.1:8080`. Does not connect yet.
    ///
    /// # Errors
    /// If it is not a URL, or TLS is not available.
    pub fn connect(url: &str) -> Result<Self, CheckpointError> {
        Ok(Self { http: Http::new(url)?, namespace: NAMESPACE.to_owned() })
    }

    /// Adds the ingress of another node, for requests that the first one does not serve.
    ///
    /// # Errors
    /// If it is not a URL.
    pub fn ingress(mut self, url: &str) -> Result<Self, CheckpointError> {
        self.http.add_ingress(url)?;
        Ok(self)
    }

    /// Adds the URL of the admin API, such as `http://127.0.0.1:9070`, which lists threads and registers services.
    ///
    /// # Errors
    /// If it is not a URL.
    pub fn admin(mut self, url: &str) -> Result<Self, CheckpointError> {
        self.http.add_admin(url)?;
        Ok(self)
    }

    /// Sets the token that is sent with each request.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.http.token = Some(token.into().into());
        self
    }

    /// Sets the namespace of the threads; see [`EndpointBuilder::namespace`](crate::EndpointBuilder::namespace).
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Registers the service at a URL, at which an [`Endpoint`](crate::Endpoint) listens. Replaces an earlier registration of the URL.
    ///
    /// # Errors
    /// If Restate, or the endpoint, cannot be reached, or there is no URL of the admin API.
    pub async fn register(&self, url: &str) -> Result<(), CheckpointError> {
        self.http.admin("deployments", &json!({"uri": url, "force": true})).await.map(drop)
    }

    /// Returns the threads of the namespace as a checkpointer, for everything but runs: they belong to the service.
    ///
    /// # Errors
    /// If the machine has no further OS thread.
    pub fn checkpointer(&self) -> Result<Arc<dyn Checkpointer>, CheckpointError> {
        let cluster = Cluster::open(self.http.clone(), Names::new(&self.namespace))?;
        Ok(Arc::new(Requests(Arc::new(cluster))))
    }

    /// Returns a thread of the service with the name of the graph that runs it.
    pub fn thread(&self, graph: impl Into<String>, thread: impl Into<ThreadId>) -> RestateThread {
        RestateThread::new(self.clone(), graph.into(), thread.into())
    }
}

/// Draws a name that no other request has.
fn unique() -> Result<String, CheckpointError> {
    let drawn =
        SysRng.try_next_u64().and_then(|one| Ok(format!("{one:016x}{:016x}", SysRng.try_next_u64()?)));
    drawn.map_err(|cause| failed("this machine has no random number".to_owned(), Some(cause.into())))
}

impl fmt::Debug for Restate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Restate").field("http", &self.http).field("namespace", &self.namespace).finish()
    }
}
