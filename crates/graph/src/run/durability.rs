//! The time at which a run's results are stored.
//!
//! Start at [`Durability`](crate::Durability).

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use futures::future::BoxFuture;
use serde_json::{Map, Value};
use superstep_checkpoint::{AppliedTask, CheckpointError, CheckpointMeta, Commit, TaskKey, TaskRecord};
use superstep_engine::Control;

use crate::{CheckpointId, Checkpointer, ThreadId};

/// The destination of a run's writes.
pub(crate) enum Writes {
    /// The checkpointer, directly.
    Now,
    /// The checkpointer, one write after the other, while the run continues.
    Queued(Queue),
    /// Delayed to the end of the run.
    AtExit(UnstoredSupersteps),
}

/// Writes in the order of their requests.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Write>,
    /// In a mutex that is never locked, so that the owner of the queue can be shared between threads.
    at_work: Mutex<Option<BoxFuture<'static, Written>>>,
}

/// The result of a transaction: the checkpoints whose events are to be emitted.
type Written = Result<Vec<CheckpointMeta>, CheckpointError>;

pub(crate) enum Write {
    Commit {
        expected: Option<CheckpointId>,
        commit: Box<Commit>,
        description: Option<Box<CheckpointMeta>>,
    },
    /// Records of tasks of one checkpoint.
    Records {
        checkpoint: CheckpointId,
        records: Vec<(u32, TaskRecord)>,
    },
}

/// Writes that share a transaction: commits, each with the records that followed it, or records of the head.
enum Transaction {
    Commits { expected: Option<CheckpointId>, commits: Vec<Commit>, descriptions: Vec<CheckpointMeta> },
    Records { checkpoint: CheckpointId, records: Vec<(u32, TaskRecord)> },
}

impl Transaction {
    fn begin(self, checkpointer: Arc<dyn Checkpointer>, thread: ThreadId) -> BoxFuture<'static, Written> {
        Box::pin(async move {
            match self {
                Self::Commits { expected, commits, descriptions } => {
                    match <[_; 1]>::try_from(commits) {
                        Ok([alone]) => drop(checkpointer.commit(&thread, expected, alone).await?),
                        Err(commits) => checkpointer.commit_all(&thread, expected, commits).await?,
                    }
                    Ok(descriptions)
                }
                Self::Records { checkpoint, records } => {
                    store_records(&*checkpointer, &thread, checkpoint, records).await?;
                    Ok(Vec::new())
                }
            }
        })
    }
}

/// Stores the records of tasks of a checkpoint.
pub(super) async fn store_records(
    checkpointer: &dyn Checkpointer,
    thread: &ThreadId,
    checkpoint: CheckpointId,
    records: Vec<(u32, TaskRecord)>,
) -> Result<(), CheckpointError> {
    match <[_; 1]>::try_from(records) {
        Ok([(slot, record)]) => {
            checkpointer.record(&TaskKey { thread: thread.clone(), checkpoint, slot }, record).await
        }
        Err(records) if records.is_empty() => Ok(()),
        Err(records) => checkpointer.record_all(thread, checkpoint, records).await,
    }
}

impl Queue {
    /// The maximum number of waiting writes before the run waits for them.
    const ROOM: usize = 64;

    /// The number of waiting writes that are stored although the run has other work.
    const BATCH: usize = 32;

    pub(crate) fn push(&mut self, write: Write) {
        self.waiting.push_back(write);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= Self::ROOM
    }

    pub(crate) fn is_idle(&mut self) -> bool {
        self.waiting.is_empty() && self.at_work().is_none()
    }

    /// Returns whether writes are being stored, or enough of them wait for a transaction.
    pub(crate) fn is_due(&mut self) -> bool {
        self.waiting.len() >= Self::BATCH || self.at_work().is_some()
    }

    fn at_work(&mut self) -> &mut Option<BoxFuture<'static, Written>> {
        self.at_work.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the waiting writes: ready after each transaction, never without any. After a failure the others are
    /// dropped, because they depend on the failed one.
    pub(crate) fn poll(
        &mut self,
        checkpointer: &Arc<dyn Checkpointer>,
        thread: &ThreadId,
        context: &mut Context<'_>,
    ) -> Poll<Written> {
        if self.at_work().is_none() {
            let Some(transaction) = self.next() else { return Poll::Pending };
            *self.at_work() = Some(transaction.begin(checkpointer.clone(), thread.clone()));
        }
        let Some(transaction) = self.at_work() else { return Poll::Pending };
        let written = ready!(transaction.as_mut().poll(context));
        *self.at_work() = None;
        if written.is_err() {
            self.waiting.clear();
        }
        Poll::Ready(written)
    }

    /// Takes the next writes that fit into one transaction.
    fn next(&mut self) -> Option<Transaction> {
        let mut next = match self.waiting.pop_front()? {
            Write::Commit { expected, commit, description } => Transaction::Commits {
                expected,
                commits: vec![*commit],
                descriptions: description.into_iter().map(|description| *description).collect(),
            },
            Write::Records { checkpoint, records } => Transaction::Records { checkpoint, records },
        };
        // All writes are to the head, as it is after the writes before.
        while let Some(write) = self.waiting.pop_front() {
            match (&mut next, write) {
                (
                    Transaction::Commits { commits, descriptions, .. },
                    Write::Commit { commit, description, .. },
                ) => {
                    commits.push(*commit);
                    descriptions.extend(description.map(|description| *description));
                }
                (Transaction::Commits { commits, .. }, Write::Records { records, .. }) => {
                    commits
                        .last_mut()
                        .expect("a transaction of commits has a commit")
                        .records
                        .extend(records);
                }
                (Transaction::Records { records: all, .. }, Write::Records { records, .. }) => {
                    all.extend(records);
                }
                (Transaction::Records { .. }, commit @ Write::Commit { .. }) => {
                    self.waiting.push_front(commit);
                    break;
                }
            }
        }
        Some(next)
    }
}

/// The supersteps since the last stored checkpoint.
#[derive(Default)]
pub(crate) struct UnstoredSupersteps {
    pub(crate) superstep: Option<UnstoredSuperstep>,
    /// The records of the tasks that follow it.
    pub(crate) records: BTreeMap<u32, TaskRecord>,
}

/// The last of them.
pub(crate) struct UnstoredSuperstep {
    /// The stored checkpoint before them, and its number of tasks.
    pub(crate) parent: Option<CheckpointId>,
    pub(crate) width: u32,
    pub(crate) control: Control,
    pub(crate) created_ms: i64,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) applied: Vec<AppliedTask>,
}

impl UnstoredSupersteps {
    /// Replaces the previous superstep.
    pub(crate) fn put(&mut self, mut next: UnstoredSuperstep) {
        // Only the previous checkpoint has the records of its tasks, and it is not stored.
        next.applied.iter_mut().for_each(|task| task.recorded = false);
        if let Some(UnstoredSuperstep { parent, width, .. }) = self.superstep.take() {
            (next.parent, next.width) = (parent, width);
            // These are not tasks of the stored checkpoint.
            next.applied.iter_mut().for_each(|task| task.slot += width);
        }
        self.superstep = Some(next);
        self.records.clear();
    }
}
