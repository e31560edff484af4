//! Effects of nodes that must not be repeated.
//!
//! Start at [`Cx::once`](crate::Cx::once).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Context,
};

use futures::task::AtomicWaker;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_engine::TaskId;
use superstep_state::RawJson;
use tokio::sync::oneshot;

/// The stored form of an effect's error, without its type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Failed {
    /// Only the error's message.
    Message(String),
    Whole {
        /// The messages of the error and of its causes.
        says: Vec<String>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        fatal: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<Value>,
    },
}

/// An error of which only the messages are known.
#[derive(Debug, Default, thiserror::Error)]
#[error("{says}")]
pub(crate) struct StoredError {
    pub(crate) says: String,
    pub(crate) source: Option<Box<StoredError>>,
}

/// The effect results of a run's tasks. The driver stores them, because it has the rest of each task's
/// record.
#[derive(Default)]
pub(crate) struct EffectLog {
    pages: Mutex<Pages>,
    /// The driver's.
    waker: AtomicWaker,
}

#[derive(Default)]
struct Pages {
    /// The superstep of these tasks.
    step: i64,
    tasks: BTreeMap<u32, Page>,
    requests: Vec<Request>,
    closed: bool,
}

/// The effects of a task.
#[derive(Default)]
struct Page {
    /// By name.
    results: BTreeMap<String, RawJson>,
    stored: BTreeSet<String>,
    /// The results of called graphs that they have not stored yet, by name. A record contains them if this task stops first.
    lent: BTreeMap<String, RawJson>,
    /// The locks of effects, by name.
    turns: BTreeMap<String, Arc<tokio::sync::Mutex<()>>>,
}

/// A task that waits until its results are stored.
pub(crate) struct Request {
    pub(crate) task: TaskId,
    /// Dropped if they cannot be stored, because the task has ended.
    pub(crate) stored: oneshot::Sender<()>,
    /// `true` if they must survive a power failure.
    pub(crate) durable: bool,
}

impl Pages {
    /// Returns the page of a task; `None` if the task's superstep or the run has ended.
    fn page(&mut self, task: TaskId) -> Option<&mut Page> {
        if self.closed || task.step < self.step {
            return None;
        }
        if task.step > self.step {
            self.step = task.step;
            self.tasks.clear();
        }
        Some(self.tasks.entry(task.slot).or_default())
    }

    fn request(&mut self, task: TaskId, durable: bool) -> oneshot::Receiver<()> {
        let (stored, waiting) = oneshot::channel();
        self.requests.push(Request { task, stored, durable });
        waiting
    }
}

impl EffectLog {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn turn(&self, task: TaskId, name: &str) -> Option<Arc<tokio::sync::Mutex<()>>> {
        let mut pages = self.pages();
        Some(pages.page(task)?.turns.entry(name.to_owned()).or_default().clone())
    }

    pub(crate) fn result(&self, task: TaskId, name: &str) -> Option<RawJson> {
        let mut pages = self.pages();
        let Page { results, lent, .. } = pages.page(task)?;
        results.get(name).or_else(|| lent.get(name)).cloned()
    }

    pub(crate) fn put(&self, task: TaskId, name: &str, json: RawJson) {
        if let Some(page) = self.pages().page(task) {
            page.results.insert(name.to_owned(), json);
        }
    }

    /// Adds a result of a called graph until [`take_back`](Self::take_back).
    pub(crate) fn lend(&self, task: TaskId, name: &str, json: RawJson) {
        if let Some(page) = self.pages().page(task) {
            page.lent.insert(name.to_owned(), json);
        }
    }

    pub(crate) fn take_back(&self, task: TaskId, name: &str) {
        if let Some(page) = self.pages().page(task) {
            page.lent.remove(name);
        }
    }

    /// Waits until the driver has stored a result; `None` if it cannot.
    pub(crate) async fn store(&self, task: TaskId, name: &str) -> Option<()> {
        let waiting = {
            let mut pages = self.pages();
            if pages.page(task)?.stored.contains(name) {
                return Some(());
            }
            pages.request(task, false)
        };
        self.waker.wake();
        waiting.await.ok()
    }

    /// Waits until the driver has synced all stored data to the disk; `None` if it cannot.
    pub(crate) async fn sync(&self, task: TaskId) -> Option<()> {
        let waiting = {
            let mut pages = self.pages();
            pages.page(task)?;
            pages.request(task, true)
        };
        self.waker.wake();
        waiting.await.ok()
    }

    /// Returns the pending storage requests; wakes the driver when there are new ones.
    pub(crate) fn requests(&self, context: &Context<'_>) -> Vec<Request> {
        self.waker.register(context.waker());
        std::mem::take(&mut self.pages().requests)
    }

    /// Returns the results of a task, by name.
    pub(crate) fn results(&self, task: TaskId) -> BTreeMap<String, RawJson> {
        let pages = self.pages();
        let page = pages.tasks.get(&task.slot).filter(|_| pages.step == task.step);
        page.map(|page| page.lent.clone().into_iter().chain(page.results.clone()).collect())
            .unwrap_or_default()
    }

    /// Drops the results of a task: its error handler has its own effects.
    pub(crate) fn forget(&self, task: TaskId) {
        self.pages().tasks.remove(&task.slot);
    }

    /// Returns whether a task has results that are not stored.
    pub(crate) fn is_ahead(&self, task: TaskId) -> bool {
        let pages = self.pages();
        let page = pages.tasks.get(&task.slot).filter(|_| pages.step == task.step);
        page.is_some_and(|page| page.stored.len() < page.results.len() || !page.lent.is_empty())
    }

    /// Returns the tasks that have results that are not stored.
    pub(crate) fn ahead(&self) -> Vec<TaskId> {
        let (step, slots): (i64, Vec<u32>) = {
            let pages = self.pages();
            (pages.step, pages.tasks.keys().copied().collect())
        };
        slots.into_iter().map(|slot| TaskId { step, slot }).filter(|task| self.is_ahead(*task)).collect()
    }

    /// Returns the results of a task that are not stored.
    pub(crate) fn unstored(&self, task: TaskId) -> BTreeMap<String, RawJson> {
        let mut pages = self.pages();
        let Some(page) = pages.page(task) else { return BTreeMap::new() };
        let new = page.results.iter().filter(|(name, _)| !page.stored.contains(*name));
        new.map(|(name, json)| (name.clone(), json.clone())).collect()
    }

    /// Records that these results of a task are stored.
    pub(crate) fn is_stored(&self, task: TaskId, names: Vec<String>) {
        if let Some(page) = self.pages().page(task) {
            page.stored.extend(names);
        }
    }

    /// Restores the stored results of a task.
    pub(crate) fn restore(&self, task: TaskId, results: BTreeMap<String, RawJson>) {
        if results.is_empty() {
            return;
        }
        if let Some(page) = self.pages().page(task) {
            page.stored.extend(results.keys().cloned());
            page.results.extend(results);
        }
    }

    /// Rejects waiting and later requests. The known results remain, for the last records.
    pub(crate) fn close(&self) {
        let requests = {
            let mut pages = self.pages();
            pages.closed = true;
            std::mem::take(&mut pages.requests)
        };
        drop(requests);
    }
}
