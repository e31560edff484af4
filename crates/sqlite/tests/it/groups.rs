//! Writes that share a transaction.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use superstep_graph::{
    CheckpointId, Checkpointer, CompiledGraph, Cx, Durability, Log, START, State, StateGraph, ThreadId,
    checkpoint::{CheckpointError, Commit, Lease},
};
use superstep_sqlite::{SqliteCheckpointer, SqliteOptions};

use crate::support::{Folder, line, load, superstep, updates};

/// The number of transactions in the write-ahead log of a database that was not folded yet.
fn transactions(folder: &Folder) -> usize {
    let log = std::fs::read(folder.path().join("db-wal")).unwrap_or_default();
    let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().unwrap());
    let frame = 24 + if log.is_empty() { 4096 } else { usize::try_from(number(8)).unwrap() };
    // The last frame of a transaction has the size of the database; frames of an older log have other salts.
    let frames = (32..log.len().saturating_sub(frame - 1)).step_by(frame);
    frames.filter(|&at| log[at + 8..at + 16] == log[16..24] && number(at + 4) != 0).count()
}

fn thread(nth: usize) -> ThreadId {
    format!("t{nth}").into()
}

/// Leases several threads, so that the checkpointer has several writers.
async fn leases(store: &SqliteCheckpointer, count: usize) -> Vec<Lease> {
    let mut leases = Vec::new();
    for nth in 0..count {
        leases.push(store.lease(&thread(nth)).await.unwrap());
    }
    leases
}

#[tokio::test]
async fn commits_of_several_runs_share_a_transaction() {
    let folder = Folder::new();
    let store = folder.open();
    let _leases = leases(&store, 20).await;
    let names: Vec<_> = (0..20).map(thread).collect();
    let before = transactions(&folder);
    for head in [None, Some(CheckpointId(1)), Some(CheckpointId(2))] {
        let update = head.map_or("0".to_owned(), |id| id.to_string());
        let commits = names.iter().map(|name| store.commit(name, head, superstep(head, &update)));
        for done in join_all(commits).await {
            assert_eq!(done.unwrap(), CheckpointId(head.map_or(1, |head| head.0 + 1)));
        }
    }
    assert_eq!(transactions(&folder) - before, 3);
    for name in &names {
        assert_eq!(updates(&load(&store, name).await), ["0", "1", "2"]);
    }
}

#[tokio::test]
async fn the_only_run_commits_at_once() {
    let folder = Folder::new();
    let store = folder.open();
    let _lease = leases(&store, 1).await;
    let before = transactions(&folder);
    for head in 0..5 {
        let head = (head > 0).then_some(CheckpointId(head));
        let mut commit = store.commit(&thread(0), head, superstep(head, "1"));
        assert!(futures::poll!(&mut commit).is_ready());
    }
    assert_eq!(transactions(&folder) - before, 5);
}

#[tokio::test]
async fn a_rejected_commit_does_not_affect_those_in_its_transaction() {
    let folder = Folder::new();
    let store = folder.open();
    let _leases = leases(&store, 10).await;
    for nth in 0..10 {
        line(&store, &thread(nth), 2).await;
    }
    let before = transactions(&folder);
    let head = Some(CheckpointId(2));
    let commits = (0..10).map(|nth| {
        let expected = if nth == 4 { Some(CheckpointId(1)) } else { head };
        let store = &store;
        async move { store.commit(&thread(nth), expected, superstep(expected, "3")).await }
    });
    for (nth, done) in join_all(commits).await.into_iter().enumerate() {
        assert_eq!(matches!(done, Err(CheckpointError::Conflict { .. })), nth == 4, "{nth}: {done:?}");
    }
    assert_eq!(transactions(&folder) - before, 1);
    for nth in 0..10 {
        let stored = updates(&load(&store, &thread(nth)).await);
        assert_eq!(stored.last().unwrap(), if nth == 4 { "2" } else { "3" });
    }
}

#[tokio::test]
async fn a_write_that_fails_halfway_does_not_affect_those_in_its_transaction() {
    let folder = Folder::new();
    let options = SqliteOptions::new().max_bytes(300_000);
    let store = SqliteCheckpointer::open_with(folder.db(), options).unwrap();
    let _leases = leases(&store, 6).await;
    let large = format!("\"{}\"", "x".repeat(50_000));
    let orphan = Commit { parent: Some(CheckpointId(9)), ..superstep(Some(CheckpointId(2)), "3") };
    // One is rejected when it has stored two checkpoints, and one does not fit into the database.
    let two = superstep(Some(CheckpointId(1)), "2");
    let fills = (0..10).map(|nth| superstep((nth > 0).then_some(CheckpointId(nth)), &large)).collect();
    let commits = [
        vec![superstep(None, "1"), two.clone()],
        vec![superstep(None, "2"), two.clone()],
        vec![superstep(None, "1"), two.clone(), orphan],
        vec![superstep(None, "1"), two.clone()],
        fills,
        vec![superstep(None, "1"), two],
    ];
    let stored = commits.into_iter().enumerate().map(|(nth, all)| {
        let store = &store;
        async move { store.commit_all(&thread(nth), None, all).await }
    });
    let stored: Vec<_> = join_all(stored).await;
    let failed: Vec<_> = (0..6).filter(|nth| stored[*nth].is_err()).collect();
    assert_eq!(failed, [2, 4], "{stored:?}");
    for nth in 0..6 {
        let loaded = store.load(&thread(nth), None).await.unwrap();
        assert_eq!(loaded.map(|loaded| loaded.head.0), (!failed.contains(&nth)).then_some(2), "{nth}");
    }
}

#[tokio::test]
async fn a_write_whose_future_is_dropped_before_its_turn_is_not_executed() {
    let folder = Folder::new();
    let store = folder.open();
    let _leases = leases(&store, 2).await;
    let [mut kept, mut dropped] = [0, 1].map(|nth| store.commit(&thread(nth), None, superstep(None, "1")));
    assert!(futures::poll!(&mut kept).is_pending());
    assert!(futures::poll!(&mut dropped).is_pending());
    drop(dropped);
    kept.await.unwrap();
    assert_eq!(store.names().await.unwrap(), [thread(0)]);
}

#[tokio::test]
async fn writes_wait_together_for_another_program() {
    let folder = Folder::new();
    let store = folder.open();
    let _leases = leases(&store, 3).await;
    let before = transactions(&folder);
    let other = folder.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let names = [0, 1, 2].map(thread);
    let mut commits =
        Box::pin(join_all(names.iter().map(|name| store.commit(name, None, superstep(None, "1")))));
    // Polled until they wait for the other program.
    for _ in 0..3 {
        assert!(futures::poll!(&mut commits).is_pending());
    }
    other.execute_batch("COMMIT").unwrap();
    assert!(commits.await.iter().all(Result::is_ok));
    assert_eq!(transactions(&folder) - before, 1);
}

#[tokio::test]
async fn writes_fail_together_if_another_program_takes_too_long() {
    let folder = Folder::new();
    let options = SqliteOptions::new().busy_timeout(Duration::from_millis(20));
    let store = SqliteCheckpointer::open_with(folder.db(), options).unwrap();
    let _leases = leases(&store, 3).await;
    let other = folder.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let names = [0, 1, 2].map(thread);
    let commits = join_all(names.iter().map(|name| store.commit(name, None, superstep(None, "1")))).await;
    for (name, done) in names.iter().zip(commits) {
        let refused = folder.text(&done.unwrap_err());
        assert_eq!(
            refused,
            format!(
                "SS303: cannot commit to thread `{name}` in database `DIR/db`: another program has locked it; wait \
                 until it is done, or end it: database is locked (SQLite code 5)"
            )
        );
    }
    other.execute_batch("COMMIT").unwrap();
    line(&store, &thread(0), 2).await;
}

#[test]
fn many_runs_on_several_threads_store_everything() {
    let folder = Folder::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(folder.open());
        let runs = (0..200).map(|nth| {
            let store = store.clone();
            tokio::spawn(async move {
                let _lease = store.lease(&thread(nth)).await.unwrap();
                assert!(store.load_head(&thread(nth)).await.unwrap().is_none());
                line(&*store, &thread(nth), 10).await;
                assert_eq!(load(&*store, &thread(nth)).await.head, CheckpointId(10));
            })
        });
        for run in join_all(runs).await {
            run.unwrap();
        }
        assert_eq!(store.names().await.unwrap().len(), 200);
    });
}

#[tokio::test]
async fn an_exclusive_database_has_one_opener_and_no_lock_files() {
    let folder = Folder::new();
    line(&folder.open(), &thread(0), 1).await;
    let options = SqliteOptions::new().exclusive().busy_timeout(Duration::ZERO);
    let store = SqliteCheckpointer::open_with(folder.db(), options.clone()).unwrap();
    let lease = store.lease(&thread(0)).await.unwrap();
    assert!(matches!(store.lease(&thread(0)).await, Err(CheckpointError::Busy { .. })));
    store.commit(&thread(0), Some(CheckpointId(1)), superstep(Some(CheckpointId(1)), "2")).await.unwrap();
    let files: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files.len(), 2, "the database and its log: {files:?}");
    for refused in [
        SqliteCheckpointer::open_with(folder.db(), options.clone()).unwrap_err(),
        SqliteCheckpointer::open_read_only(folder.db()).unwrap_err(),
    ] {
        let refused = folder.text(&refused);
        assert!(refused.contains("another program has locked it"), "{refused}");
    }
    drop((lease, store));
    let store = folder.open();
    assert_eq!(updates(&load(&store, &thread(0)).await), ["1", "2"]);
    let refused = SqliteCheckpointer::open_with(folder.db(), options).unwrap_err();
    assert!(folder.text(&refused).contains("cannot lock"), "{refused}");
}

#[derive(State, Clone, Debug, Default)]
struct Counted {
    count: i64,
    #[channel(append)]
    items: Log<i64>,
}

/// Builds a graph that sends `width` items to a worker.
fn fan_out(width: i64) -> CompiledGraph<Counted> {
    let mut graph = StateGraph::new("fan-out");
    let worker = graph
        .add_worker("worker", |item: i64, _: Counted, _: Cx| async move { Counted::update().items([item]) });
    graph.add_fan_out(START, move |_: &Counted| 0..width, worker);
    graph.compile().unwrap()
}

/// Builds a node that leads to itself.
fn looped() -> CompiledGraph<Counted> {
    let mut graph = StateGraph::new("loop");
    let node = graph.add_node("node", async |state: Counted, _: Cx| Counted::update().count(state.count + 1));
    graph.add_edge(START, node);
    graph.add_edge(node, node);
    graph.compile().unwrap()
}

#[tokio::test]
async fn the_results_of_tasks_that_end_together_share_a_transaction() {
    let folder = Folder::new();
    let graph = fan_out(100).with_checkpointer(folder.open());
    let before = transactions(&folder);
    let end = graph.thread("t").run(Counted::update()).await.unwrap();
    assert_eq!(end.state.items.len(), 100);
    // The input, and its superstep with the results; perhaps one with the results that came first.
    assert!(transactions(&folder) - before <= 4, "{}", transactions(&folder) - before);
}

/// Tasks are fast if the machine has time for them, so that not every run shows it.
#[test]
fn the_results_of_fast_tasks_share_a_transaction_on_several_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let run = async || {
        let folder = Folder::new();
        let graph = fan_out(100).with_checkpointer(folder.open());
        let before = transactions(&folder);
        let end = tokio::spawn(async move {
            let end = graph.thread("t").run(Counted::update()).await.unwrap();
            (end.state.items.len(), graph)
        });
        let (items, _graph) = end.await.unwrap();
        assert_eq!(items, 100);
        transactions(&folder) - before
    };
    let mut counts = Vec::new();
    while counts.last().is_none_or(|last| *last >= 40) {
        assert!(counts.len() < 100, "{counts:?}");
        counts.push(runtime.block_on(run()));
    }
}

#[tokio::test]
async fn supersteps_in_async_mode_share_transactions() {
    let folder = Folder::new();
    let graph = looped().with_checkpointer(folder.open());
    let before = transactions(&folder);
    let run = graph.thread("t").durability(Durability::Async).step_limit(100).run(Counted::update());
    run.await.unwrap_err();
    assert_eq!(graph.thread("t").state().await.unwrap().values.count, 100);
    assert!(transactions(&folder) - before < 12, "{}", transactions(&folder) - before);
}
