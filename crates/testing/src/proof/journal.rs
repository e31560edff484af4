//! The journal of a process: its requests to the database and their answers, as lines of JSON with the time of the machine's clock. A
//! killed process leaves requests without an answer.
//!
//! Start at [`Journal`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::wrapped::Wrapper;
use futures::future::BoxFuture;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use superstep_graph::{
    CheckpointId, Checkpointer, ThreadId,
    checkpoint::{CheckpointError, Commit, Lease, Loaded, TaskKey, TaskRecord},
    state::RawJson,
};

use super::checker::{Operation, Outcome, What};

/// The entry in the metadata of a checkpoint with the name of its commit.
pub const WRITER: &str = "writer";

#[derive(Serialize, Deserialize)]
enum Line {
    Begun(u64, Operation),
    Ended(u64, u64, Outcome),
}

/// An open journal.
pub struct Journal {
    process: String,
    file: Mutex<fs::File>,
    next: AtomicU64,
    /// The names of the leases that this process has.
    leases: Mutex<BTreeMap<ThreadId, String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

impl Journal {
    pub fn create(folder: &Path, process: &str) -> Arc<Self> {
        let file = fs::File::create_new(folder.join(process)).unwrap();
        let (next, leases) = (AtomicU64::new(0), Mutex::default());
        Arc::new(Self { process: process.to_owned(), file: Mutex::new(file), next, leases })
    }

    /// Returns a number that no other operation of this process has, and a name that no other operation has.
    fn number(&self) -> (u64, String) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number, format!("{}.{number}", self.process))
    }

    fn lease(&self, thread: &ThreadId) -> Option<String> {
        lock(&self.leases).get(&thread.root()).cloned()
    }

    fn write(&self, line: &Line) {
        let mut text = serde_json::to_vec(line).unwrap();
        text.push(b'\n');
        lock(&self.file).write_all(&text).unwrap();
    }

    fn begin(&self, number: u64, thread: &ThreadId, lease: Option<String>, what: What) {
        let thread = thread.to_string();
        let operation = Operation { thread, lease, what, begun: now(), ended: None };
        self.write(&Line::Begun(number, operation));
    }

    fn end(&self, number: u64, outcome: Outcome) {
        self.write(&Line::Ended(number, now(), outcome));
    }

    /// Adds a request that ends with `outcome`.
    pub async fn send(&self, thread: &ThreadId, id: &str, request: impl Future<Output = bool>) -> bool {
        let (number, _) = self.number();
        self.begin(number, thread, None, What::Send { id: id.to_owned() });
        let is_done = request.await;
        self.end(number, if is_done { Outcome::Done { head: 0 } } else { Outcome::Unknown });
        is_done
    }

    /// Adds an effect, before it is executed.
    pub fn execute(&self, thread: &ThreadId, name: &str, key: &str) {
        let (number, _) = self.number();
        let what = What::Execute { name: name.to_owned(), key: key.to_owned() };
        self.begin(number, thread, self.lease(thread), what);
        self.end(number, Outcome::Done { head: 0 });
    }
}

/// Reads the journals in a folder.
pub fn read(folder: &Path) -> Vec<Operation> {
    let mut all = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let mut operations = BTreeMap::new();
        for line in text.split_inclusive('\n') {
            // The last line of a killed process may be cut.
            let Some(line) = line.strip_suffix('\n') else { break };
            match serde_json::from_str(line).unwrap() {
                Line::Begun(number, operation) => drop(operations.insert(number, operation)),
                Line::Ended(number, at, outcome) => {
                    operations.get_mut(&number).unwrap().ended = Some((at, outcome));
                }
            }
        }
        all.extend(operations.into_values());
    }
    all
}

fn outcome<T>(result: &Result<T, CheckpointError>, head: impl FnOnce(&T) -> u64) -> Outcome {
    match result {
        Ok(done) => Outcome::Done { head: head(done) },
        Err(
            CheckpointError::Busy { .. }
            | CheckpointError::Conflict { .. }
            | CheckpointError::LeaseLost { .. },
        ) => Outcome::Refused,
        Err(_) => Outcome::Unknown,
    }
}

/// A checkpointer whose requests are in a journal.
pub struct Journaled {
    pub store: Arc<dyn Checkpointer>,
    pub journal: Arc<Journal>,
    /// Leases are no requests: a lease is received with the answer to the first request under it.
    pub leases_by_request: bool,
}

/// Removes a lease from those of the process when it is released.
struct Held {
    journal: Arc<Journal>,
    thread: ThreadId,
    _lease: Lease,
}

impl Drop for Held {
    fn drop(&mut self) {
        lock(&self.journal.leases).remove(&self.thread);
    }
}

impl Journaled {
    async fn recorded<T>(
        &self,
        task: &TaskKey,
        keys: BTreeSet<String>,
        request: BoxFuture<'_, Result<T, CheckpointError>>,
        is_stored: impl FnOnce(&T) -> bool,
    ) -> Result<T, CheckpointError> {
        let (number, _) = self.journal.number();
        let what = What::Record { keys: keys.into_iter().collect() };
        self.journal.begin(number, &task.thread, self.journal.lease(&task.thread), what);
        let result = request.await;
        let end = match &result {
            Ok(done) if !is_stored(done) => Outcome::Refused,
            _ => outcome(&result, |_| 0),
        };
        self.journal.end(number, end);
        result
    }
}

/// Returns the keys in the results of effects, which are the keys themselves.
fn keys<'a>(results: impl IntoIterator<Item = &'a RawJson>) -> BTreeSet<String> {
    results.into_iter().filter_map(|result| serde_json::from_str(result).ok()).collect()
}

impl Wrapper for Journaled {
    fn store(&self) -> &dyn Checkpointer {
        &*self.store
    }

    fn lease(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Lease, CheckpointError>> {
        let ((number, name), thread) = (self.journal.number(), thread.clone());
        self.journal.begin(number, &thread, Some(name.clone()), What::Lease);
        let request = self.store.lease(&thread);
        Box::pin(async move {
            let mut result = request.await;
            if self.leases_by_request && result.is_ok() {
                let loaded = self.store.load(&thread, None).await;
                result = result.and_then(|lease| loaded.map(|_| lease));
            }
            self.journal.end(number, outcome(&result, |_| 0));
            let lease = result?;
            lock(&self.journal.leases).insert(thread.clone(), name);
            Ok(Lease::new(Held { journal: self.journal.clone(), thread, _lease: lease }))
        })
    }

    fn load(
        &self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> BoxFuture<'_, Result<Option<Loaded>, CheckpointError>> {
        if at.is_some() {
            return self.store.load(thread, at);
        }
        let (number, _) = self.journal.number();
        self.journal.begin(number, thread, self.journal.lease(thread), What::Load);
        let request = self.store.load(thread, at);
        Box::pin(async move {
            let result = request.await;
            let head = |loaded: &Option<Loaded>| loaded.as_ref().map_or(0, |loaded| loaded.head.0);
            self.journal.end(number, outcome(&result, head));
            result
        })
    }

    fn record(&self, task: &TaskKey, record: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let keys = keys(record.once().into_iter().flat_map(|once| once.values()));
        let (task, request) = (task.clone(), self.store.record(task, record));
        Box::pin(async move { self.recorded(&task, keys, request, |()| true).await })
    }

    fn add_effects(
        &self,
        task: &TaskKey,
        results: BTreeMap<String, RawJson>,
    ) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let keys = keys(results.values());
        let (task, request) = (task.clone(), self.store.add_effects(task, results));
        Box::pin(async move { self.recorded(&task, keys, request, |is_stored| *is_stored).await })
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        mut next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        let (number, writer) = self.journal.number();
        Arc::make_mut(&mut next.metadata).insert(WRITER.to_owned(), writer.clone().into());
        self.journal.begin(number, thread, self.journal.lease(thread), What::Commit { writer });
        let request = self.store.commit(thread, expected, next);
        Box::pin(async move {
            let result = request.await;
            self.journal.end(number, outcome(&result, |id| id.0));
            result
        })
    }
}
