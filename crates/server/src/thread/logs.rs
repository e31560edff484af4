//! The logs of all threads with clients of the thread protocol.
//!
//! Start at [`ThreadLogs`].

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{rows::thread::ThreadKey, thread::log::ThreadLog};

/// The logs by thread. Those of threads without a run are dropped, the oldest first, if all take too many bytes.
pub(crate) struct ThreadLogs {
    known: Mutex<Known>,
    total: Arc<AtomicUsize>,
    /// The maximum size of one log in bytes, and about that of all.
    max_bytes: usize,
    max_total: usize,
}

#[derive(Default)]
struct Known {
    logs: BTreeMap<ThreadKey, Entry>,
    /// The threads without a run by the time of its end.
    ended: BTreeMap<u64, ThreadKey>,
    ends: u64,
}

struct Entry {
    log: Arc<ThreadLog>,
    ended: Option<u64>,
}

impl ThreadLogs {
    pub(crate) fn new(max_bytes: usize, max_total: usize) -> Self {
        Self { known: Mutex::default(), total: Arc::default(), max_bytes, max_total }
    }

    /// Returns the log of a thread, if a client has used the protocol on it.
    pub(crate) fn get(&self, thread: &ThreadKey) -> Option<Arc<ThreadLog>> {
        self.lock().logs.get(thread).map(|entry| entry.log.clone())
    }

    /// Returns the log of a thread, a new one if there is none.
    pub(crate) fn open(&self, thread: &ThreadKey) -> Arc<ThreadLog> {
        let new = || Entry { log: Arc::new(ThreadLog::new(self.max_bytes, self.total.clone())), ended: None };
        self.lock().logs.entry(thread.clone()).or_insert_with(new).log.clone()
    }

    /// Records that a thread has a run.
    pub(crate) fn begun(&self, thread: &ThreadKey) {
        let mut known = self.lock();
        let ended = known.logs.get_mut(thread).and_then(|entry| entry.ended.take());
        if let Some(ended) = ended {
            known.ended.remove(&ended);
        }
    }

    /// Records that the run of a thread has ended, and drops the events of other threads if all take too much.
    pub(crate) fn ended(&self, thread: &ThreadKey) {
        self.begun(thread);
        let mut known = self.lock();
        known.ends += 1;
        let end = known.ends;
        if let Some(entry) = known.logs.get_mut(thread) {
            entry.ended = Some(end);
            known.ended.insert(end, thread.clone());
        }
        while self.total.load(Ordering::Relaxed) > self.max_total {
            let Some((_, oldest)) = known.ended.pop_first() else { break };
            if let Some(entry) = known.logs.get_mut(&oldest) {
                entry.ended = None;
                entry.log.clear();
                known.drop_unused(&oldest);
            }
        }
    }

    /// Drops the log of a thread if nothing is in it and no client reads it.
    pub(crate) fn release(&self, thread: &ThreadKey) {
        self.lock().drop_unused(thread);
    }

    /// Drops the events of a thread.
    pub(crate) fn remove(&self, thread: &ThreadKey) {
        let mut known = self.lock();
        if let Some(entry) = known.logs.get(thread) {
            entry.log.clear();
            known.drop_unused(thread);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn drop_unused(&mut self, thread: &ThreadKey) {
        let is_unused = |entry: &Entry| {
            entry.log.is_blank() && entry.log.is_empty() && Arc::strong_count(&entry.log) == 1
        };
        if !self.logs.get(thread).is_some_and(is_unused) {
            return;
        }
        if let Some(ended) = self.logs.remove(thread).and_then(|entry| entry.ended) {
            self.ended.remove(&ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::thread::{
        event::{Channel, Draft},
        log::{Read, ThreadReader},
    };

    fn key(thread: &str) -> ThreadKey {
        ThreadKey { thread: thread.to_owned(), owner: None }
    }

    fn drafts(count: usize) -> Vec<Draft> {
        let data = json!("x".repeat(1_000));
        (0..count).map(|_| Draft::new(Channel::Custom, &[], 0, data.clone())).collect()
    }

    #[test]
    fn the_threads_whose_runs_ended_first_are_dropped() {
        let logs = ThreadLogs::new(100_000, 20_000);
        let first = logs.open(&key("first"));
        let mut reader = ThreadReader::new(first.clone(), None);
        for thread in ["first", "second", "third", "fourth"] {
            logs.open(&key(thread)).seed(drafts(5));
            logs.ended(&key(thread));
        }
        assert!(logs.total.load(Ordering::Relaxed) <= 20_000);
        // One of them has a reader, which lost its events.
        assert!(first.is_empty() && logs.get(&key("first")).is_some());
        assert!(matches!(reader.read(), Read::Lost));
        assert!(logs.get(&key("second")).is_none_or(|log| !log.is_empty()));
        assert!(!logs.get(&key("fourth")).unwrap().is_empty());
        drop((first, reader));
        logs.release(&key("first"));
        assert!(logs.get(&key("first")).is_none());
    }

    #[test]
    fn a_log_drops_its_oldest_events_and_a_thread_that_runs_is_not_dropped() {
        let logs = ThreadLogs::new(10_000, 1);
        let log = logs.open(&key("t"));
        let mut slow = ThreadReader::new(log.clone(), None);
        log.seed(drafts(50));
        assert!(matches!(slow.read(), Read::Lost));
        let mut late = ThreadReader::new(log.clone(), Some(0));
        let Read::Event(oldest) = late.read() else { panic!("no event") };
        let mut next = ThreadReader::new(log.clone(), Some(oldest.seq));
        assert!(matches!(next.read(), Read::Event(event) if event.seq == oldest.seq + 1));
        logs.ended(&key("other"));
        assert!(!log.is_empty());
        logs.ended(&key("t"));
        assert!(log.is_empty());
    }
}
