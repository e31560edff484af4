//! Objects in memory: the storage of a cluster without the cluster, for tests.
//!
//! Start at [`MemoryObjects`].

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{FutureExt, future::BoxFuture};
use superstep_checkpoint::{CheckpointError, CheckpointMeta, History, Lease, ThreadId, internal::leftovers};

use crate::{
    keys::Keys,
    kv::{Memory, MemoryKv},
    request::{Reply, Request},
    requests::{Names, Objects},
    storage::serve,
};

/// The entries of objects by the name of their root thread.
#[derive(Debug, Default)]
pub(crate) struct MemoryObjects {
    objects: Mutex<BTreeMap<ThreadId, MemoryKv>>,
    leases: Arc<Mutex<HashSet<ThreadId>>>,
}

impl MemoryObjects {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ThreadId, MemoryKv>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn served(&self, request: Request) -> Result<Reply, CheckpointError> {
        let root = request.thread().root();
        let mut objects = self.lock();
        let kv = objects.entry(root).or_default();
        // Nothing in memory is waited for.
        serve(kv, &mut Memory::default(), &"memory", request)
            .now_or_never()
            .expect("entries in memory are ready")
    }
}

impl Objects for MemoryObjects {
    fn serve(&self, request: Request) -> BoxFuture<'static, Result<Reply, CheckpointError>> {
        Box::pin(std::future::ready(self.served(request)))
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
        let has = |object: Option<&MemoryKv>, key: &str| object.is_some_and(|kv| kv.0.contains_key(key));
        let head = Keys::of(from).head();
        let copied = if from.is_child() || to.is_child() || !has(objects.get(from), &head) {
            Err(CheckpointError::NoThread { thread: from.clone() })
        } else if objects.get(to).is_some_and(|kv| kv.0.keys().any(|key| Keys::of(to).has(key))) {
            Err(CheckpointError::ThreadExists { thread: to.clone() })
        } else {
            let source: Vec<_> = objects[from].0.clone().into_iter().collect();
            let target = &mut objects.entry(to.clone()).or_default().0;
            target.extend(source.into_iter().filter(|(key, _)| Keys::of(from).has(key)));
            Ok(())
        };
        Box::pin(std::future::ready(copied))
    }

    fn names(&self) -> BoxFuture<'static, Result<Names, CheckpointError>> {
        let mut names = Names::default();
        for (root, kv) in &*self.lock() {
            let keys: Vec<String> = kv.0.keys().cloned().collect();
            if kv.0.contains_key("h") {
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
            match self.served(Request::History { thread: thread.clone(), range })? {
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

#[cfg(test)]
mod tests {
    use superstep_testing::conformance;

    use super::*;
    use crate::requests::Requests;

    conformance!(
        checkpointer memory,
        place = Some(Arc::<MemoryObjects>::default()),
        open = async |objects: &Arc<MemoryObjects>| Requests(objects.clone()),
    );
}
