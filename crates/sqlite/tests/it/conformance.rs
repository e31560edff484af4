//! The contract, on files and in memory.

use std::sync::Arc;

use superstep_graph::{
    CheckpointId, Checkpointer, ThreadId,
    checkpoint::{CheckpointError, Prune, TaskKey, TaskRecord},
    state::ChannelValue,
};
use superstep_sqlite::SqliteCheckpointer;

use crate::support::{Folder, line, load, superstep};

superstep_testing::conformance!(
    checkpointer file,
    place = Some(Folder::new()),
    open = async |folder: &Folder| folder.open(),
);

superstep_testing::conformance!(
    checkpointer memory,
    place = Some(Arc::new(SqliteCheckpointer::in_memory().unwrap())),
    open = async |place: &Arc<SqliteCheckpointer>| place.clone(),
);

#[tokio::test]
async fn a_stale_writer_is_rejected_where_the_next_id_was_pruned() {
    let folder = Folder::new();
    let store = folder.open();
    let thread = ThreadId::from("t");
    line(&store, &thread, 5).await;
    let snapshot = || vec![ChannelValue { channel: "c".into(), json: "0".into() }];
    let keep = [2, 5].map(CheckpointId);
    let prune =
        Prune { keep: keep.into(), snapshots: keep.map(|id| (id, snapshot())).into(), ..Prune::default() };
    store.prune(&thread, CheckpointId(5), prune).await.unwrap();
    for seen in [0, 1, 2, 4].map(CheckpointId) {
        let committed = store.commit(&thread, Some(seen), superstep(Some(seen), "6")).await;
        assert!(matches!(committed, Err(CheckpointError::Conflict { .. })), "{seen}: {committed:?}");
        let key = TaskKey { thread: thread.clone(), checkpoint: seen, slot: 0 };
        let recorded = store.record(&key, TaskRecord::Cancelled { once: Default::default() }).await;
        assert!(matches!(recorded, Err(CheckpointError::Conflict { .. })), "{seen}: {recorded:?}");
    }
    assert_eq!(load(&store, &thread).await.head, CheckpointId(5));
    assert!(
        store.commit(&thread, Some(CheckpointId(5)), superstep(Some(CheckpointId(5)), "6")).await.is_ok()
    );
}
