//! Counters of the graphs that a run's tasks call.
//!
//! Start at [`Calls`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use superstep_engine::{NodeIndex, NodeName, TaskId};

/// Derives the RNG seed of one participant from a shared seed: FNV-1a over its name.
pub(crate) fn mix(seed: u64, name: impl Iterator<Item = u8>) -> u64 {
    name.fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The calls of a superstep's tasks.
#[derive(Default)]
pub(crate) struct Calls {
    inner: Mutex<Book>,
    /// The number of running called graphs; a shortcut for most tasks.
    pub(crate) at_work: AtomicUsize,
}

#[derive(Default)]
pub(crate) struct Book {
    pub(crate) step: i64,
    /// By slot.
    pub(crate) tasks: BTreeMap<u32, TaskCalls>,
    /// The task that called a graph with one thread, by node and key.
    pub(crate) own: BTreeMap<(NodeName, String), u32>,
}

#[derive(Default)]
pub(crate) struct TaskCalls {
    /// The node that runs as the task, or its error handler, and its attempt.
    pub(crate) by: Option<(NodeIndex, u32)>,
    pub(crate) keys: BTreeSet<String>,
    pub(crate) at_work: usize,
}

impl Calls {
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a graph called by this task is running.
    #[inline]
    pub(crate) fn at_work(&self, task: TaskId) -> bool {
        self.at_work.load(Ordering::Acquire) > 0 && {
            let book = self.book();
            book.step == task.step && book.tasks.get(&task.slot).is_some_and(|calls| calls.at_work > 0)
        }
    }
}
