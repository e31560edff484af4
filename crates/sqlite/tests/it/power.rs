//! Power failures: the log ends anywhere, and a thread is as it was at some time.

use std::collections::BTreeMap;

use superstep_graph::{
    CheckpointId, Checkpointer, History, ThreadId,
    checkpoint::{Prune, TaskKey, TaskRecord},
    state::ChannelValue,
};

use crate::support::{Folder, line};

const PAGE: usize = 4_096;

/// Sizes in the format of SQLite's log.
const HEADER: usize = 32;
const FRAME: usize = 24 + PAGE;

#[tokio::test]
async fn a_pruned_thread_with_effects_is_as_it_was_at_some_time_before_a_power_failure() {
    let folder = Folder::new();
    let (store, thread) = (folder.open(), ThreadId::from("t"));
    line(&store, &thread, 3).await;
    let task = TaskKey { thread: thread.clone(), checkpoint: CheckpointId(3), slot: 0 };
    let effect = |name: &str| BTreeMap::from([(name.to_owned(), "7".into())]);
    store.record(&task, TaskRecord::Started { attempts: 1, once: effect("a") }).await.unwrap();
    assert!(store.add_effects(&task, effect("b")).await.unwrap());
    let full = vec![ChannelValue { channel: "log".into(), json: r#"["all"]"#.into() }];
    let prune = Prune {
        keep: [CheckpointId(3)].into(),
        snapshots: [(CheckpointId(3), full)].into(),
        ..Prune::default()
    };
    assert_eq!(store.prune(&thread, CheckpointId(3), prune).await.unwrap(), 2);
    assert!(store.add_effects(&task, effect("c")).await.unwrap());

    let moments: [(&[u64], &str); 8] = [
        (&[], ""),
        (&[1], ""),
        (&[2, 1], ""),
        (&[3, 2, 1], ""),
        (&[3, 2, 1], "a"),
        (&[3, 2, 1], "ab"),
        (&[3], "ab"),
        (&[3], "abc"),
    ];
    let (db, log) =
        (std::fs::read(folder.db()).unwrap(), std::fs::read(folder.path().join("db-wal")).unwrap());
    let mut seen = Vec::new();
    for frames in 0..=(log.len() - HEADER) / FRAME {
        let cut = Folder::new();
        std::fs::write(cut.db(), &db).unwrap();
        // The rest of the frame that was being written.
        let torn = log.get(HEADER + frames * FRAME..).map_or(0, |rest| rest.len().min(FRAME / 2));
        std::fs::write(cut.path().join("db-wal"), &log[..HEADER + frames * FRAME + torn]).unwrap();
        let store = cut.open();
        let ids: Vec<u64> =
            store.history(&thread, History::default()).await.unwrap().iter().map(|it| it.id.0).collect();
        let loaded = store.load(&thread, None).await.unwrap();
        let effects: String = loaded
            .iter()
            .flat_map(|loaded| &loaded.tasks)
            .flat_map(|(_, record)| match record {
                TaskRecord::Started { once, .. } => once.keys().cloned().collect::<Vec<_>>(),
                other => panic!("{other:?}"),
            })
            .collect();
        let at = moments.iter().position(|moment| *moment == (&ids[..], &*effects));
        seen.push(at.unwrap_or_else(|| panic!("{frames} frames: {ids:?} with {effects:?}")));
        // A next writer continues from there.
        if let Some(loaded) = loaded {
            assert_eq!(loaded.head.0, ids[0]);
            let key = TaskKey { checkpoint: loaded.head, ..task.clone() };
            store.record(&key, TaskRecord::Cancelled { once: BTreeMap::new() }).await.unwrap();
            store.verify().await.unwrap();
        }
    }
    assert!(seen.is_sorted(), "{seen:?}");
    seen.dedup();
    assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7]);
}
