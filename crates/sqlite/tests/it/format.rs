//! The stored format, for programs of other versions and for people.
//!
//! `tests/fixtures/v1.db`, `v2.db` and `v4.db` were written by [`write_fixture`] when their schemas were new. They
//! are never written again: a later schema gets a fixture of its own, and these must still load. To create
//! the fixture of a new schema, add its path to [`FIXTURE`] and run the tests once with
//! `SUPERSTEP_WRITE_FIXTURE=1`; an existing file is not overwritten.

use std::{collections::BTreeMap, path::Path};

use serde_json::json;
use superstep_graph::{
    CheckpointId, Checkpointer, History, ThreadId,
    checkpoint::{AppliedTask, CheckpointError, Commit, RecordedTarget, Source, TaskKey, TaskRecord},
    state::ChannelValue,
};
use superstep_sqlite::{SCHEMA, SqliteCheckpointer};

use crate::support::{Folder, load, superstep, updates};

/// The fixture of schema 1.
pub(crate) const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/v1.db");

/// The fixture of schema 2.
const UNINDEXED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/v2.db");

/// The fixture of the current schema.
const PRESENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/v4.db");

/// Stores one of everything: a run with a parallel superstep and a snapshot, a worker with its item, a fork,
/// a failed task, a thread with an odd name.
async fn write_fixture(path: &Path) {
    let store = SqliteCheckpointer::open(path).unwrap();
    let thread = ThreadId::from("chat");
    let id = |number| Some(CheckpointId(number));
    let task = |slot, node: &str, recorded, update: &str| AppliedTask {
        slot,
        recorded,
        node: node.into(),
        update: update.into(),
    };
    let serde_json::Value::Object(metadata) = json!({"user": "ü", "n": 1}) else { unreachable!() };
    let mut input = superstep(None, "0");
    input.control.next = vec!["__start__".into()];
    let input = Commit {
        metadata: metadata.into(),
        applied: Vec::new(),
        records: vec![(
            0,
            TaskRecord::Finished { update: r#"{"log":["in"]}"#.into(), targets: Vec::new(), failure: None },
        )],
        ..input
    };
    store.commit(&thread, None, input).await.unwrap();
    let mut begun = superstep(id(1), "0");
    begun.control.next = vec!["left".into(), "right".into()];
    begun.applied = vec![task(0, "__start__", true, r#"{"log":["in"]}"#)];
    store.commit(&thread, id(1), begun).await.unwrap();
    let sent = RecordedTarget::Send { node: "worker".into(), item: r#"{"n":1}"#.into() };
    let right = TaskKey { thread: thread.clone(), checkpoint: CheckpointId(2), slot: 1 };
    store
        .record(
            &right,
            TaskRecord::Failed { attempts: 1, error: "no \"answer\"".into(), once: Default::default() },
        )
        .await
        .unwrap();
    let targets = vec!["join".into(), sent, "__end__".into()];
    let update = r#"{"log":["right"],"x":null}"#.into();
    store.record(&right, TaskRecord::Finished { update, targets, failure: None }).await.unwrap();
    let mut joined = superstep(id(2), "0");
    joined.control.next = vec!["worker".into()];
    joined.control.items.insert(0, r#"{"n":1}"#.into());
    joined.applied = vec![
        task(0, "left", false, r#"{"log":["left"]}"#),
        task(1, "right", true, r#"{"log":["right"],"x":null}"#),
    ];
    joined.snapshot = Some(
        vec![
            ChannelValue { channel: "log".into(), json: r#"["in","left","right"]"#.into() },
            ChannelValue { channel: "a b".into(), json: "null".into() },
        ]
        .into(),
    );
    store.commit(&thread, id(2), joined).await.unwrap();
    let by_hand = Commit { source: Source::Update, ..superstep(id(3), r#"{"log":["hand"]}"#) };
    store.commit(&thread, id(3), by_hand).await.unwrap();
    let fork = Commit { source: Source::Fork, applied: Vec::new(), ..superstep(id(2), "0") };
    store.commit(&thread, id(4), fork).await.unwrap();
    let failed = TaskKey { thread, checkpoint: CheckpointId(5), slot: 0 };
    store
        .record(
            &failed,
            TaskRecord::Failed { attempts: 0, error: "out of attempts".into(), once: Default::default() },
        )
        .await
        .unwrap();
    store
        .record(&TaskKey { slot: 1, ..failed }, TaskRecord::Cancelled { once: Default::default() })
        .await
        .unwrap();
    store.commit(&"../o'dd ü".into(), None, superstep(None, "{}")).await.unwrap();
}

/// Asserts that newly written data equals a fixture. A missing fixture is written if requested.
pub(crate) fn assert_written_as_in(fixture: &str, written: &Path) {
    if std::env::var_os("SUPERSTEP_WRITE_FIXTURE").is_some() && !Path::new(fixture).exists() {
        std::fs::copy(written, fixture).unwrap();
    }
    let fixture = copy(fixture);
    // A database of an older schema becomes a current one.
    drop(fixture.open());
    assert_eq!(dump(written), dump(&fixture.db()));
    let whole: String = fixture.sql().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok");
}

/// Returns every row, as text.
fn dump(path: &Path) -> String {
    let connection = rusqlite::Connection::open(path).unwrap();
    let mut dump = String::new();
    for table in ["sqlite_schema", "threads", "checkpoints", "tasks", "task_sums"] {
        let columns = if table == "sqlite_schema" { "type, name, tbl_name, sql" } else { "*" };
        let mut rows = connection.prepare(&format!("SELECT {columns} FROM {table} ORDER BY 1, 2")).unwrap();
        let columns = rows.column_count();
        let mut rows = rows.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            for column in 0..columns {
                dump.push_str(&format!("{:?} ", row.get_unwrap::<_, rusqlite::types::Value>(column)));
            }
            dump.push('\n');
        }
    }
    dump
}

/// Copies a fixture, because opening a database creates files next to it.
pub(crate) fn copy(fixture: &str) -> Folder {
    let folder = Folder::new();
    std::fs::copy(fixture, folder.db()).expect("the fixture is in the repository");
    folder
}

fn fixture() -> Folder {
    copy(PRESENT)
}

#[tokio::test]
async fn the_stored_form_is_unchanged() {
    let folder = Folder::new();
    write_fixture(&folder.db()).await;
    for fixture in [PRESENT, UNINDEXED, FIXTURE] {
        assert_written_as_in(fixture, &folder.db());
    }
}

#[tokio::test]
async fn databases_of_all_schemas_load() {
    for fixture in [FIXTURE, UNINDEXED, PRESENT] {
        let folder = copy(fixture);
        let bytes = std::fs::read(folder.db()).unwrap();
        check_fixture(&SqliteCheckpointer::open_read_only(folder.db()).unwrap()).await;
        assert_eq!(std::fs::read(folder.db()).unwrap(), bytes, "reading changes nothing");
        let store = folder.open();
        check_fixture(&store).await;
        let head = Some(CheckpointId(5));
        store.commit(&"chat".into(), head, superstep(head, "6")).await.unwrap();
    }
}

async fn check_fixture(store: &SqliteCheckpointer) {
    let thread = ThreadId::from("chat");
    let at = async |number| store.load(&thread, Some(CheckpointId(number))).await.unwrap().unwrap();

    let input = at(1).await;
    assert_eq!(serde_json::Value::Object(input.meta.metadata), json!({"user": "ü", "n": 1}));
    assert_eq!(
        (input.meta.source, input.meta.parent, input.meta.created_ms),
        (Source::Input, None, 1_699_999_999_999)
    );
    assert_eq!((input.meta.control.step, input.meta.control.next), (-1, vec!["__start__".into()]));
    assert_eq!(input.commits, [Vec::<&str>::new()]);

    let parallel = at(2).await;
    assert_eq!(updates(&parallel), [r#"{"log":["in"]}"#]);
    let left =
        TaskRecord::Finished { update: r#"{"log":["left"]}"#.into(), targets: Vec::new(), failure: None };
    let sent = RecordedTarget::Send { node: "worker".into(), item: r#"{"n":1}"#.into() };
    let right = TaskRecord::Finished {
        update: r#"{"log":["right"],"x":null}"#.into(),
        targets: vec!["join".into(), sent, "__end__".into()],
        failure: None,
    };
    assert_eq!(parallel.tasks, [(0, left), (1, right)]);

    let worker = at(3).await.meta.control;
    assert_eq!(worker.next, ["worker"]);
    assert_eq!(worker.items.into_iter().collect::<Vec<_>>(), [(0, r#"{"n":1}"#.to_owned())]);

    let by_hand = at(4).await;
    let snapshot = vec![
        ChannelValue { channel: "log".into(), json: r#"["in","left","right"]"#.into() },
        ChannelValue { channel: "a b".into(), json: "null".into() },
    ];
    assert_eq!(
        (updates(&by_hand), by_hand.snapshot),
        (vec![r#"{"log":["hand"]}"#.into()], Some(snapshot.into()))
    );

    let fork = load(store, &thread).await;
    assert_eq!(
        (fork.head, fork.meta.source, fork.meta.parent),
        (CheckpointId(5), Source::Fork, Some(CheckpointId(2)))
    );
    assert_eq!((updates(&fork), fork.snapshot), (vec![r#"{"log":["in"]}"#.into()], None));
    let failed =
        TaskRecord::Failed { attempts: 0, error: "out of attempts".into(), once: Default::default() };
    assert_eq!(fork.tasks, [(0, failed), (1, TaskRecord::Cancelled { once: Default::default() })]);

    assert_eq!(updates(&load(store, &"../o'dd ü".into()).await), ["{}"]);
    assert_eq!(store.history(&thread, History::default()).await.unwrap().len(), 5);
    assert_eq!(store.threads().await.unwrap().len(), 2);
}

#[test]
fn people_can_read_the_history() {
    let folder = fixture();
    let connection = folder.sql();
    let mut rows = connection
        .prepare("SELECT thread || ' ' || id || ' ' || source || ' ' || step || ' ' || next || ' ' || created FROM history")
        .unwrap();
    let rows: Vec<String> = rows.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(
        rows,
        [
            r#"../o'dd ü 1 input -1 ["b"] 2023-11-14T22:13:19.999Z"#,
            r#"chat 5 fork 1 ["b"] 2023-11-14T22:13:20.001Z"#,
            r#"chat 4 update 2 ["b"] 2023-11-14T22:13:20.002Z"#,
            r#"chat 3 loop 1 ["worker"] 2023-11-14T22:13:20.001Z"#,
            r#"chat 2 loop 0 ["left","right"] 2023-11-14T22:13:20.000Z"#,
            r#"chat 1 input -1 ["__start__"] 2023-11-14T22:13:19.999Z"#,
        ]
    );
    let json: i64 = connection
        .query_row(
            "SELECT min(json_valid(control) AND json_valid(applied) AND coalesce(json_valid(snapshot), 1)
             AND coalesce(json_valid(metadata), 1)) FROM checkpoints",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(json, 1);
    let update: String = connection
        .query_row(
            "SELECT record ->> '$.update.log[0]' FROM tasks WHERE slot = 1 ORDER BY checkpoint",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(update, "right");
}

#[test]
fn the_tables_are_the_ones_that_are_promised() {
    let stored: String = fixture()
        .sql()
        .query_row("SELECT group_concat(sql, char(10)) FROM sqlite_schema WHERE sql NOT NULL", [], |row| {
            row.get(0)
        })
        .unwrap();
    for statement in stored.split("\nCREATE ") {
        let statement = statement.trim_start_matches("CREATE ");
        assert!(SCHEMA.contains(statement), "{statement}");
    }
}

#[tokio::test]
async fn results_of_once_are_stored_in_their_first_form() {
    let folder = Folder::new();
    let store = folder.open();
    let thread = ThreadId::from("t");
    store.commit(&thread, None, superstep(None, "{}")).await.unwrap();
    let once = BTreeMap::from([("charge".to_owned(), r#"{"id":7}"#.into())]);
    let records = [
        (
            TaskRecord::Started { attempts: 0, once: once.clone() },
            r#"{"end":"started","once":{"charge":"{\"id\":7}"}}"#,
        ),
        (
            TaskRecord::Started { attempts: 2, once: once.clone() },
            r#"{"end":"started","attempts":2,"once":{"charge":"{\"id\":7}"}}"#,
        ),
        (
            TaskRecord::Failed { attempts: 1, error: "no".into(), once: once.clone() },
            r#"{"end":"failed","attempts":1,"error":"no","once":{"charge":"{\"id\":7}"}}"#,
        ),
        (TaskRecord::Cancelled { once }, r#"{"end":"cancelled","once":{"charge":"{\"id\":7}"}}"#),
        (TaskRecord::Cancelled { once: BTreeMap::new() }, r#"{"end":"cancelled"}"#),
    ];
    for (slot, (record, stored)) in (0..).zip(records) {
        let task = TaskKey { thread: thread.clone(), checkpoint: CheckpointId(1), slot };
        store.record(&task, record.clone()).await.unwrap();
        let text: String = folder
            .sql()
            .query_row("SELECT record FROM tasks WHERE slot = ?1", [slot], |row| row.get(0))
            .unwrap();
        assert_eq!(text, stored);
        assert_eq!(load(&store, &thread).await.tasks[slot as usize], (slot, record));
    }
}

#[tokio::test]
async fn further_effects_are_rows_of_their_own_until_a_whole_record_replaces_them() {
    let folder = Folder::new();
    let store = folder.open();
    let thread = ThreadId::from("t");
    store.commit(&thread, None, superstep(None, "{}")).await.unwrap();
    let task = TaskKey { thread: thread.clone(), checkpoint: CheckpointId(1), slot: 1 };
    let effect = |name: &str| BTreeMap::from([(name.to_owned(), "7".into())]);
    let started = TaskRecord::Started { attempts: 2, once: effect("a") };
    store.record(&task, started).await.unwrap();
    for name in ["b", "c"] {
        assert!(store.add_effects(&task, effect(name)).await.unwrap());
    }
    let rows = || -> Vec<(i64, String)> {
        let sql = folder.sql();
        let mut rows = sql.prepare("SELECT slot, record FROM tasks ORDER BY slot").unwrap();
        rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
    };
    let expected = [
        (-33_554_432, r#"{"end":"started","once":{"b":"7"}}"#.to_owned()),
        (-33_554_431, r#"{"end":"started","once":{"c":"7"}}"#.to_owned()),
        (1, r#"{"end":"started","attempts":2,"once":{"a":"7"}}"#.to_owned()),
    ];
    assert_eq!(rows(), expected);
    let once: BTreeMap<_, _> = ["a", "b", "c"].into_iter().flat_map(effect).collect();
    assert_eq!(load(&store, &thread).await.tasks, [(1, TaskRecord::Started { attempts: 2, once })]);
    folder.sql().execute("DELETE FROM tasks WHERE slot = -33554431", []).unwrap();
    let error = store.load(&thread, None).await.unwrap_err();
    assert!(matches!(error, CheckpointError::Corrupt { .. }), "{error:?}");
    store.record(&task, TaskRecord::Cancelled { once: BTreeMap::new() }).await.unwrap();
    assert_eq!(rows(), [(1, r#"{"end":"cancelled"}"#.to_owned())]);
}
