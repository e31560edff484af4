//! A job before it is stored.
//!
//! Start at [`NewJob`].

use std::time::Duration;

use rand::{TryRng as _, rngs::SysRng};
use serde::Serialize;
use serde_json::Value;
use superstep_graph::{RunError, ThreadId, checkpoint::CheckpointError};

use crate::{
    GraphName, JobId, Jobs,
    payload::{Payload, Work},
    queue::{Stored, When},
};

/// The number of attempts of a job.
pub(crate) const ATTEMPTS: i16 = 10;

/// A job before it is stored. [`send`](Self::send) stores it.
#[must_use = "a job is stored by `send`"]
#[derive(Debug)]
pub struct NewJob<'a> {
    jobs: &'a Jobs,
    graph: String,
    thread: String,
    work: Result<Work, serde_json::Error>,
    id: Option<String>,
    key: Option<String>,
    priority: i16,
    attempts: i16,
    when: When,
}

impl Jobs {
    /// Creates a job that runs a thread on an input: an update of the graph's state, or its JSON form.
    pub fn run(
        &self,
        graph: &(impl GraphName + ?Sized),
        thread: impl Into<ThreadId>,
        input: impl Serialize,
    ) -> NewJob<'_> {
        let work = serde_json::to_value(input).map(|input| Work::Run { input });
        NewJob::new(self, graph.graph_name(), thread.into().to_string(), work)
    }

    /// Creates a job that resumes a thread.
    pub fn resume(&self, graph: &(impl GraphName + ?Sized), thread: impl Into<ThreadId>) -> NewJob<'_> {
        NewJob::new(self, graph.graph_name(), thread.into().to_string(), Ok(Work::Resume {}))
    }

    /// Creates a job that answers an interrupt of a thread, by its id, and resumes the thread.
    ///
    /// The key of an interrupt is not accepted: the same key may return later, and a repeated answer must not reach that one.
    pub fn answer(
        &self,
        graph: &(impl GraphName + ?Sized),
        thread: impl Into<ThreadId>,
        interrupt: impl Into<String>,
        value: impl Serialize,
    ) -> NewJob<'_> {
        let work =
            serde_json::to_value(value).map(|value| Work::Answer { interrupt: interrupt.into(), value });
        NewJob::new(self, graph.graph_name(), thread.into().to_string(), work)
    }
}

impl<'a> NewJob<'a> {
    pub(crate) fn new(
        jobs: &'a Jobs,
        graph: &str,
        thread: String,
        work: Result<Work, serde_json::Error>,
    ) -> Self {
        let when = When::After(Duration::ZERO);
        let (graph, attempts) = (graph.to_owned(), ATTEMPTS);
        Self { jobs, graph, thread, work, id: None, key: None, priority: 0, attempts, when }
    }

    /// Sets the priority: jobs with smaller numbers run first. 0 by default.
    pub fn priority(self, priority: i16) -> Self {
        Self { priority, ..self }
    }

    /// Delays the job, by the clock of the server.
    pub fn delay(self, delay: Duration) -> Self {
        Self { when: When::After(delay), ..self }
    }

    /// Sets the earliest time of the job: UTC milliseconds.
    pub fn at_ms(self, unix_ms: i64) -> Self {
        Self { when: When::At { unix_ms }, ..self }
    }

    /// Sets a key: jobs with the same key run one after another, in their order. A thread's name as key does this for a thread; another
    /// key, such as a customer or a service with a limit, for several.
    ///
    /// Without a key, a job whose thread is busy is tried again shortly after, and a later one may overtake it.
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Sets the number of attempts after which a job that fails is dead. 10 by default. The pauses between them grow from 3 s to 6 h.
    pub fn attempts(self, attempts: u8) -> Self {
        Self { attempts: attempts.max(1).into(), ..self }
    }

    /// Sets the id of the request. Two jobs of one id are one: while the first is stored, the second is not; and a thread accepts an
    /// [input](superstep_graph::Thread::input_id) of one id once. Without it, each job has its own.
    pub fn id(self, id: impl Into<String>) -> Self {
        Self { id: Some(id.into()), ..self }
    }

    /// Stores the job, and returns its number.
    ///
    /// # Errors
    /// [`RunError::Unstorable`] if the input has no JSON form, or the error of the database.
    pub async fn send(self) -> Result<JobId, RunError> {
        let what = || format!("the job for thread `{}`", self.thread);
        let work = self.work.map_err(|source| RunError::Unstorable { what: what(), source })?;
        let id = match self.id {
            Some(id) => id,
            None => random_id()?,
        };
        let payload = Payload::new(self.thread, id.clone(), work);
        let payload = serde_json::to_value(payload).unwrap_or(Value::Null);
        let (key, priority, attempts, when) = (self.key, self.priority, self.attempts, self.when);
        let stored = Stored { graph: self.graph, payload, id, key, priority, attempts, when };
        Ok(JobId(self.jobs.queue.add(&stored).await?))
    }
}

/// Returns an id that no other job has.
pub(crate) fn random_id() -> Result<String, CheckpointError> {
    let drawn = || -> Result<String, _> {
        let (one, other) = (SysRng.try_next_u64()?, SysRng.try_next_u64()?);
        Ok::<_, <SysRng as rand::TryRng>::Error>(format!("{one:016x}{other:016x}"))
    };
    drawn().map_err(|cause| CheckpointError::Storage {
        what: "this machine has no random number for the id of a job; try again".to_owned(),
        source: Some(Box::new(cause)),
    })
}
