//! One thread of a graph that runs elsewhere, without the type of its state.
//!
//! Start at [`JsonThread`].

use std::{fmt, time::Duration};

use serde_json::{Value, json};
use superstep_checkpoint::{CheckpointError, CheckpointId, ThreadId};

use crate::{
    client::{
        http::{Http, failed},
        unique,
    },
    names::{Names, object_key},
};

/// The pauses between attempts to run a thread that a program outside has leased.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// One thread of a graph of the service.
///
/// Work on one thread is done in the order of the calls. A caller whose connection is lost waits for the same work again.
#[derive(Clone)]
pub struct JsonThread {
    http: Http,
    names: Names,
    graph: String,
    thread: ThreadId,
    input_id: Option<String>,
}

impl JsonThread {
    pub(super) fn new(http: Http, names: Names, graph: String, thread: ThreadId) -> Self {
        Self { http, names, graph, thread, input_id: None }
    }

    /// Sets the id of the input, under which the thread accepts it once; a repeated one returns the same end.
    #[must_use = "a handle does nothing until one of its operations runs"]
    pub fn input_id(&self, id: impl Into<String>) -> Self {
        Self { input_id: Some(id.into()), ..self.clone() }
    }

    /// Runs the graph with an input, and returns its end: `status`, `checkpoint`, `values` and `interrupts`.
    ///
    /// # Errors
    /// The error of the run, or Restate cannot be reached.
    pub async fn run(&self, input: Value) -> Result<Value, CheckpointError> {
        let id = self.input_id.clone();
        self.work("run", id, json!({"input": input, "id": self.input_id})).await
    }

    /// Runs the pending tasks, and returns the end.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub async fn resume(&self) -> Result<Value, CheckpointError> {
        self.work("resume", None, json!({})).await
    }

    /// Answers an interrupt, by its id, runs the pending tasks, and returns the end.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub async fn answer(&self, interrupt: &str, value: Value) -> Result<Value, CheckpointError> {
        self.work("answer", None, json!({"interrupt": interrupt, "value": value})).await
    }

    /// Stores an update in the name of a node, or of the one that ran last.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub async fn update(
        &self,
        update: Value,
        as_node: Option<&str>,
    ) -> Result<CheckpointId, CheckpointError> {
        let stored = self.work("update", None, json!({"update": update, "as_node": as_node})).await?;
        checkpoint_of(&stored)
    }

    /// Makes a copy of a checkpoint the thread's new head.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub async fn fork(&self, at: impl Into<Option<CheckpointId>>) -> Result<CheckpointId, CheckpointError> {
        let stored = self.work("fork", None, json!({"at": at.into()})).await?;
        checkpoint_of(&stored)
    }

    /// Cancels the run at work. Returns `false` if there is none.
    ///
    /// The run notices it when its checkpointer makes the next request.
    ///
    /// # Errors
    /// If Restate cannot be reached.
    pub async fn cancel(&self) -> Result<bool, CheckpointError> {
        let key = object_key(&self.thread);
        let is_cancelled = self.http.call((&self.names.thread, &key, "cancel"), None, Vec::new()).await?;
        Ok(&*is_cancelled == b"true")
    }

    async fn work(
        &self,
        handler: &str,
        id: Option<String>,
        mut body: Value,
    ) -> Result<Value, CheckpointError> {
        body["graph"] = self.graph.as_str().into();
        body["thread"] = self.thread.as_str().into();
        let key = object_key(&self.thread);
        let id = match id {
            Some(id) => id,
            None => unique()?,
        };
        let mut pause = PAUSE;
        for attempt in 0.. {
            // The end of an attempt that was locked out is stored under its key.
            let id = format!("{handler}.{id}.{attempt}");
            let body = body.to_string().into_bytes();
            match self.http.call((&self.names.thread, &key, handler), Some(&id), body).await {
                Ok(output) => {
                    return serde_json::from_slice(&output).map_err(|cause| {
                        failed("the end of a run is not JSON".to_owned(), Some(cause.into()))
                    });
                }
                Err(error) if error.is_locked() => tokio::time::sleep(pause).await,
                Err(error) => return Err(error.into()),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        unreachable!("the attempts do not end")
    }
}

fn checkpoint_of(stored: &Value) -> Result<CheckpointId, CheckpointError> {
    let id = stored["checkpoint"].as_u64();
    id.map(CheckpointId).ok_or_else(|| failed("the end of an update has no checkpoint".to_owned(), None))
}

impl fmt::Debug for JsonThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonThread").field("graph", &self.graph).field("thread", &self.thread).finish()
    }
}
