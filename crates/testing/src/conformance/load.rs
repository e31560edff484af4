//! A short load.
//!
//! Start at [`check_load`].

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use superstep_graph::{CheckpointId, History, ThreadId, checkpoint::CheckpointError};
use tokio::task::JoinSet;

use super::fixture::{Store, load, superstep, updates};

/// The number of threads that are written at the same time, and of the commits to each.
const WRITERS: usize = 8;
const COMMITS: u64 = 40;

/// The number of checkpoints of a long thread, and of those that are committed together.
const LONG: u64 = 1000;
const GROUP: u64 = 100;

/// Writes several threads through two openings while others read them, and a long thread.
///
/// # Panics
/// If a reader sees something else than the first commits of a thread, or something is missing at the end.
pub async fn check_load(open: impl AsyncFn() -> Store) {
    let stores = [open().await, open().await];
    let is_over = Arc::new(AtomicBool::new(false));
    let (mut writers, mut readers) = (JoinSet::new(), JoinSet::new());
    for writer in 0..WRITERS {
        let thread = ThreadId::from(format!("writer {writer}"));
        let [own, other] = [0, 1].map(|nth| stores[(writer + nth) % 2].clone());
        let (read, is_over) = (thread.clone(), is_over.clone());
        writers.spawn(async move { write(&own, &thread).await });
        readers.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                if let Some(loaded) = other.load(&read, None).await.expect("a thread can be loaded") {
                    assert_eq!(updates(&loaded).concat(), numbers(loaded.head.0));
                }
                tokio::task::yield_now().await;
            }
        });
    }
    writers.join_all().await;
    is_over.store(true, Ordering::Relaxed);
    readers.join_all().await;
    let (long, mut head) = (ThreadId::from("long"), None);
    for group in 0..LONG / GROUP {
        let mut commits = Vec::new();
        let mut parent = head;
        for update in group * GROUP + 1..=(group + 1) * GROUP {
            commits.push(superstep(parent, &[&update.to_string()]));
            parent = Some(CheckpointId(update));
        }
        stores[0].commit_all(&long, head, commits).await.expect("a commit behind the head succeeds");
        head = parent;
    }
    drop(stores);
    let store = open().await;
    for writer in 0..WRITERS {
        let loaded = load(&store, &ThreadId::from(format!("writer {writer}")), None).await;
        assert_eq!(updates(&loaded).concat(), numbers(COMMITS));
    }
    assert_eq!(store.threads().await.expect("the threads").len(), WRITERS + 1);
    for id in [1, LONG / 2, LONG] {
        let loaded = load(&store, &long, Some(CheckpointId(id))).await;
        assert_eq!(updates(&loaded).concat(), numbers(id));
    }
    let page = History { limit: Some(10), before: Some(CheckpointId(LONG / 2)), ..History::default() };
    let page = store.history(&long, page).await.expect("a page of the history");
    let ids: Vec<_> = page.iter().map(|meta| meta.id.0).collect();
    assert_eq!(ids, (LONG / 2 - 10..LONG / 2).rev().collect::<Vec<_>>());
}

/// Leases a thread for every few commits, as runs do.
async fn write(store: &Store, thread: &ThreadId) {
    let mut head = None;
    for update in 1..=COMMITS {
        let _lease = loop {
            match store.lease(thread).await {
                Ok(lease) => break lease,
                // The last one is released right now.
                Err(CheckpointError::Busy { .. }) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        };
        let next = superstep(head, &[&update.to_string()]);
        head = Some(store.commit(thread, head, next).await.expect("a commit behind the head succeeds"));
    }
}

fn numbers(to: u64) -> Vec<String> {
    (1..=to).map(|number| number.to_string()).collect()
}
