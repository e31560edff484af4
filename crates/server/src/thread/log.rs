//! The log of a thread, which any number of clients follow, each at its own pace.
//!
//! Start at [`ThreadLog`].

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::Value;
use tokio::sync::watch;

use crate::{
    events::{event::RunEvent, projection::About},
    thread::{
        event::{Draft, ThreadEvent},
        projection::{End, Projection},
    },
    wire::time,
};

/// The events of a thread over its runs, in memory. If they take more than the limit, the oldest are dropped, and clients that have
/// not read them lose their stream. Runs never wait for a client.
///
/// A new client receives the events from the last idle point on: the beginning of the last run before which nothing ran or waited
/// for an answer.
pub(crate) struct ThreadLog {
    inner: Mutex<Inner>,
    changed: watch::Sender<()>,
    max_bytes: usize,
    /// The bytes of all logs.
    total: Arc<AtomicUsize>,
    /// Orders the commands of clients: the second answer to a question finds the first.
    pub(crate) commands: tokio::sync::Mutex<()>,
}

/// The events of a run, in order, with the numbers and times that they have there.
pub(crate) trait RunEvents {
    /// Calls `each` with the number, the time in UTC milliseconds and the event, for each event after a number.
    fn each_after(&self, number: u64, each: &mut dyn FnMut(u64, i64, &RunEvent));

    /// Returns whether there are no more to come.
    fn is_over(&self) -> bool;
}

struct Inner {
    entries: VecDeque<Arc<ThreadEvent>>,
    bytes: usize,
    /// The number of the next event. Clients drop smaller numbers than they have seen, also after a restart, so the first one is
    /// the time in microseconds.
    next: u64,
    /// The number of the first event for a new client.
    idle: u64,
    /// The runs that have not ended.
    runs: BTreeMap<String, Followed>,
    /// The graphs of the newest run that began.
    tree: Option<(String, Value)>,
}

/// A run whose events are in the log up to one of its own numbers.
struct Followed {
    projection: Projection,
    upto: u64,
}

impl ThreadLog {
    /// Creates an empty log that takes at most about so many bytes, which it also adds to a total.
    pub(crate) fn new(max_bytes: usize, total: Arc<AtomicUsize>) -> Self {
        let next = u64::try_from(time::now_us()).unwrap_or(1);
        let inner =
            Inner { entries: VecDeque::new(), bytes: 0, next, idle: next, runs: BTreeMap::new(), tree: None };
        let (inner, changed) = (Mutex::new(inner), watch::Sender::new(()));
        Self { inner, changed, max_bytes, total, commands: tokio::sync::Mutex::default() }
    }

    /// Adds the events of a run that are not in the log yet.
    pub(crate) fn follow(&self, about: &About, run: &dyn RunEvents) {
        {
            let mut inner = self.lock();
            // The end of a run adds the rest, or has added all.
            if run.is_over() {
                return;
            }
            let drafts = inner.project(about, run);
            self.push(&mut inner, drafts);
        }
        self.changed.send_replace(());
    }

    /// Adds the end of a run, after its events; `None` if it continues after the next start of the server.
    pub(crate) fn end(&self, about: &About, run: &dyn RunEvents, end: Option<End<'_>>) {
        {
            let mut inner = self.lock();
            let mut drafts = inner.project(about, run);
            if let Some(Followed { mut projection, .. }) = inner.runs.remove(&about.run) {
                drafts.extend(match end {
                    Some(end) => projection.end(time::now_us() / 1_000, end),
                    None => projection.left(),
                });
                inner.keep_tree(&about.run, &projection);
            }
            self.push(&mut inner, drafts);
        }
        self.changed.send_replace(());
    }

    /// Begins the part that new clients receive: nothing runs or waits for an answer.
    pub(crate) fn idle_point(&self) {
        let mut inner = self.lock();
        inner.idle = inner.next;
    }

    /// Returns whether new clients receive nothing: no run has begun since the last idle point.
    pub(crate) fn is_blank(&self) -> bool {
        let inner = self.lock();
        inner.idle == inner.next && inner.runs.is_empty()
    }

    /// Adds the events from which clients learn how the thread stands, if new ones receive nothing else.
    pub(crate) fn seed(&self, drafts: Vec<Draft>) {
        {
            let mut inner = self.lock();
            if inner.idle < inner.next || !inner.runs.is_empty() {
                return;
            }
            self.push(&mut inner, drafts);
        }
        self.changed.send_replace(());
    }

    /// Drops all events.
    pub(crate) fn clear(&self) {
        let mut inner = self.lock();
        inner.entries.clear();
        self.total.fetch_sub(inner.bytes, Ordering::Relaxed);
        (inner.bytes, inner.idle) = (0, inner.next);
    }

    /// Returns whether it has no event.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().entries.is_empty()
    }

    /// Returns the graphs of a run, or of the newest one that began, as a tree.
    pub(crate) fn tree(&self, run: Option<&str>) -> Option<Value> {
        let inner = self.lock();
        let is_wanted = |known: &String| run.is_none_or(|run| run == known);
        let under_way = inner.runs.iter().filter(|(known, _)| is_wanted(known));
        let under_way = under_way.filter_map(|(_, followed)| followed.projection.tree()).next();
        under_way.or_else(|| {
            inner.tree.as_ref().filter(|(known, _)| is_wanted(known)).map(|(_, tree)| tree.clone())
        })
    }

    fn push(&self, inner: &mut Inner, drafts: Vec<Draft>) {
        let before = inner.bytes;
        for draft in drafts {
            let event = ThreadEvent::new(inner.next, draft);
            inner.next += 1;
            inner.bytes += event.size();
            inner.entries.push_back(Arc::new(event));
        }
        while inner.bytes > self.max_bytes && inner.entries.len() > 1 {
            let Some(oldest) = inner.entries.pop_front() else { break };
            inner.bytes -= oldest.size();
        }
        self.total.fetch_add(inner.bytes, Ordering::Relaxed);
        self.total.fetch_sub(before, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ThreadLog {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Inner {
    fn project(&mut self, about: &About, run: &dyn RunEvents) -> Vec<Draft> {
        let mut drafts = Vec::new();
        let upto = self.runs.get(&about.run).map_or(0, |followed| followed.upto);
        run.each_after(upto, &mut |number, at_ms, event| {
            let first = || Followed { projection: Projection::new(about), upto };
            let followed = self.runs.entry(about.run.clone()).or_insert_with(first);
            followed.upto = number;
            drafts.extend(followed.projection.event(at_ms, event));
        });
        drafts
    }

    fn keep_tree(&mut self, run: &str, projection: &Projection) {
        if let Some(tree) = projection.tree() {
            self.tree = Some((run.to_owned(), tree));
        }
    }

    /// Returns the number of the oldest event in memory.
    fn oldest(&self) -> u64 {
        self.next - self.entries.len() as u64
    }
}

/// The result of a read.
#[derive(Debug)]
pub(crate) enum Read {
    Event(Arc<ThreadEvent>),
    /// All events are read.
    Head,
    /// The client was too slow: the next event was dropped.
    Lost,
}

/// A reader of a log.
pub(crate) struct ThreadReader {
    log: Arc<ThreadLog>,
    changed: watch::Receiver<()>,
    next: u64,
}

impl ThreadReader {
    /// Reads what a new client receives, or, with the number of an event that it has, what follows it.
    pub(crate) fn new(log: Arc<ThreadLog>, since: Option<u64>) -> Self {
        let changed = log.changed.subscribe();
        let next = {
            let inner = log.lock();
            let first = since.map_or(inner.idle, |since| since.saturating_add(1));
            first.clamp(inner.oldest(), inner.next)
        };
        Self { log, changed, next }
    }

    /// Returns the next event, if there is one.
    pub(crate) fn read(&mut self) -> Read {
        self.changed.mark_unchanged();
        let inner = self.log.lock();
        let Some(at) = self.next.checked_sub(inner.oldest()) else { return Read::Lost };
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        match inner.entries.get(at) {
            None => Read::Head,
            Some(event) => {
                self.next += 1;
                Read::Event(event.clone())
            }
        }
    }

    /// Waits until there may be more to read.
    pub(crate) async fn changed(&mut self) {
        // The sender lives as long as the log.
        let _ = self.changed.changed().await;
    }

    pub(crate) fn log(&self) -> Arc<ThreadLog> {
        self.log.clone()
    }

    /// Returns the number of the next event that it reads.
    pub(crate) fn position(&self) -> u64 {
        self.next
    }
}
