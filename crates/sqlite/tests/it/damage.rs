//! Files with foreign data.

use superstep_graph::{
    CheckpointId, Checkpointer, History, ThreadId,
    checkpoint::{CheckpointError, Commit, TaskKey, TaskRecord},
};

use crate::{
    format::{FIXTURE, copy},
    support::{Folder, line, load, superstep, updates},
};

/// Changes a database of three checkpoints and returns the result of loading it.
async fn damaged(sql: &str) -> String {
    let folder = Folder::new();
    line(&folder.open(), &"t".into(), 3).await;
    folder.sql().execute_batch(sql).unwrap();
    let store = folder.open();
    let error = store.load(&"t".into(), None).await.expect_err("it is damaged");
    assert!(matches!(error, CheckpointError::Corrupt { .. }), "{error:?}");
    folder.text(&error)
}

#[tokio::test]
async fn a_row_that_was_changed_is_named() {
    let advice = "resume from an older checkpoint, or restore the file from a backup";
    let cause = "the row was changed: its checksum does not match";
    let cases = [
        ("UPDATE checkpoints SET applied = '[{' WHERE id = 3", 3),
        ("UPDATE checkpoints SET applied = applied || ' ' WHERE id = 1", 1),
        ("UPDATE checkpoints SET snapshot = '[]' WHERE id = 2", 2),
        ("UPDATE checkpoints SET control = '{}' WHERE id = 3", 3),
        ("UPDATE checkpoints SET metadata = '{}' WHERE id = 3", 3),
        ("UPDATE checkpoints SET source = 'x' WHERE id = 3", 3),
        ("UPDATE checkpoints SET parent = 1 WHERE id = 3", 3),
        ("UPDATE checkpoints SET created_ms = created_ms + 1 WHERE id = 2", 2),
        ("UPDATE checkpoints SET checksum = checksum + 1 WHERE id = 3", 3),
        // Two swapped rows.
        (
            "UPDATE checkpoints SET key = key + 7 WHERE id = 3; UPDATE checkpoints SET key = key + 1 WHERE id = 2;
             UPDATE checkpoints SET key = key - 8 WHERE id = 10",
            3,
        ),
    ];
    for (sql, checkpoint) in cases {
        let expected = format!(
            "SS304: checkpoint {checkpoint} of thread `t` in database `DIR/db` is damaged: its row; {advice}: {cause}"
        );
        assert_eq!(damaged(sql).await, expected, "{sql}");
    }
    assert_eq!(
        damaged(
            "INSERT INTO tasks SELECT key, 0, '{\"end\":\"cancelled\"}', 7 FROM checkpoints WHERE id = 3"
        )
        .await,
        format!(
            "SS304: checkpoint 3 of thread `t` in database `DIR/db` is damaged: the row of its task 0; {advice}: {cause}"
        )
    );
    for sql in [
        "UPDATE threads SET head = 2",
        "UPDATE threads SET checkpoints = 2",
        "UPDATE threads SET checksum = 0",
    ] {
        assert_eq!(
            damaged(sql).await,
            format!(
                "SS304: the row of thread `t` in the table `threads` in database `DIR/db` is damaged; restore the file from \
                 a backup, or delete the thread: {cause}"
            )
        );
    }
}

#[tokio::test]
async fn data_before_the_damage_is_readable_and_a_damaged_thread_can_be_deleted() {
    let folder = Folder::new();
    let (thread, other) = (ThreadId::from("t"), ThreadId::from("other"));
    let store = folder.open();
    line(&store, &thread, 3).await;
    line(&store, &other, 1).await;
    folder.sql().execute_batch("UPDATE checkpoints SET control = '!' WHERE thread = 1 AND id = 3").unwrap();
    let second = store.load(&thread, Some(CheckpointId(2))).await.unwrap().unwrap();
    assert_eq!((updates(&second), second.tasks.len()), (vec!["1".into(), "2".into()], 1));
    folder.sql().execute_batch("UPDATE checkpoints SET applied = '[]' WHERE thread = 1 AND id = 3").unwrap();
    let first = store.load(&thread, Some(CheckpointId(1))).await.unwrap().unwrap();
    assert_eq!(updates(&first), ["1"]);
    assert_eq!(updates(&load(&store, &other).await), ["1"]);
    assert_eq!(store.names().await.unwrap().len(), 2);
    let copied = store.copy(&thread, &"copy".into()).await.unwrap_err();
    assert!(matches!(copied, CheckpointError::Corrupt { .. }), "damage is not copied: {copied:?}");
    folder.sql().execute_batch("UPDATE threads SET head = 9 WHERE name = 't'").unwrap();
    store.delete(&thread).await.unwrap();
    assert_eq!(store.names().await.unwrap(), [other]);
}

/// The database of schema 1 has no checksums, so that foreign data is only found by reading it.
#[tokio::test]
async fn a_row_that_superstep_did_not_write_is_named() {
    let advice = "resume from an older checkpoint, or restore the file from a backup";
    let cases = [
        (
            "UPDATE checkpoints SET applied = '[{' WHERE id = 4",
            4,
            "list of applied tasks",
            "EOF while parsing an object at line 1 column 2",
        ),
        (
            "UPDATE checkpoints SET snapshot = '[]' WHERE id = 3",
            3,
            "snapshot",
            "invalid type: sequence, expected an object with the value of every channel at line 1 column 0",
        ),
        (
            "UPDATE checkpoints SET control = '{}' WHERE id = 4",
            4,
            "control",
            "missing field `step` at line 1 column 2",
        ),
        (
            "UPDATE checkpoints SET metadata = 'x' WHERE id = 4",
            4,
            "metadata",
            "expected value at line 1 column 1",
        ),
        ("UPDATE checkpoints SET source = 'x' WHERE id = 4", 4, "source", "unknown source `x`"),
        ("UPDATE checkpoints SET parent = 4 WHERE id = 4", 4, "parent", "it is not older"),
        (
            "INSERT INTO tasks SELECT key, 0, '{\"end\":\"finished\"}' FROM checkpoints WHERE id = 4",
            4,
            "record of a task",
            "a \"finished\" task without `update`",
        ),
    ];
    for (sql, checkpoint, part, cause) in cases {
        let folder = copy(FIXTURE);
        folder.sql().execute_batch(sql).unwrap();
        let error =
            folder.open().load(&"chat".into(), Some(CheckpointId(4))).await.expect_err("it is damaged");
        let expected = format!(
            "SS304: checkpoint {checkpoint} of thread `chat` in database `DIR/db` is damaged: superstep did not write this \
             {part}; {advice}: {cause}"
        );
        assert_eq!(folder.text(&error), expected, "{sql}");
    }
}

#[tokio::test]
async fn a_row_that_is_gone_is_named() {
    let restore = "restore the file from a backup";
    assert_eq!(
        damaged("DELETE FROM checkpoints WHERE id = 1").await,
        format!(
            "SS304: checkpoint 3 of thread `t` in database `DIR/db` is damaged: its ancestor 1 is missing; {restore}"
        )
    );
    assert_eq!(
        damaged("DELETE FROM checkpoints WHERE id = 2").await,
        format!(
            "SS304: checkpoint 3 of thread `t` in database `DIR/db` is damaged: its parent is missing; {restore}"
        )
    );
    assert_eq!(
        damaged("DELETE FROM checkpoints WHERE id = 3").await,
        format!(
            "SS304: checkpoint 3 of thread `t` in database `DIR/db` is damaged: its row is missing; {restore}"
        )
    );
    let folder = Folder::new();
    let (store, thread) = (folder.open(), ThreadId::from("t"));
    line(&store, &thread, 3).await;
    for slot in 0..3 {
        let key = TaskKey { thread: thread.clone(), checkpoint: CheckpointId(3), slot };
        store.record(&key, TaskRecord::Cancelled { once: Default::default() }).await.unwrap();
    }
    folder.sql().execute_batch("DELETE FROM tasks WHERE slot = 1").unwrap();
    assert_eq!(
        folder.text(&store.load(&thread, None).await.unwrap_err()),
        format!(
            "SS304: checkpoint 3 of thread `t` in database `DIR/db` is damaged: the record of a task is missing; {restore}"
        )
    );
    folder.sql().execute_batch("DELETE FROM checkpoints WHERE id = 1").unwrap();
    assert_eq!(
        folder.text(
            &store.history(&thread, History { limit: Some(3), ..History::default() }).await.unwrap_err()
        ),
        format!(
            "SS304: checkpoint 2 of thread `t` in database `DIR/db` is damaged: its parent is missing; {restore}"
        )
    );
}

#[tokio::test]
async fn pages_that_were_overwritten_are_an_error() {
    let folder = Folder::new();
    line(&folder.open(), &"t".into(), 300).await;
    let mut bytes = std::fs::read(folder.db()).unwrap();
    let (start, end) = (4096 * 2, bytes.len());
    bytes[start..end].fill(0xA5);
    std::fs::write(folder.db(), bytes).unwrap();
    let error = folder.open().load(&"t".into(), None).await.unwrap_err();
    assert!(matches!(error, CheckpointError::Corrupt { .. }), "{error:?}");
    let text = folder.text(&error);
    assert!(text.contains("`DIR/db` is damaged; restore it from a backup"), "{text}");
}

#[tokio::test]
async fn invalid_json_is_rejected_and_not_stored() {
    let folder = Folder::new();
    let store = folder.open();
    let thread = ThreadId::from("t");
    line(&store, &thread, 1).await;
    let head = Some(CheckpointId(1));
    let before = load(&store, &thread).await;
    for update in ["", "{", "1 2", "\"\0\""] {
        let error = store.commit(&thread, head, superstep(head, update)).await.unwrap_err();
        let text = folder.text(&error);
        let expected = "SS303: cannot store the update of node `a`, task 0, of thread `t`: it is not JSON";
        assert!(text.starts_with(expected), "{text}");
        let key = TaskKey { thread: thread.clone(), checkpoint: CheckpointId(1), slot: 2 };
        let record = TaskRecord::Finished { update: update.into(), targets: Vec::new(), failure: None };
        let text = folder.text(&store.record(&key, record).await.unwrap_err());
        let expected = "SS303: cannot store the recorded update of task 2 of thread `t`: it is not JSON";
        assert!(text.starts_with(expected), "{text}");
        let channel = superstep_graph::state::ChannelValue { channel: "log".into(), json: update.into() };
        let full = Commit { snapshot: Some(vec![channel].into()), ..superstep(head, "2") };
        let text = folder.text(&store.commit(&thread, head, full).await.unwrap_err());
        let expected = "SS303: cannot store channel `log` of thread `t`: it is not JSON";
        assert!(text.starts_with(expected), "{text}");
    }
    assert_eq!(load(&store, &thread).await, before);
}

#[tokio::test]
async fn a_thread_that_the_index_of_names_lost_is_reported_after_any_number_of_searches() {
    let folder = Folder::new();
    let store = folder.open();
    let thread = ThreadId::from("needle");
    line(&store, &thread, 1).await;
    drop(store);
    let mut bytes = std::fs::read(folder.db()).unwrap();
    // The pages of indexes begin with this number.
    for page in bytes.chunks_mut(4096).filter(|page| page[0] == 10) {
        if let Some(at) = page.windows(6).position(|window| window == b"needle") {
            page[at] = b'm';
        }
    }
    std::fs::write(folder.db(), bytes).unwrap();
    let store = folder.open();
    for missing in 0..20 {
        let missing = ThreadId::from(format!("missing {missing}"));
        assert_eq!(store.load(&missing, None).await.unwrap(), None);
        let lost = folder.text(&store.load(&thread, None).await.unwrap_err());
        assert!(lost.contains("the index of names does not have it"), "{lost}");
    }
}
