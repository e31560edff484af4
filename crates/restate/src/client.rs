//! Callers of the service.
//!
//! Start at [`Restate`].

mod background;
mod cluster;
mod http;

use std::{fmt, sync::Arc, time::Duration};

use serde_json::{Value, json};
use superstep_checkpoint::{CheckpointError, Checkpointer, ThreadId};

use self::{cluster::Cluster, http::Http};
use crate::{
    endpoint::NAMESPACE,
    names::{Names, object_key},
    requests::Requests,
};

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

    /// Sets the URL of the admin API, such as `http://127.0.0.1:9070`, which lists threads and registers services.
    ///
    /// # Errors
    /// If it is not a URL.
    pub fn admin(mut self, url: &str) -> Result<Self, CheckpointError> {
        self.http.set_admin(url)?;
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

    /// Runs a graph on a thread, and returns its end.
    ///
    /// # Errors
    /// The error of the run, or Restate cannot be reached.
    pub async fn run(
        &self,
        thread: impl Into<ThreadId>,
        graph: &str,
        id: &str,
        input: Value,
    ) -> Result<Value, CheckpointError> {
        let thread = thread.into();
        let body = json!({"graph": graph, "thread": thread, "input": input, "id": id});
        self.work(&thread, "run", id, &body).await
    }

    async fn work(
        &self,
        thread: &ThreadId,
        handler: &str,
        id: &str,
        body: &Value,
    ) -> Result<Value, CheckpointError> {
        let names = Names::new(&self.namespace);
        let mut pause = Duration::from_millis(20);
        for attempt in 0.. {
            // The end of an attempt that was locked out is stored under its key.
            let id = format!("{handler}.{id}.{attempt}");
            let body = body.to_string().into_bytes();
            let key = object_key(thread);
            match self.http.call((&names.thread, &key, handler), Some(&id), body).await {
                Ok(output) => {
                    return serde_json::from_slice(&output).map_err(|cause| CheckpointError::Storage {
                        what: "the end of a run is not JSON".to_owned(),
                        source: Some(cause.into()),
                    });
                }
                Err(error) if error.is_locked() => tokio::time::sleep(pause).await,
                Err(error) => return Err(error.into()),
            }
            pause = (pause * 2).min(Duration::from_secs(1));
        }
        unreachable!("the attempts do not end")
    }
}

impl fmt::Debug for Restate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Restate").field("http", &self.http).field("namespace", &self.namespace).finish()
    }
}
