//! Files with something in them that superstep did not write.

use superstep_graph::{CheckpointError, CheckpointId, Checkpointer, Commit, TaskKey, TaskRecord, ThreadId};

use crate::support::{Folder, line, load, superstep, updates};

/// Changes a database of three checkpoints and says what loading it gives.
async fn damaged(sql: &str) -> String {
    let folder = Folder::new();
    line(&folder.open(), &"t".into(), 3).await;
    folder.sql().execute_batch(sql).unwrap();
    let store = folder.open();
    let error = store.load(&"t".into(), None).await.expect_err("it is damaged");
    assert!(matches!(error, CheckpointError::Corrupt { .. }), "{error:?}");
    // What was written before the damage is still there.
    let first = store.load(&"t".into(), Some(CheckpointId(1))).await.unwrap().unwrap();
    assert_eq!(updates(&first), ["1"]);
    folder.text(&error)
}

#[tokio::test]
async fn a_row_that_superstep_did_not_write_is_named() {
    let advice = "go on from an older checkpoint, or restore the file from a backup";
    let cases = [
        (
            "UPDATE checkpoints SET applied = '[{' WHERE id = 3",
            "checkpoint 3",
            "list of applied tasks",
            "EOF while parsing an object at line 1 column 2",
        ),
        (
            "UPDATE checkpoints SET snapshot = '[]' WHERE id = 2",
            "checkpoint 2",
            "snapshot",
            "invalid type: sequence, expected an object with the value of every channel at line 1 column 0",
        ),
        (
            "UPDATE checkpoints SET control = '{}' WHERE id = 3",
            "checkpoint 3",
            "control",
            "missing field `step` at line 1 column 2",
        ),
        (
            "UPDATE checkpoints SET metadata = 'x' WHERE id = 3",
            "checkpoint 3",
            "metadata",
            "expected value at line 1 column 1",
        ),
        ("UPDATE checkpoints SET source = 'x' WHERE id = 3", "checkpoint 3", "source", "unknown source `x`"),
        ("UPDATE checkpoints SET parent = 3 WHERE id = 3", "checkpoint 3", "parent", "it is not older"),
        (
            "INSERT INTO tasks SELECT key, 0, '{\"end\":\"finished\"}' FROM checkpoints WHERE id = 3",
            "checkpoint 3",
            "record of a task",
            "a \"finished\" task without `update`",
        ),
    ];
    for (sql, checkpoint, part, cause) in cases {
        let expected = format!(
            "SS304: {checkpoint} of thread `t` in database `DIR/db` is damaged: \
             superstep did not write this {part}; {advice}: {cause}"
        );
        assert_eq!(damaged(sql).await, expected, "{sql}");
    }
}

#[tokio::test]
async fn a_row_that_is_gone_is_named() {
    assert_eq!(
        damaged("DELETE FROM checkpoints WHERE id = 2").await,
        "SS304: checkpoint 3 of thread `t` in database `DIR/db` is damaged: its ancestor 2 is missing; \
         restore the file from a backup"
    );
    assert_eq!(
        damaged("UPDATE checkpoints SET applied = '[{\"slot\":4,\"node\":\"a\"}]' WHERE id = 2").await,
        "SS304: checkpoint 2 of thread `t` in database `DIR/db` is damaged: the record of task 4 it applied is missing; \
         restore the file from a backup"
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
async fn what_is_not_json_is_refused_and_not_stored() {
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
        let channel = superstep_graph::ChannelValue { channel: "log".into(), json: update.into() };
        let full = Commit { snapshot: Some(vec![channel]), ..superstep(head, "2") };
        let text = folder.text(&store.commit(&thread, head, full).await.unwrap_err());
        let expected = "SS303: cannot store channel `log` of thread `t`: it is not JSON";
        assert!(text.starts_with(expected), "{text}");
    }
    assert_eq!(load(&store, &thread).await, before);
}
