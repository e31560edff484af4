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

/// The result of a write: the checkpoint, if its event is to be emitted.
type Written = Result<Option<CheckpointMeta>, CheckpointError>;

pub(crate) enum Write {
    Commit { expected: Option<CheckpointId>, commit: Box<Commit>, told: Option<CheckpointMeta> },
    Record(TaskKey, TaskRecord),
}

impl Write {
    fn begin(self, checkpointer: Arc<dyn Checkpointer>, thread: ThreadId) -> BoxFuture<'static, Written> {
        Box::pin(async move {
            match self {
                Self::Commit { expected, commit, told } => {
                    checkpointer.commit(&thread, expected, *commit).await.map(|_| told)
                }
                Self::Record(task, record) => checkpointer.record(&task, record).await.map(|()| None),
            }
        })
    }
}

impl Queue {
    /// The maximum number of waiting writes before the run waits for them.
    const ROOM: usize = 64;

    pub(crate) fn push(&mut self, write: Write) {
        self.waiting.push_back(write);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= Self::ROOM
    }

    pub(crate) fn is_idle(&mut self) -> bool {
        self.waiting.is_empty() && self.at_work.get_mut().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Polls the writes: ready after each write, never without any. After a failure the others are dropped,
    /// because they depend on the failed one.
    pub(crate) fn poll(
        &mut self,
        checkpointer: &Arc<dyn Checkpointer>,
        thread: &ThreadId,
        context: &mut Context<'_>,
    ) -> Poll<Written> {
        let at_work = self.at_work.get_mut().unwrap_or_else(PoisonError::into_inner);
        let write = match at_work {
            Some(write) => write,
            None => {
                let Some(write) = self.waiting.pop_front() else { return Poll::Pending };
                at_work.insert(write.begin(checkpointer.clone(), thread.clone()))
            }
        };
        let written = ready!(write.as_mut().poll(context));
        *at_work = None;
        if written.is_err() {
            self.waiting.clear();
        }
        Poll::Ready(written)
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
