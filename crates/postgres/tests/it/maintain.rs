//! Copies and prunes of threads with several pages of checkpoints.

use std::collections::BTreeMap;

use superstep_graph::{
    CheckpointId, Checkpointer, History, ThreadId,
    checkpoint::{CheckpointError, Prune},
    state::ChannelValue,
};

use crate::{
    server::shared,
    support::{fresh, line, load, open, updates},
};

/// More than two pages.
const COMMITS: u64 = 150;

#[tokio::test]
async fn long_threads_are_copied_and_pruned_whole() {
    let Some(server) = shared() else { return };
    let (options, thread, copy) = (fresh(server), ThreadId::from("t"), ThreadId::from("copy"));
    let store = open(&options);
    line(&store, &thread, COMMITS).await;
    store.copy(&thread, &copy).await.unwrap();
    let history = store.history(&thread, History::default()).await.unwrap();
    assert_eq!(store.history(&copy, History::default()).await.unwrap(), history);
    for meta in &history {
        let [copied, own] = [&copy, &thread].map(|thread| store.read_commit(thread, meta.id));
        assert_eq!(copied.await.unwrap(), own.await.unwrap());
    }

    // Every second one is retained with a snapshot.
    let keep: Vec<_> = (1..=COMMITS).filter(|id| id % 2 == 0).map(CheckpointId).collect();
    let snapshot = |id: CheckpointId| vec![ChannelValue { channel: "c".into(), json: id.to_string().into() }];
    let snapshots: BTreeMap<_, _> = keep.iter().map(|id| (*id, snapshot(*id))).collect();
    let prune = Prune { keep: keep.iter().copied().collect(), snapshots, ..Prune::default() };
    let head = CheckpointId(COMMITS);
    assert_eq!(store.prune(&copy, head, prune).await.unwrap() as u64, COMMITS / 2);
    let left = store.history(&copy, History::default()).await.unwrap();
    assert!(left.iter().all(|meta| meta.parent_pruned) && left.len() as u64 == COMMITS / 2);
    for id in keep {
        let loaded = store.load(&copy, Some(id)).await.unwrap().unwrap();
        assert_eq!(loaded.snapshot.unwrap().channels().unwrap().into_owned(), snapshot(id));
    }
    assert_eq!(updates(&load(&store, &thread).await).len() as u64, COMMITS);

    // Neither copies what is not whole.
    server.sql(&format!("DELETE FROM {}.checkpoints WHERE id = 100", options.schema));
    for thread in [thread, copy] {
        let damaged = [
            store.copy(&thread, &"other".into()).await,
            store.prune(&thread, head, Prune::default()).await.map(drop),
        ];
        for result in damaged {
            assert!(matches!(result, Err(CheckpointError::Corrupt { .. })), "{result:?}");
        }
    }
}
