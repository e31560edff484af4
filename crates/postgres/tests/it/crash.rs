//! Connections that break in the middle of commits, and a server that stops without warning.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use superstep_graph::{
    Checkpointer, History, ThreadId,
    checkpoint::{CheckpointError, TaskKey, TaskRecord},
};

use crate::{
    server::{Server, shared},
    support::{fresh, open, superstep},
};

/// The number of openings of the database, as of several processes, of threads, and of commits to each.
const OPENINGS: usize = 3;
const THREADS: usize = 8;
const COMMITS: usize = 40;

/// The commits of a thread that were acknowledged, and those that were refused.
#[derive(Default)]
struct Course {
    stored: BTreeMap<u64, String>,
    refused: Vec<String>,
}

/// The commits of all threads, and the stop of the server in their middle.
#[derive(Default)]
struct Progress {
    committed: AtomicUsize,
    was_stopped: AtomicBool,
}

impl Progress {
    fn is_half(&self) -> bool {
        self.committed.load(Ordering::Relaxed) > THREADS * COMMITS / 2
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_commit_is_lost_and_no_thread_forks() {
    if shared().is_none() {
        return;
    }
    let server = Arc::new(Server::start(&["fsync=off"]).unwrap());
    let options = fresh(&server)
        .lease(Duration::from_secs(2))
        .lease_wait(Duration::from_secs(30))
        .reconnect(Duration::from_secs(30));
    let stores: Vec<_> = (0..OPENINGS).map(|_| Arc::new(open(&options))).collect();
    let (is_over, progress) = (Arc::new(AtomicBool::new(false)), Arc::new(Progress::default()));
    let chaos = {
        let (server, is_over, progress) = (server.clone(), is_over.clone(), progress.clone());
        tokio::task::spawn_blocking(move || {
            while !is_over.load(Ordering::Relaxed) {
                if progress.is_half() && !progress.was_stopped.load(Ordering::Relaxed) {
                    server.stop();
                    server.run();
                    progress.was_stopped.store(true, Ordering::Relaxed);
                }
                server.sql(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                     WHERE application_name = 'superstep' AND random() < 0.3",
                );
            }
        })
    };
    let mut writers = tokio::task::JoinSet::new();
    for nth in 0..THREADS {
        let (stores, progress) = (stores.clone(), progress.clone());
        writers.spawn(async move { (nth, write(&stores, nth, &progress).await) });
    }
    let courses = writers.join_all().await;
    is_over.store(true, Ordering::Relaxed);
    chaos.await.unwrap();
    assert!(progress.was_stopped.load(Ordering::Relaxed));
    let store = open(&options);
    for (nth, course) in courses {
        let thread = ThreadId::from(format!("thread {nth}"));
        let mut history = store.history(&thread, History::default()).await.unwrap();
        history.reverse();
        let mut values = BTreeMap::new();
        for (id, meta) in (1..).zip(&history) {
            assert_eq!((meta.id.0, meta.parent.map_or(0, |id| id.0)), (id, id - 1), "a thread has one line");
            let commit = store.read_commit(&thread, meta.id).await.unwrap().unwrap();
            values.insert(id, commit.applied[0].update.to_string());
        }
        for (id, value) in &course.stored {
            assert_eq!(values.get(id), Some(value), "checkpoint {id} of {thread} was acknowledged");
        }
        for value in &course.refused {
            assert!(!values.values().any(|stored| stored == value), "{value} of {thread} was refused");
        }
        let distinct: std::collections::BTreeSet<_> = values.values().collect();
        assert_eq!(distinct.len(), values.len(), "no commit of {thread} is stored twice");
        assert!(values.len() >= COMMITS);
    }
}

/// Commits to one thread through all openings in turn.
async fn write(
    stores: &[Arc<superstep_postgres::PostgresCheckpointer>],
    nth: usize,
    progress: &Progress,
) -> Course {
    let thread = ThreadId::from(format!("thread {nth}"));
    let (mut course, mut attempt) = (Course::default(), 0);
    while course.stored.len() < COMMITS {
        // Half of the commits wait for the stop of the server, which may be slow.
        if progress.is_half() && !progress.was_stopped.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        attempt += 1;
        let store = &stores[(nth + attempt) % stores.len()];
        let Ok(_lease) = store.lease(&thread).await else { continue };
        let Ok(loaded) = store.load(&thread, None).await else { continue };
        let mut head = loaded.map(|loaded| loaded.head);
        for part in 0..3 {
            let value = format!("\"{attempt}.{part}\"");
            if let Some(checkpoint) = head {
                let task = TaskKey { thread: thread.clone(), checkpoint, slot: 0 };
                let started = TaskRecord::Started { attempts: 0, once: [("paid".into(), "1".into())].into() };
                if store.record(&task, started).await.is_err() {
                    break;
                }
            }
            match store.commit(&thread, head, superstep(head, &value)).await {
                Ok(id) => {
                    progress.committed.fetch_add(1, Ordering::Relaxed);
                    course.stored.insert(id.0, value);
                    head = Some(id);
                }
                Err(CheckpointError::Conflict { .. } | CheckpointError::LeaseLost { .. }) => {
                    course.refused.push(value);
                    break;
                }
                // It may have been stored.
                Err(_) => break,
            }
        }
    }
    course
}
