//! Objects in memory whose journals are replayed: a cluster without the cluster, for tests.
//!
//! Start at [`MemoryObjects`].

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use serde::{Deserialize, Serialize};
use superstep_checkpoint::{CheckpointError, CheckpointMeta, History, Lease, ThreadId, internal::leftovers};

use crate::{
    journaled::{AttemptError, Drained, Journal},
    keys::Keys,
    kv::{Kv, Memory},
    request::{Reply, Request},
    requests::{Names, Objects},
    storage::serve,
};

/// The number of operations after which an invocation ends.
const INVOCATION: usize = 200;

/// An operation of an invocation on its object, which a replay must repeat.
#[derive(Clone, Debug, PartialEq)]
enum Op {
    Entry(Bytes),
    Get(Vec<String>, Vec<Option<Bytes>>),
    Keys(Vec<String>),
    Set(String, Option<Bytes>),
}

/// The text of an operation in a fixture.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Entry(String),
    Get(Vec<String>, Vec<Option<String>>),
    Keys(Vec<String>),
    Set(String, Option<String>),
}

impl Line {
    fn of(op: &Op) -> Self {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).expect("entries are texts");
        match op {
            Op::Entry(entry) => Self::Entry(text(entry)),
            Op::Get(keys, values) => {
                Self::Get(keys.clone(), values.iter().map(|value| value.as_ref().map(text)).collect())
            }
            Op::Keys(keys) => Self::Keys(keys.clone()),
            Op::Set(key, value) => Self::Set(key.clone(), value.as_ref().map(text)),
        }
    }

    fn op(self) -> Op {
        match self {
            Self::Entry(entry) => Op::Entry(entry.into()),
            Self::Get(keys, values) => {
                Op::Get(keys, values.into_iter().map(|value| value.map(Bytes::from)).collect())
            }
            Self::Keys(keys) => Op::Keys(keys),
            Self::Set(key, value) => Op::Set(key, value.map(Bytes::from)),
        }
    }
}

/// The entries of an object, and the journal of its invocation.
#[derive(Debug, Default)]
pub(crate) struct MemoryObject {
    pub(crate) entries: BTreeMap<String, Bytes>,
    journal: Vec<Op>,
    /// The next operation; those before it were replayed.
    at: usize,
    /// The number of operations after which the process ends.
    pub(crate) crash_at: Option<usize>,
}

impl MemoryObject {
    /// Begins another attempt of the invocation.
    pub(crate) fn restart(&mut self, crash_at: Option<usize>) {
        (self.at, self.crash_at) = (0, crash_at);
    }

    /// Returns the journal, one line of JSON for each operation.
    pub(crate) fn lines(&self) -> String {
        let line = |op| serde_json::to_string(&Line::of(op)).expect("texts are JSON") + "\n";
        self.journal.iter().map(line).collect()
    }

    /// Creates an object with a journal, which is not replayed yet.
    pub(crate) fn of_lines(text: &str) -> Self {
        let op = |line| serde_json::from_str::<Line>(line).expect("a line is an operation").op();
        Self { journal: text.lines().map(op).collect(), ..Self::default() }
    }

    /// Returns the number of operations of the invocation.
    pub(crate) fn operations(&self) -> usize {
        self.journal.len()
    }

    /// Returns the operation of an earlier attempt that comes next.
    fn replayed(&mut self) -> Option<Op> {
        let op = self.journal.get(self.at).cloned();
        self.at += usize::from(op.is_some());
        op
    }

    fn append(&mut self, op: Op) {
        self.journal.push(op);
        self.at = self.journal.len();
    }

    pub(crate) fn is_crashed(&self) -> bool {
        self.crash_at.is_some_and(|most| self.journal.len() >= most)
    }

    /// Waits for ever if the process has ended.
    async fn is_alive(&self) {
        if self.is_crashed() {
            std::future::pending().await
        }
    }
}

impl Kv for MemoryObject {
    fn get_all(&mut self, keys: Vec<String>) -> BoxFuture<'_, Result<Vec<Option<Bytes>>, CheckpointError>> {
        Box::pin(async move {
            match self.replayed() {
                Some(Op::Get(known, values)) if known == keys => Ok(values),
                Some(op) => panic!("a replay reads {keys:?} instead of {op:?}"),
                None => {
                    self.is_alive().await;
                    let values: Vec<_> = keys.iter().map(|key| self.entries.get(key).cloned()).collect();
                    self.append(Op::Get(keys, values.clone()));
                    Ok(values)
                }
            }
        })
    }

    fn keys(&mut self) -> BoxFuture<'_, Result<Vec<String>, CheckpointError>> {
        Box::pin(async move {
            match self.replayed() {
                Some(Op::Keys(keys)) => Ok(keys),
                Some(op) => panic!("a replay reads the names instead of {op:?}"),
                None => {
                    self.is_alive().await;
                    let keys: Vec<_> = self.entries.keys().cloned().collect();
                    self.append(Op::Keys(keys.clone()));
                    Ok(keys)
                }
            }
        })
    }

    fn set(&mut self, key: String, value: Option<Bytes>) {
        let op = Op::Set(key.clone(), value.clone());
        match self.replayed() {
            Some(known) => assert_eq!(known, op, "a replay writes something else"),
            None if self.is_crashed() => {}
            None => {
                self.append(op);
                match value {
                    Some(value) => self.entries.insert(key, value),
                    None => self.entries.remove(&key),
                };
            }
        }
    }
}

impl Journal for MemoryObject {
    fn entry<'a>(
        &'a mut self,
        make: BoxFuture<'a, Result<Vec<u8>, Drained>>,
    ) -> BoxFuture<'a, Result<Bytes, AttemptError>> {
        Box::pin(async move {
            match self.replayed() {
                Some(Op::Entry(text)) => Ok(text),
                Some(op) => panic!("a replay begins an entry instead of {op:?}"),
                None => {
                    self.is_alive().await;
                    let text = Bytes::from(make.await?);
                    self.append(Op::Entry(text.clone()));
                    Ok(text)
                }
            }
        })
    }

    fn serve_beside(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, CheckpointError>> {
        Box::pin(async move { panic!("no test posts to thread `{}`", request.thread()) })
    }
}

/// The objects of a cluster by the name of their root thread.
#[derive(Debug, Default)]
pub(crate) struct MemoryObjects {
    objects: Mutex<BTreeMap<ThreadId, (MemoryObject, Memory)>>,
    leases: Arc<Mutex<HashSet<ThreadId>>>,
}

impl MemoryObjects {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ThreadId, (MemoryObject, Memory)>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn served(&self, request: &Request) -> Result<Reply, CheckpointError> {
        let root = request.thread().root();
        let mut objects = self.lock();
        let (object, memory) = objects.entry(root).or_default();
        if object.journal.len() > INVOCATION {
            object.journal.clear();
            *memory = Memory::default();
            object.restart(None);
        }
        object.append(Op::Entry(request.encode()?.into()));
        ready(serve(object, memory, &"memory", decoded(request)))
    }

    /// Creates the objects of a cluster with one thread.
    pub(crate) fn of(thread: &str, object: MemoryObject) -> Arc<Self> {
        let objects = Self::default();
        objects.lock().insert(thread.into(), (object, Memory::default()));
        Arc::new(objects)
    }

    /// Returns the journal of a thread, one line of JSON for each operation.
    pub(crate) fn lines(&self, thread: &str) -> String {
        self.lock()[&ThreadId::from(thread)].0.lines()
    }

    /// Replays the journal of each object, as another process does.
    pub(crate) fn replay(&self) {
        for (object, memory) in self.lock().values_mut() {
            object.restart(None);
            *memory = Memory::default();
            while let Some(op) = object.replayed() {
                let Op::Entry(text) = op else { panic!("a replay does less: {op:?}") };
                let request: Request = serde_json::from_slice(&text).expect("it was encoded");
                let _ = ready(serve(object, memory, &"memory", request));
            }
        }
    }
}

/// Returns the result of a request in memory, where nothing is waited for.
fn ready<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("entries in memory are ready")
}

/// Returns what a journal returns for a request.
fn decoded(request: &Request) -> Request {
    serde_json::from_slice(&request.encode().expect("it is small")).expect("it was encoded")
}

impl Objects for MemoryObjects {
    fn serve(&self, request: Request) -> BoxFuture<'static, Result<Reply, CheckpointError>> {
        Box::pin(std::future::ready(self.served(&request)))
    }

    fn lease(&self, thread: &ThreadId) -> BoxFuture<'static, Result<Lease, CheckpointError>> {
        let (leases, thread) = (self.leases.clone(), thread.clone());
        let is_free = leases.lock().unwrap_or_else(PoisonError::into_inner).insert(thread.clone());
        let leased = if is_free {
            Ok(Lease::new(Guard(leases, thread)))
        } else {
            Err(CheckpointError::Busy { thread })
        };
        Box::pin(std::future::ready(leased))
    }

    fn has_writer(&self, thread: &ThreadId) -> BoxFuture<'static, Result<bool, CheckpointError>> {
        let is = self.leases.lock().unwrap_or_else(PoisonError::into_inner).contains(thread);
        Box::pin(std::future::ready(Ok(is)))
    }

    fn copy(&self, from: &ThreadId, to: &ThreadId) -> BoxFuture<'static, Result<(), CheckpointError>> {
        let mut objects = self.lock();
        let names = |thread: &ThreadId| -> Vec<String> {
            objects.get(thread).into_iter().flat_map(|(object, _)| object.entries.keys().cloned()).collect()
        };
        let copied = if from.is_child() || to.is_child() || !names(from).contains(&Keys::of(from).head()) {
            Err(CheckpointError::NoThread { thread: from.clone() })
        } else if names(to).iter().any(|key| Keys::of(to).has(key)) {
            Err(CheckpointError::ThreadExists { thread: to.clone() })
        } else {
            let source = objects[from].0.entries.clone().into_iter();
            let (target, memory) = objects.entry(to.clone()).or_default();
            *memory = Memory::default();
            target.journal.clear();
            target.restart(None);
            target.entries.extend(source.filter(|(key, _)| Keys::of(from).has(key)));
            Ok(())
        };
        Box::pin(std::future::ready(copied))
    }

    fn names(&self) -> BoxFuture<'static, Result<Names, CheckpointError>> {
        let mut names = Names::default();
        for (root, (object, _)) in &*self.lock() {
            let keys: Vec<String> = object.entries.keys().cloned().collect();
            if keys.contains(&Keys::of(root).head()) {
                names.threads.push(root.clone());
            } else if !leftovers(Keys::of(root).children(root, &keys)).is_empty() {
                names.orphans.push(root.clone());
            }
        }
        Box::pin(std::future::ready(Ok(names)))
    }

    fn heads(&self) -> BoxFuture<'static, Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError>> {
        let names: Vec<ThreadId> = self.lock().keys().cloned().collect();
        let newest = |thread: ThreadId| {
            let range = History { limit: Some(1), ..History::default() }.into();
            match self.served(&Request::History { thread: thread.clone(), range })? {
                Reply::History(found) => Ok(found.into_iter().next().map(|head| (thread, head))),
                _ => Ok(None),
            }
        };
        let heads = names.into_iter().filter_map(|thread| newest(thread).transpose()).collect();
        Box::pin(std::future::ready(heads))
    }
}

/// A lease that ends when it is dropped.
struct Guard(Arc<Mutex<HashSet<ThreadId>>>, ThreadId);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

mod tests {
    use superstep_testing::conformance;

    use super::*;
    use crate::requests::Requests;

    conformance!(
        checkpointer memory,
        place = Some(Arc::<MemoryObjects>::default()),
        open = async |objects: &Arc<MemoryObjects>| {
            objects.replay();
            Requests(objects.clone())
        },
    );
}
