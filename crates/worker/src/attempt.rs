//! One attempt of a job: its run, and what becomes of the job.
//!
//! Start at [`Attempt::run`].

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt as _;
use graphile_worker::Job;
use superstep_graph::{
    RunOptions, Status, ThreadId, checkpoint::CheckpointError, erased::JsonGraph, error::chain, thread::Drain,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::{
    graph::{Admit, Failure, REFUSED, REFUSED_LATER, UNKNOWN_INTERRUPT, work},
    payload::{Payload, Work},
    queue::{Key, Queue, is_cancelled},
};

/// The pause before a job is tried again whose thread another run has, or waits for an answer.
pub(crate) const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// The pause before the end of an attempt is stored again.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// The reason with which a worker that stops drains its runs.
pub(crate) const STOPPED: &str = "the worker stopped";

/// The reason why a job waits whose thread was busy before any delivery ran.
const BUSY: &str = "another run has the thread";

/// The reason why a job waits whose thread is busy after a delivery that may have run.
const BUSY_LATER: &str = "a later run has the thread";

/// The reason why a job waits whose thread waits for an answer.
pub(crate) const WAITING: &str = "the thread waits for an answer";

/// The beginning of the failure of an answer to a question that the node replaced, so that it was not accepted.
const CHANGED_QUESTION: &str = "SS125: ";

/// A claimed job.
pub(crate) struct Attempt {
    pub(crate) queue: Queue,
    pub(crate) worker: Arc<str>,
    pub(crate) job: Job,
    pub(crate) graph: Arc<dyn JsonGraph>,
    pub(crate) options: RunOptions,
    pub(crate) admit: Option<Admit>,
    /// `true` if other workers may wait for the end of this run.
    pub(crate) is_awaited: bool,
    pub(crate) drain: Drain,
    pub(crate) cancel: CancellationToken,
}

/// The effects of an attempt on the other jobs of its worker.
pub(crate) struct Ended {
    pub(crate) job: i64,
    /// The key of the job, if it is to stay locked for [`BUSY_PAUSE`].
    pub(crate) locked: Option<Key>,
    /// `true` if jobs that wait for an answer are due.
    pub(crate) is_answered: bool,
}

/// The end of an attempt.
enum End {
    /// The job is done.
    Done,
    /// The job is done, and was an answer on this thread.
    Answered(String),
    /// The worker stopped before the end of the run.
    Stopped,
    /// Another run has the thread.
    Busy(&'static str),
    /// The named thread waits for an answer.
    Waiting(String),
    Failed(String),
}

impl Attempt {
    /// Runs the job, and stores the end.
    pub(crate) async fn run(self) -> Ended {
        let id = *self.job.id();
        let graph = self.job.task_identifier().as_str();
        let span = tracing::info_span!("job", job = id, graph, attempt = *self.job.attempts());
        let ended = async {
            let end = self.end().await;
            // The job would stay claimed as long as this worker lives.
            let locked = loop {
                match self.store(&end).await {
                    Ok(locked) => break locked,
                    Err(error) => {
                        tracing::warn!(
                            error = chain(&error),
                            "the end of a job cannot be stored; trying again"
                        );
                        tokio::time::sleep(STORE_PAUSE).await;
                    }
                }
            };
            // Without it the others find out with their next sign of life.
            if self.is_awaited
                && let Err(error) = self.queue.wake().await
            {
                tracing::warn!(error = chain(&error), "the other workers cannot be woken");
            }
            Ended { job: id, locked, is_answered: matches!(end, End::Answered(_)) }
        };
        ended.instrument(span).await
    }

    async fn end(&self) -> End {
        if is_cancelled(&self.job) {
            return End::Done;
        }
        let payload = match Payload::read(self.job.payload()) {
            Ok(payload) => payload,
            Err(reason) => return End::Failed(reason),
        };
        let is_first = match self.job.last_error() {
            Some(error) => {
                let without_effect = [UNKNOWN_INTERRUPT, REFUSED, CHANGED_QUESTION, BUSY, WAITING];
                without_effect.iter().any(|begin| error.starts_with(begin))
            }
            None => *self.job.attempts() <= 1,
        };
        let thread = payload.thread.clone();
        let is_answer = matches!(payload.work, Work::Answer { .. });
        let options = self.options.clone().cancel(self.cancel.clone()).drain(self.drain.clone());
        let run = async {
            if let Some(admit) = &self.admit {
                let refused = if is_first { REFUSED } else { REFUSED_LATER };
                let admitted = admit(ThreadId::from(payload.thread.clone())).await;
                admitted.map_err(|reason| Failure::Failed(format!("{refused}{reason}")))?;
            }
            work(&*self.graph, options, payload, is_first).await
        };
        let run = AssertUnwindSafe(run).catch_unwind().await;
        // A request to cancel is about this job, however the run ended.
        if self.cancel.is_cancelled() {
            return End::Done;
        }
        match run {
            // A node may have drained its run for another reason.
            Ok(Ok(Status::Drained)) if self.drain.requested() == Some(STOPPED) => End::Stopped,
            Ok(Ok(_)) if is_answer => End::Answered(thread),
            Ok(Ok(_)) => End::Done,
            Ok(Err(Failure::Busy)) if is_first => End::Busy(BUSY),
            Ok(Err(Failure::Busy | Failure::TakenOver)) => End::Busy(BUSY_LATER),
            Ok(Err(Failure::Waiting)) => End::Waiting(thread),
            // A text of PostgreSQL has no such character.
            Ok(Err(Failure::Failed(error))) => End::Failed(error.replace('\0', "\u{fffd}")),
            Err(_) => End::Failed("the run panicked".to_owned()),
        }
    }

    /// Returns the job's key if it stays locked.
    async fn store(&self, end: &End) -> Result<Option<Key>, CheckpointError> {
        let Self { queue, job, worker, .. } = self;
        match end {
            End::Done => queue.complete(job, worker).await?,
            End::Answered(thread) => {
                // Before the end of the job: if it fails, the next attempt does it again.
                queue.recall(thread, WAITING).await?;
                queue.complete(job, worker).await?;
            }
            End::Stopped => queue.give_back(job, worker, STOPPED).await?,
            End::Busy(why) => return queue.postpone(job, worker, BUSY_PAUSE, why).await,
            End::Waiting(thread) => {
                return if queue.overtaken(job, thread).await? {
                    queue.give_back(job, worker, WAITING).await.map(|()| None)
                } else {
                    queue.postpone(job, worker, BUSY_PAUSE, WAITING).await
                };
            }
            End::Failed(error) => {
                tracing::warn!(error, "a job failed");
                queue.fail(job, worker, error).await?;
            }
        }
        Ok(None)
    }
}
