//! Runs of threads by the service.
//!
//! Start at [`RestateThread`].

use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use superstep_checkpoint::{CheckpointError, CheckpointId, Interrupt, ThreadId};
use superstep_graph::{CompiledGraph, Outcome, State, Status, Thread};

use super::{Restate, http::CallError, unique};
use crate::names::{Names, object_key};

/// A thread of the service, with the graph that runs it.
///
/// Runs of one thread begin one after the other, in the order in which they reach the cluster. A run goes on if its caller ends.
#[derive(Clone, Debug)]
#[must_use = "a handle does nothing by itself"]
pub struct RestateThread {
    restate: Restate,
    graph: String,
    thread: ThreadId,
    id: Option<String>,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Ended {
    /// The status: `completed`, `interrupted` or `cancelled`.
    pub status: String,
    /// The last checkpoint.
    pub checkpoint: Option<CheckpointId>,
    /// The channels of the state, without untracked ones.
    pub values: Map<String, Value>,
    /// The interrupts that wait for an answer.
    pub interrupts: Vec<Interrupt>,
}

/// A failed request to the service.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RestateError {
    /// The run failed, or was refused.
    #[error("{error}")]
    Run {
        /// The error with its causes.
        error: String,
    },
    /// The input is not JSON.
    #[error("the input of a run is not JSON")]
    Input(#[source] serde_json::Error),
    /// The end of the run does not fit this program.
    #[error("the end of a run cannot be read; the service may be of another version")]
    Unreadable(#[source] serde_json::Error),
    /// The cluster cannot be reached, or has refused the request.
    #[error(transparent)]
    Cluster(#[from] CheckpointError),
}

superstep_state::debug_by_chain!(RestateError);

impl From<CallError> for RestateError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Failed(error) => Self::Cluster(error),
            CallError::Ended { message, .. } => Self::Run { error: message },
        }
    }
}

impl RestateThread {
    pub(super) fn new(restate: Restate, graph: String, thread: ThreadId) -> Self {
        Self { restate, graph, thread, id: None }
    }

    /// Sets the id of the next input, under which the thread accepts it once. Without one, each call is another input.
    pub fn input_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Runs the thread on an input: an update of the state, or its JSON form. Waits for the end.
    ///
    /// # Errors
    /// [`RestateError`]. If the cluster cannot be reached any more, the run goes on; the same call with an [id](Self::input_id) waits
    /// for its end.
    pub async fn run(&self, input: impl Serialize) -> Result<Ended, RestateError> {
        let (id, body) = self.input(input)?;
        self.work("run", &id, body).await
    }

    /// Sends an input without waiting for the run, which begins after `delay`.
    ///
    /// # Errors
    /// [`RestateError`].
    pub async fn send(&self, input: impl Serialize, delay: Duration) -> Result<(), RestateError> {
        let (id, body) = self.input(input)?;
        let body = self.body(body)?;
        Ok(self.restate.http.send_later(self.target("run"), &format!("run.{id}"), delay, body).await?)
    }

    fn input(&self, input: impl Serialize) -> Result<(String, Value), RestateError> {
        let id = self.id.clone().map_or_else(unique, Ok)?;
        let input = serde_json::to_value(input).map_err(RestateError::Input)?;
        Ok((id.clone(), json!({"input": input, "id": id})))
    }

    /// Runs the pending tasks of the thread.
    ///
    /// # Errors
    /// [`RestateError`].
    pub async fn resume(&self) -> Result<Ended, RestateError> {
        self.work("resume", &unique()?, json!({})).await
    }

    /// Answers an interrupt by its id, and runs the pending tasks. A repeated answer has no effect, and returns the end of the first.
    ///
    /// # Errors
    /// [`RestateError`].
    pub async fn answer(&self, interrupt: &str, value: impl Serialize) -> Result<Ended, RestateError> {
        let value = serde_json::to_value(value).map_err(RestateError::Input)?;
        self.work("answer", interrupt, json!({"interrupt": interrupt, "value": value})).await
    }

    /// Stores an update of the state, as a node or, with `None`, as the node that ran last. Returns the new checkpoint.
    ///
    /// # Errors
    /// [`RestateError`].
    pub async fn update(
        &self,
        update: impl Serialize,
        as_node: Option<&str>,
    ) -> Result<CheckpointId, RestateError> {
        let update = serde_json::to_value(update).map_err(RestateError::Input)?;
        self.stored_at("update", json!({"update": update, "as_node": as_node})).await
    }

    /// Makes a copy of a checkpoint the newest one, and returns its id.
    ///
    /// # Errors
    /// [`RestateError`].
    pub async fn fork(&self, at: CheckpointId) -> Result<CheckpointId, RestateError> {
        self.stored_at("fork", json!({"at": at})).await
    }

    async fn stored_at(&self, handler: &str, body: Value) -> Result<CheckpointId, RestateError> {
        #[derive(Deserialize)]
        struct At {
            checkpoint: CheckpointId,
        }

        let at: At = self.work(handler, &unique()?, body).await?;
        Ok(at.checkpoint)
    }

    /// Cancels the run at work, which ends as cancelled; the thread can be resumed. Returns whether there was one.
    ///
    /// # Errors
    /// [`RestateError`].
    pub async fn cancel(&self) -> Result<bool, RestateError> {
        let reply = self.restate.http.call(self.target("cancel"), None, Vec::new()).await?;
        Ok(&*reply == b"true")
    }

    /// Returns the stored thread, for everything but runs: its state, history, replay and drawing.
    ///
    /// # Errors
    /// Those of [`Restate::checkpointer`].
    pub fn stored<S: State>(&self, graph: &CompiledGraph<S>) -> Result<Thread<S>, RestateError> {
        Ok(graph.clone().with_checkpointer(self.restate.checkpointer()?).thread(&self.thread))
    }

    fn target<'t>(&'t self, handler: &'t str) -> (String, String, &'t str) {
        let names = Names::new(&self.restate.namespace);
        (names.thread.to_string(), object_key(&self.thread), handler)
    }

    fn body(&self, mut body: Value) -> Result<Vec<u8>, RestateError> {
        body["graph"] = self.graph.clone().into();
        body["thread"] = self.thread.as_str().into();
        serde_json::to_vec(&body).map_err(RestateError::Input)
    }

    async fn work<T: DeserializeOwned>(
        &self,
        handler: &str,
        id: &str,
        body: Value,
    ) -> Result<T, RestateError> {
        let body = self.body(body)?;
        let mut pause = Duration::from_millis(20);
        for attempt in 0.. {
            // The end of an attempt that was locked out is stored under its key.
            let id = format!("{handler}.{id}.{attempt}");
            match self.restate.http.call(self.target(handler), Some(&id), body.clone()).await {
                Ok(end) => return serde_json::from_slice(&end).map_err(RestateError::Unreadable),
                Err(error) if error.is_locked() => tokio::time::sleep(pause).await,
                Err(error) => return Err(error.into()),
            }
            pause = (pause * 2).min(Duration::from_secs(1));
        }
        unreachable!("the attempts do not end")
    }
}

impl Ended {
    /// Returns the end with the state of a graph.
    ///
    /// # Errors
    /// [`RestateError::Unreadable`] if the values are not those of its state.
    pub fn outcome<S: State>(self, graph: &CompiledGraph<S>) -> Result<Outcome<S>, RestateError> {
        let Self { status, checkpoint, values, interrupts } = self;
        let mut state = graph.initial().clone();
        for (position, channel) in graph.initial().channels().iter().enumerate() {
            let Some(value) = values.get(&*channel.name) else { continue };
            state.decode(position, value.to_string().as_bytes()).map_err(RestateError::Unreadable)?;
        }
        let known = [Status::Completed, Status::Interrupted, Status::Cancelled];
        let status = known.into_iter().find(|known| known.as_str() == status).ok_or_else(|| {
            RestateError::Unreadable(serde::de::Error::custom(format!("unknown status `{status}`")))
        })?;
        Ok(Outcome { state, status, checkpoint, interrupts, drained: None })
    }
}
