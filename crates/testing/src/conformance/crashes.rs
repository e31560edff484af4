//! Requests whose caller is gone, and processes that end in their middle.
//!
//! Start at [`check_crashes`].

use std::collections::BTreeSet;

use futures::future::BoxFuture;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use superstep_graph::{
    CheckpointId, History, ThreadId,
    checkpoint::{CheckpointError, TaskKey, TaskRecord},
};

use super::fixture::{Store, superstep};

/// The number of threads, each with a course of its own.
const SEEDS: u64 = 24;

/// The number of requests to each.
const REQUESTS: u32 = 12;

/// The number of checkpoints that are committed together.
const GROUP: u64 = 3;

/// Polls requests a few times and drops them, opens the place again at random, and compares each thread with what was acknowledged.
/// Always the same courses.
///
/// # Panics
/// If an acknowledged commit is missing, a refused one is stored, one is stored twice or in part, or a thread cannot be continued.
pub async fn check_crashes(open: impl AsyncFn() -> Store) {
    let mut store = open().await;
    for seed in 0..SEEDS {
        let mut rng = StdRng::seed_from_u64(seed);
        let thread = ThreadId::from(format!("thread {seed}"));
        let mut course =
            Course { thread, next: 0, stored: Vec::new(), unknown: Vec::new(), refused: Vec::new() };
        for _ in 0..REQUESTS {
            course.request(&store, &mut rng).await;
            if rng.random_bool(0.3) {
                drop(store);
                store = open().await;
            }
        }
        course.end(&store).await;
        drop(store);
        store = open().await;
        course.compare(&store).await;
    }
}

/// The requests to one thread, each with values of its own.
struct Course {
    thread: ThreadId,
    next: u64,
    stored: Vec<Vec<u64>>,
    /// The values of requests that were dropped.
    unknown: Vec<Vec<u64>>,
    refused: Vec<Vec<u64>>,
}

impl Course {
    async fn head(&self, store: &Store) -> Option<CheckpointId> {
        store.load(&self.thread, None).await.expect("the thread can be loaded").map(|loaded| loaded.head)
    }

    fn values(&mut self, count: u64) -> Vec<u64> {
        let first = self.next;
        self.next += count;
        (first..self.next).collect()
    }

    /// Makes a request, and waits for its end or drops it.
    async fn request(&mut self, store: &Store, rng: &mut StdRng) {
        let head = self.head(store).await;
        let polls = rng.random_range(0..4);
        if let (Some(checkpoint), true) = (head, rng.random_bool(0.3)) {
            let task = TaskKey { thread: self.thread.clone(), checkpoint, slot: 0 };
            let _ =
                polled(store.record(&task, TaskRecord::Cancelled { once: Default::default() }), polls).await;
            return;
        }
        let values = self.values(if rng.random_bool(0.4) { GROUP } else { 1 });
        match polled(commit(store, &self.thread, head, &values), polls).await {
            Some(Ok(())) => self.stored.push(values),
            Some(Err(CheckpointError::Conflict { .. })) => self.refused.push(values),
            Some(Err(error)) => panic!("{error}"),
            None => self.unknown.push(values),
        }
    }

    /// Commits until nothing of earlier requests can come between.
    async fn end(&mut self, store: &Store) {
        loop {
            let (head, values) = (self.head(store).await, self.values(1));
            match commit(store, &self.thread, head, &values).await {
                Ok(()) => return self.stored.push(values),
                Err(CheckpointError::Conflict { .. }) => self.refused.push(values),
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn compare(&self, store: &Store) {
        let thread = &self.thread;
        let mut history = store.history(thread, History::default()).await.expect("a history");
        history.reverse();
        let mut values = Vec::new();
        for (id, meta) in (1..).zip(&history) {
            assert_eq!((meta.id.0, meta.parent.map_or(0, |id| id.0)), (id, id - 1), "{thread} has one line");
            let commit = store.read_commit(thread, meta.id).await.expect("a commit").expect("it exists");
            values.push(commit.applied[0].update.to_string().parse::<u64>().expect("a number"));
        }
        let distinct: BTreeSet<_> = values.iter().collect();
        assert_eq!(distinct.len(), values.len(), "no commit of {thread} is stored twice: {values:?}");
        for group in &self.stored {
            let is_there = values.windows(group.len()).any(|stored| stored == group);
            assert!(is_there, "{group:?} of {thread} was acknowledged: {values:?}");
        }
        for group in &self.refused {
            let is_there = group.iter().any(|value| values.contains(value));
            assert!(!is_there, "{group:?} of {thread} was refused: {values:?}");
        }
        for group in &self.unknown {
            let is_whole = values.windows(group.len()).any(|stored| stored == group);
            let has_part = group.iter().any(|value| values.contains(value));
            assert_eq!(is_whole, has_part, "{group:?} of {thread} is stored in part: {values:?}");
        }
    }
}

/// Commits one checkpoint for each value.
fn commit<'s>(
    store: &'s Store,
    thread: &ThreadId,
    head: Option<CheckpointId>,
    values: &[u64],
) -> BoxFuture<'s, Result<(), CheckpointError>> {
    let mut parent = head;
    let mut commits = Vec::new();
    for value in values {
        commits.push(superstep(parent, &[&value.to_string()]));
        parent = Some(CheckpointId(parent.map_or(0, |id| id.0) + 1));
    }
    if let [_] = values {
        let commit = store.commit(thread, head, commits.remove(0));
        return Box::pin(async { commit.await.map(drop) });
    }
    store.commit_all(thread, head, commits)
}

/// Polls a request this often, or to its end with 3. Returns `None` if it is dropped before.
async fn polled<T>(mut request: BoxFuture<'_, T>, polls: u32) -> Option<T> {
    if polls == 3 {
        return Some(request.await);
    }
    for _ in 0..polls {
        if let std::task::Poll::Ready(done) = futures::poll!(&mut request) {
            return Some(done);
        }
        tokio::task::yield_now().await;
    }
    None
}
