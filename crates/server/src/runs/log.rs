//! The log of a run, which any number of readers follow, each at its own pace.
//!
//! Start at [`RunLog`].

use std::{
    collections::VecDeque,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{events::event::RunEvent, thread::log::RunEvents};

/// The events of a run, in memory. If they take more than the limit, the oldest are dropped, and readers that have not read them
/// lose their stream. The run never waits for a reader.
pub(crate) struct RunLog {
    inner: Mutex<Inner>,
    changed: watch::Sender<()>,
    max_bytes: usize,
}

#[derive(Default)]
struct Inner {
    entries: VecDeque<Arc<Entry>>,
    bytes: usize,
    dropped: usize,
    has_ended: bool,
}

/// An event with its number, which grows over all runs of the server, and over its restarts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    pub(crate) at_ms: i64,
    pub(crate) event: RunEvent,
}

/// The result of a read.
#[derive(Debug)]
pub(crate) enum Read {
    Event(Arc<Entry>),
    /// The reader was too slow: the next event was dropped.
    Lost,
    /// The run has ended, and all its events are read.
    End,
}

impl RunLog {
    /// Creates an empty log that takes at most about so many bytes.
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { inner: Mutex::default(), changed: watch::Sender::new(()), max_bytes }
    }

    pub(crate) fn push(&self, entry: Entry) {
        {
            let mut inner = self.lock();
            inner.bytes += entry.event.size();
            inner.entries.push_back(Arc::new(entry));
            while inner.bytes > self.max_bytes && inner.entries.len() > 1 {
                let Some(oldest) = inner.entries.pop_front() else { break };
                inner.bytes -= oldest.event.size();
                inner.dropped += 1;
            }
        }
        self.changed.send_replace(());
    }

    /// Ends the log: readers end once they have read it.
    pub(crate) fn end(&self) {
        self.lock().has_ended = true;
        self.changed.send_replace(());
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// Returns the number of the newest event.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.lock().entries.back().map(|entry| entry.number)
    }

    /// Returns whether no event after the one with this number was dropped.
    pub(crate) fn has_all_after(&self, number: u64) -> bool {
        let inner = self.lock();
        inner.dropped == 0 || inner.entries.front().is_some_and(|oldest| oldest.number <= number + 1)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunEvents for RunLog {
    fn each_after(&self, number: u64, each: &mut dyn FnMut(u64, i64, &RunEvent)) {
        let new: Vec<_> = {
            let inner = self.lock();
            let count = inner.entries.iter().rev().take_while(|entry| entry.number > number).count();
            inner.entries.iter().skip(inner.entries.len() - count).cloned().collect()
        };
        new.iter().for_each(|entry| each(entry.number, entry.at_ms, &entry.event));
    }

    fn is_over(&self) -> bool {
        self.has_ended()
    }
}

/// A reader of a log, from its first event that is still there.
pub(crate) struct LogReader<L> {
    log: L,
    changed: watch::Receiver<()>,
    next: usize,
}

impl AsRef<Self> for RunLog {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl<L: Deref<Target: AsRef<RunLog>>> LogReader<L> {
    pub(crate) fn new(log: L) -> Self {
        let changed = log.deref().as_ref().changed.subscribe();
        let next = log.deref().as_ref().lock().dropped;
        Self { log, changed, next }
    }

    /// Returns the next event, and waits for it.
    pub(crate) async fn next(&mut self) -> Read {
        loop {
            {
                self.changed.mark_unchanged();
                let inner = self.log.deref().as_ref().lock();
                let Some(at) = self.next.checked_sub(inner.dropped) else { return Read::Lost };
                if let Some(entry) = inner.entries.get(at) {
                    self.next += 1;
                    return Read::Event(entry.clone());
                }
                if inner.has_ended {
                    return Read::End;
                }
            }
            if self.changed.changed().await.is_err() {
                return Read::End;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        events::{event::Kind, projection::About},
        rows::thread::ThreadKey,
        thread::{self, log::ThreadReader, logs::ThreadLogs, projection::End},
    };

    fn entry(number: u64) -> Entry {
        Entry {
            number,
            at_ms: 0,
            event: RunEvent::root(Kind::Custom { name: "x".to_owned(), data: json!("x".repeat(100)) }),
        }
    }

    #[tokio::test]
    async fn a_reader_that_is_too_slow_loses_its_stream_and_others_do_not() {
        let log = Arc::new(RunLog::new(1_000));
        log.push(entry(0));
        let (mut slow, mut fast) = (LogReader::new(log.clone()), LogReader::new(log.clone()));
        assert!(matches!(slow.next().await, Read::Event(_)));
        assert!(matches!(fast.next().await, Read::Event(_)));
        for number in 1..10 {
            log.push(entry(number));
            assert!(matches!(fast.next().await, Read::Event(event) if event.number == number));
        }
        log.end();
        assert!(matches!(slow.next().await, Read::Lost));
        assert!(matches!(fast.next().await, Read::End));
        assert!(log.bytes() <= 1_000 && log.has_ended());
    }

    #[tokio::test]
    async fn a_reader_waits_for_the_next_event() {
        let log = Arc::new(RunLog::new(1_000));
        let mut reader = LogReader::new(log.clone());
        let reading = tokio::spawn(async move { reader.next().await });
        tokio::task::yield_now().await;
        log.push(entry(7));
        assert!(matches!(reading.await, Ok(Read::Event(event)) if event.number == 7));
    }

    #[test]
    fn a_thread_has_each_event_of_a_run_once() {
        let threads = ThreadLogs::new(100_000, 100_000);
        let log = threads.open(&ThreadKey { thread: "t".to_owned(), owner: None });
        let (about, run) = (About { run: "r".to_owned(), ..About::default() }, RunLog::new(100_000));
        run.push(Entry { number: 7, at_ms: 0, event: RunEvent::root(Kind::Started { head: None }) });
        log.follow(&about, &run);
        run.push(entry(8));
        run.end();
        log.end(&about, &run, Some(End::Completed));
        // A client that comes at this moment.
        log.follow(&about, &run);
        let mut reader = ThreadReader::new(log, None);
        let mut methods = Vec::new();
        while let thread::log::Read::Event(event) = reader.read() {
            methods.push(event.method);
        }
        assert_eq!(methods, ["lifecycle", "custom", "lifecycle"]);
    }
}
