//! Competing writers.

use superstep_graph::{
    CheckpointId, ThreadId,
    checkpoint::{CheckpointError, Lease},
};

use super::{
    cases,
    fixture::{ONE, Store, commit, history, line, load, plain, superstep, updates},
};

cases![
    a_thread_has_one_writer_at_a_time,
    a_lease_makes_no_thread,
    one_of_many_commits_wins,
    threads_do_not_disturb_each_other,
];

/// The number of concurrent writers.
const WRITERS: usize = 16;

#[track_caller]
fn assert_busy(lease: Result<Lease, CheckpointError>, on: &ThreadId) {
    match lease {
        Err(CheckpointError::Busy { thread }) => assert_eq!(&thread, on),
        other => panic!("expected thread `{on}` to be busy, got {other:?}"),
    }
}

async fn a_thread_has_one_writer_at_a_time(store: Store) {
    let [one, other] = [ThreadId::from("one"), ThreadId::from("other")];
    let has_writer = async |thread| store.has_writer(thread).await.expect("the writer is known");
    assert!(!has_writer(&one).await);
    let lease = store.lease(&one).await.expect("nobody has it");
    assert_busy(store.lease(&one).await, &one);
    assert!(has_writer(&one).await && !has_writer(&other).await);
    let _other = store.lease(&other).await.expect("nobody has it");
    assert_busy(store.lease(&one).await, &one);
    drop(lease);
    assert!(!has_writer(&one).await && has_writer(&other).await);
    for _ in 0..3 {
        let lease = store.lease(&one).await.expect("it was given back");
        assert_busy(store.lease(&one).await, &one);
        drop(lease);
    }
    assert_busy(store.lease(&other).await, &other);
}

async fn a_lease_makes_no_thread(store: Store) {
    let thread = ThreadId::from("t");
    let lease = store.lease(&thread).await.expect("nobody has it");
    assert_eq!(store.threads().await.expect("threads"), []);
    commit(&store, &thread, None, plain(None)).await;
    store.delete(&thread).await.expect("a thread can be deleted");
    assert_busy(store.lease(&thread).await, &thread);
    drop(lease);
    store.lease(&thread).await.expect("it was given back");
}

async fn one_of_many_commits_wins(store: Store) {
    let thread = ThreadId::from("t");
    for head in [None, Some(ONE)] {
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let (store, thread) = (store.clone(), thread.clone());
            writers.spawn(async move {
                let next = superstep(head, &[&writer.to_string()]);
                (writer, store.commit(&thread, head, next).await)
            });
        }
        let mut won = Vec::new();
        for (writer, result) in writers.join_all().await {
            match result {
                Ok(id) => won.push((writer, id)),
                Err(CheckpointError::Conflict { expected, .. }) => assert_eq!(expected, head),
                Err(error) => panic!("expected a conflict, got {error}"),
            }
        }
        let [(winner, id)] = won[..] else { panic!("expected one winner, got {won:?}") };
        assert_eq!(id, CheckpointId(head.map_or(1, |head| head.0 + 1)));
        let loaded = load(&store, &thread, None).await;
        assert_eq!(updates(&loaded).last(), Some(&vec![winner.to_string().as_str()]));
        assert_eq!((loaded.head, history(&store, &thread).await.len() as u64), (id, id.0));
    }
}

async fn threads_do_not_disturb_each_other(store: Store) {
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let store = store.clone();
        writers.spawn(async move {
            let numbers: Vec<String> = (0..20).map(|n| (writer * 100 + n).to_string()).collect();
            let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
            let thread = ThreadId::from(writer as u64);
            line(&store, &thread, &numbers).await;
            assert_eq!(updates(&load(&store, &thread, None).await).concat(), numbers);
        });
    }
    writers.join_all().await;
    assert_eq!(store.threads().await.expect("threads").len(), WRITERS);
}
