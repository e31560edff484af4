//! Rows that another program changed or removed.

use superstep_graph::{
    CheckpointId, Checkpointer, History, ThreadId,
    checkpoint::{CheckpointError, TaskKey, TaskRecord},
};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions};

use crate::{
    server::shared,
    support::{fresh, line, load, open, updates},
};

/// Returns the error and its causes, with the database as `DB`.
fn text(error: &CheckpointError, options: &PostgresOptions) -> String {
    format!("{error:?}").replace(&options.location().unwrap(), "DB")
}

#[tokio::test]
async fn a_changed_row_is_an_error_that_names_it() {
    let Some(server) = shared() else { return };
    let advice = "resume from an older checkpoint, or restore the database from a backup";
    let restore = "restore the database from a backup";
    let row = format!("SS304: checkpoint 3 of thread `t` in database `DB` is damaged: its row; {advice}");
    let thread = format!(
        "SS304: the row of thread `t` in the table `threads` in database `DB` is damaged; {restore}, or delete the thread"
    );
    let missing = |part: &str| {
        format!("SS304: checkpoint 3 of thread `t` in database `DB` is damaged: {part} is missing; {restore}")
    };
    let cases = [
        ("UPDATE checkpoints SET control = '{\"step\":9,\"next\":[]}' WHERE id = 3", row.clone()),
        ("UPDATE checkpoints SET created_ms = 0 WHERE id = 3", row.clone()),
        ("UPDATE checkpoints SET metadata = '{}' WHERE id = 3", row.clone()),
        ("UPDATE checkpoints SET applied = '[]' WHERE id = 3", row.clone()),
        ("UPDATE checkpoints SET snapshot = '{}' WHERE id = 3", row.clone()),
        ("UPDATE checkpoints SET parent = 3 WHERE id = 3", row.clone()),
        ("UPDATE threads SET head = 2", thread.clone()),
        ("UPDATE threads SET checkpoints = 2", thread.clone()),
        ("UPDATE threads SET name = 't' || name WHERE false; UPDATE threads SET checksum = 0", thread),
        ("DELETE FROM checkpoints WHERE id = 3", missing("its row")),
        ("DELETE FROM checkpoints WHERE id = 2", missing("its parent")),
        ("DELETE FROM checkpoints WHERE id = 1", missing("its ancestor 1")),
        (
            "UPDATE tasks SET record = '{\"end\":\"cancelled\"}'",
            format!(
                "SS304: checkpoint 3 of thread `t` in database `DB` is damaged: the row of its task 0; {advice}"
            ),
        ),
        ("DELETE FROM tasks", missing("the record of a task")),
        ("DELETE FROM task_sums", missing("the record of a task")),
    ];
    for (sql, expected) in cases {
        let options = fresh(server);
        let (store, thread) = (open(&options), ThreadId::from("t"));
        line(&store, &thread, 3).await;
        let key = TaskKey { thread: thread.clone(), checkpoint: CheckpointId(3), slot: 0 };
        let failed = TaskRecord::Failed { attempts: 1, error: "no".into(), once: Default::default() };
        store.record(&key, failed).await.unwrap();
        assert_eq!(load(&store, &thread).await.tasks.len(), 1);
        server.sql(&format!("SET search_path TO {}; {sql}", options.schema));
        let error = store.load(&thread, None).await.expect_err(sql);
        let message = text(&error, &options);
        assert!(message.starts_with(&expected), "{sql}:\n{message}\n{expected}");
        // The others are not affected, and nothing is committed behind it.
        store.delete(&thread).await.unwrap();
        line(&store, &thread, 1).await;
        assert_eq!(updates(&load(&store, &thread).await), ["1"]);
    }
}

#[tokio::test]
async fn data_before_the_damage_is_readable_and_not_copied() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let (store, thread) = (open(&options), ThreadId::from("t"));
    line(&store, &thread, 3).await;
    server.sql(&format!("UPDATE {}.checkpoints SET created_ms = 0 WHERE id = 3", options.schema));
    let second = store.load(&thread, Some(CheckpointId(2))).await.unwrap().unwrap();
    assert_eq!((updates(&second), second.tasks.len()), (vec!["1".into(), "2".into()], 1));
    for damaged in [
        store.copy(&thread, &"copy".into()).await.unwrap_err(),
        store.history(&thread, History::default()).await.unwrap_err(),
        store.prune(&thread, CheckpointId(3), Default::default()).await.unwrap_err(),
    ] {
        assert!(matches!(damaged, CheckpointError::Corrupt { .. }), "{damaged:?}");
    }
    assert_eq!(store.names().await.unwrap(), [thread]);
}

/// The rule of SQLite's bits: a missing checkpoint of a pruned thread was pruned, or it is an error.
#[tokio::test]
async fn a_damaged_key_of_a_pruned_thread_never_makes_a_checkpoint_seem_pruned() {
    let Some(server) = shared() else { return };
    for (changed, to) in
        [(3, 2), (3, 4), (3, 1), (5, 4), (5, 7), (6, 7), (6, 4), (8, 7), (8, 1), (3, 90), (6, 90)]
    {
        let options = fresh(server);
        let (store, thread) = (open(&options), ThreadId::from("t"));
        line(&store, &thread, 8).await;
        let keep = [3, 5, 6, 8].map(CheckpointId);
        let mut snapshots = std::collections::BTreeMap::new();
        for id in [3, 5, 8].map(CheckpointId) {
            let full =
                superstep_graph::state::ChannelValue { channel: "log".into(), json: r#"["all"]"#.into() };
            snapshots.insert(id, vec![full]);
        }
        let prune = superstep_graph::checkpoint::Prune { keep: keep.into(), snapshots, ..Default::default() };
        assert_eq!(store.prune(&thread, CheckpointId(8), prune).await.unwrap(), 4);
        let requests = async || {
            let mut answers = Vec::new();
            for id in (1..=9).map(CheckpointId) {
                answers.push(store.load(&thread, Some(id)).await.map(|loaded| format!("{loaded:?}")).ok());
            }
            for before in [None, Some(4), Some(6), Some(7)] {
                for limit in [None, Some(1), Some(2), Some(3)] {
                    let range = History { before: before.map(CheckpointId), limit, ..History::default() };
                    answers.push(store.history(&thread, range).await.map(|metas| format!("{metas:?}")).ok());
                }
            }
            answers
        };
        let before = requests().await;
        assert!(before.iter().all(Option::is_some), "{before:?}");
        server.sql(&format!("UPDATE {}.checkpoints SET id = {to} WHERE id = {changed}", options.schema));
        let after = requests().await;
        assert!(after[changed - 1].is_none(), "{changed} to {to}: {:?}", after[changed - 1]);
        for (before, after) in before.iter().zip(&after) {
            assert!(after.is_none() || after == before, "{changed} to {to}:\n{before:?}\n{after:?}");
        }
    }
}

#[tokio::test]
async fn a_database_that_cannot_be_used_is_refused_without_the_password() {
    let Some(server) = shared() else { return };
    let refused = |options: PostgresOptions| {
        let error = PostgresCheckpointer::open(options).expect_err("it is refused");
        let message = format!("{error:?}");
        assert!(!message.contains("s3cret"), "{message}");
        message
    };
    let url = server.url();
    let unknown = refused(PostgresOptions::new(url.replace("/postgres", "/nothing")));
    assert!(unknown.contains("the database does not exist; create it, or use another"), "{unknown}");
    let nobody = refused(PostgresOptions::new(url.replace("test:", "nobody:")));
    assert!(nobody.starts_with("SS303: cannot open the tables in database `postgres://"), "{nobody}");
    let unreachable = refused(PostgresOptions::new("postgres://a:s3cret@127.0.0.1:1/x"));
    assert!(unreachable.contains("the server cannot be reached"), "{unreachable}");

    let options = fresh(server);
    let schema = &options.schema;
    let reading = options.clone().read_only();
    assert!(PostgresCheckpointer::find(reading.clone()).unwrap().is_none());
    server.sql(&format!("CREATE SCHEMA {schema}; CREATE TABLE {schema}.theirs ()"));
    assert!(refused(options.clone()).contains("the schema has tables of another program"));
    server.sql(&format!("DROP TABLE {schema}.theirs"));
    line(&open(&options), &"t".into(), 1).await;
    let store = PostgresCheckpointer::find(reading).unwrap().unwrap();
    assert_eq!(store.names().await.unwrap().len(), 1);
    let error = store.delete(&"t".into()).await.unwrap_err().to_string();
    assert!(error.ends_with("was opened for reading only; open it for writing"), "{error}");
    server.sql(&format!("UPDATE {schema}.versions SET version = 99"));
    assert!(refused(options).contains("written by a newer superstep (version 99, this program knows 3)"));
}
