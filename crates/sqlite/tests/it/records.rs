//! The stored records of unfinished tasks: effects, questions, and error handlers.
//!
//! `tests/fixtures/v1-records.db` has one of each, as [`write_fixture`] stored them when these records were
//! new. Like the other fixtures it is never written again; see [`format`](crate::format).

use std::{collections::BTreeMap, path::Path};

use serde_json::json;
use superstep_graph::{
    CheckpointId, Checkpointer, NodeFailure, Question, ThreadId,
    checkpoint::{Commit, RecordedTarget, Source, TaskKey, TaskRecord, Within},
    state::RawJson,
};
use superstep_sqlite::SqliteCheckpointer;

use crate::{
    format::{assert_written_as_in, copy},
    support::{load, superstep},
};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/v1-records.db");

fn strings(pairs: &[(&str, &str)]) -> BTreeMap<String, RawJson> {
    pairs.iter().map(|(key, json)| ((*key).to_owned(), (*json).into())).collect()
}

fn once() -> BTreeMap<String, RawJson> {
    strings(&[("charge", r#"{"id":7}"#), ("mail ü", "null")])
}

fn failure(json: serde_json::Value) -> Box<NodeFailure> {
    Box::new(serde_json::from_value(json).expect("that is what handlers are told"))
}

/// Returns one task of each kind, in the order of their slots.
fn records() -> Vec<TaskRecord> {
    let question = |key: &str, schema: Option<&str>, within| Question {
        key: key.into(),
        question: r#"{"amount":3}"#.into(),
        schema: schema.map(Into::into),
        within,
        replaces: None,
    };
    let within = Within {
        call: "child".into(),
        step: 2,
        slot: 1,
        key: "inner".into(),
        id: "ask:1:inner".into(),
        node: "ask".into(),
    };
    let plain = || failure(json!({"node": "a", "attempts": 1, "kind": "error", "message": "it broke"}));
    let full = failure(json!({
        "node": "w", "attempts": 3, "kind": "timeout", "message": "too slow", "causes": ["the disk is \"full\"", "why"],
        "data": {"status": 507}, "item": {"n": 1},
    }));
    let panic = failure(json!({"node": "b", "attempts": 2, "kind": "panic", "message": "oh"}));
    let to_run = TaskRecord::Failed { attempts: 0, error: "it broke".into(), once: BTreeMap::new() };
    let asks = TaskRecord::Interrupted {
        questions: vec![question("q", Some(r#"{"type":"boolean"}"#), None)],
        answers: strings(&[("p", "true")]),
        asked: BTreeMap::new(),
        attempts: 0,
        error: None,
        once: once(),
    };
    vec![
        TaskRecord::Handled { failure: plain(), handler: Box::new(to_run) },
        TaskRecord::Handled { failure: full, handler: Box::new(asks) },
        TaskRecord::Finished {
            update: r#"{"log":["mended"]}"#.into(),
            targets: vec!["x".into(), RecordedTarget::Send { node: "w".into(), item: "2".into() }],
            failure: Some(plain()),
        },
        TaskRecord::Handled {
            failure: panic,
            handler: Box::new(TaskRecord::Started { attempts: 1, once: once() }),
        },
        TaskRecord::Started { attempts: 0, once: once() },
        TaskRecord::Started { attempts: 2, once: once() },
        TaskRecord::Failed { attempts: 1, error: "no".into(), once: once() },
        TaskRecord::Cancelled { once: once() },
        TaskRecord::Interrupted {
            questions: vec![question("r", None, None), question("inner", None, Some(within))],
            answers: BTreeMap::new(),
            asked: BTreeMap::new(),
            attempts: 2,
            error: Some("no".into()),
            once: once(),
        },
    ]
}

fn slots() -> Vec<(u32, TaskRecord)> {
    (0..).zip(records()).collect()
}

/// Stores the records one by one, as tasks end, and then those of tasks that remain after a manual update,
/// together.
async fn write_fixture(path: &Path) {
    let store = SqliteCheckpointer::open(path).unwrap();
    let thread = ThreadId::from("t");
    let next = vec!["a".into(); records().len()];
    let mut begun = superstep(None, "0");
    begun.control.next.clone_from(&next);
    store.commit(&thread, None, begun).await.unwrap();
    for (slot, record) in slots() {
        let task = TaskKey { thread: thread.clone(), checkpoint: CheckpointId(1), slot };
        store.record(&task, record).await.unwrap();
    }
    let head = Some(CheckpointId(1));
    let mut by_hand = Commit { source: Source::Update, records: slots(), ..superstep(head, "1") };
    by_hand.control.next = next;
    store.commit(&thread, head, by_hand).await.unwrap();
}

#[tokio::test]
async fn records_are_written_today_as_they_were_written_then() {
    let folder = crate::support::Folder::new();
    write_fixture(&folder.db()).await;
    assert_written_as_in(FIXTURE, &folder.db());
}

#[tokio::test]
async fn records_of_schema_1_load() {
    let folder = copy(FIXTURE);
    let store = folder.open();
    let thread = ThreadId::from("t");
    let begun = store.load(&thread, Some(CheckpointId(1))).await.unwrap().unwrap();
    assert_eq!(begun.tasks, slots());
    assert_eq!(load(&store, &thread).await.tasks, slots());
}

#[test]
fn records_of_error_handlers_are_readable() {
    let folder = copy(FIXTURE);
    let connection = folder.sql();
    let mut rows = connection
        .prepare(
            "SELECT record ->> '$.failure.node' || ': ' || (record ->> '$.failure.message') FROM tasks
             WHERE record ->> '$.failure' NOT NULL ORDER BY checkpoint, slot LIMIT 4",
        )
        .unwrap();
    let told: Vec<String> = rows.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(told, ["a: it broke", "w: too slow", "a: it broke", "b: oh"]);
}
