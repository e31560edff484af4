//! A database with one bit flipped: every request returns an error, or the same answer as before.

use std::collections::BTreeMap;

use serde_json::json;
use superstep_graph::{
    CheckpointId, Checkpointer, History, Question, Store, ThreadId,
    checkpoint::{Commit, Source, TaskKey, TaskRecord},
    state::ChannelValue,
    store::{Namespace, PutOptions, Search, StoreOptions, Ttl},
    topology::Control,
};
use superstep_sqlite::{SqliteCheckpointer, SqliteStore};

use crate::support::{Folder, superstep};

/// Selects the bits to flip: a sample, with more in each page's header, and in its last cell, which in an inner page leads the
/// search for rows. `just bits` tries all of them.
fn bits(bytes: usize) -> impl Iterator<Item = usize> {
    const PAGE: usize = 4_096 * 8;
    const FIRST: usize = 24 * 8;
    const LAST: usize = PAGE - 9 * 8;
    let all = std::env::var_os("SUPERSTEP_EVERY_BIT").is_some();
    (0..bytes * 8).filter(move |bit| {
        let place = bit % PAGE;
        all || bit.is_multiple_of(887)
            || (place < FIRST && place.is_multiple_of(5))
            || (place >= LAST && place.is_multiple_of(8))
    })
}

/// Creates threads with a branch, a snapshot, a question, a subgraph; and a partly pruned one.
async fn threads(folder: &Folder) {
    let store = folder.open();
    let id = |number| Some(CheckpointId(number));
    for name in ["chat", "other", "chat\u{1f}sub"] {
        let thread = ThreadId::from(name);
        store.commit(&thread, None, superstep(None, r#"{"log":["in"]}"#)).await.unwrap();
        store.commit(&thread, id(1), superstep(id(1), r#"{"log":["one"]}"#)).await.unwrap();
        let long = format!(r#"{{"log":["{}"]}}"#, "long ".repeat(2_000));
        let full = vec![ChannelValue { channel: "log".into(), json: r#"["all"]"#.into() }];
        let third = Commit { snapshot: Some(full.into()), ..superstep(id(2), &long) };
        store.commit(&thread, id(2), third).await.unwrap();
        let fork = Commit { source: Source::Fork, applied: Vec::new(), ..superstep(id(2), "0") };
        let control = Control::new(1, vec!["a".into(), "b".into()]);
        store.commit(&thread, id(3), Commit { control, ..fork }).await.unwrap();
        let question = Question {
            key: "pay".into(),
            question: r#"{"amount":20}"#.into(),
            schema: None,
            within: None,
            replaces: None,
        };
        let asks = TaskRecord::Interrupted {
            questions: vec![question],
            answers: BTreeMap::from([("sure".into(), "true".into())]),
            asked: Default::default(),
            attempts: 0,
            error: None,
            once: BTreeMap::new(),
        };
        let done = TaskRecord::Finished { update: "{}".into(), targets: Vec::new(), failure: None };
        for (slot, record) in [(0, asks), (1, done)] {
            let task = TaskKey { thread: thread.clone(), checkpoint: CheckpointId(4), slot };
            store.record(&task, record).await.unwrap();
        }
    }
    let prune = superstep_graph::checkpoint::Prune {
        keep: [CheckpointId(3), CheckpointId(4)].into(),
        ..Default::default()
    };
    let full = vec![ChannelValue { channel: "log".into(), json: r#"["all"]"#.into() }];
    let prune = superstep_graph::checkpoint::Prune { snapshots: [(CheckpointId(4), full)].into(), ..prune };
    assert_eq!(store.prune(&"other".into(), CheckpointId(4), prune).await.unwrap(), 2);
}

/// Returns the answers of a database to all requests; empty for those that report damage.
async fn answers(folder: &Folder) -> Vec<(String, Option<String>)> {
    let mut answers = Vec::new();
    let store = SqliteCheckpointer::open_read_only(folder.db());
    macro_rules! ask {
        ($name:expr, $request:ident($($argument:expr),*)) => {
            let answer = match &store {
                Ok(store) => store.$request($($argument),*).await.ok().map(|answer| format!("{answer:?}")),
                Err(_) => None,
            };
            answers.push((format!("{} {}", stringify!($request), $name), answer));
        };
    }
    ask!("", threads());
    ask!("", names());
    for name in ["chat", "other", "chat\u{1f}sub", "none"] {
        let thread = ThreadId::from(name);
        ask!(name, load(&thread, None));
        for id in 1..=5 {
            ask!(format!("{name} {id}"), load(&thread, Some(CheckpointId(id))));
        }
        ask!(name, history(&thread, History::default()));
        ask!(name, history(&thread, History { source: Some(Source::Fork), ..History::default() }));
        ask!(name, history(&thread, History { limit: Some(2), ..History::default() }));
        ask!(name, children(&thread));
    }
    answers
}

fn compare(bit: usize, before: &[(String, Option<String>)], after: Vec<(String, Option<String>)>) -> bool {
    let mut noticed = false;
    for ((what, before), (_, after)) in before.iter().zip(after) {
        noticed |= after.is_none();
        assert!(after.is_none() || after == *before, "bit {bit}: {what}\n{before:?}\n{after:?}");
    }
    noticed
}

#[tokio::test]
async fn a_flipped_bit_never_yields_another_state() {
    let folder = Folder::new();
    threads(&folder).await;
    let (before, mut bytes) = (answers(&folder).await, std::fs::read(folder.db()).unwrap());
    assert!(before.iter().all(|(what, answer)| answer.is_some() || panic!("{what}")));
    let mut noticed = 0;
    for bit in bits(bytes.len()) {
        let flipped = Folder::new();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(flipped.db(), &bytes).unwrap();
        bytes[bit / 8] ^= 1 << (bit % 8);
        noticed += usize::from(compare(bit, &before, answers(&flipped).await));
    }
    assert!(noticed > 20, "{noticed}");
}

/// Returns the items of a store, by key, and the results of searches.
async fn items(folder: &Folder) -> Vec<(String, Option<String>)> {
    let Ok(store) = SqliteStore::open(folder.db()) else { return Vec::new() };
    let mut answers = Vec::new();
    for name in ["notes", "notes.more"] {
        let namespace = Namespace::parse(name).unwrap();
        for key in ["a", "b", "c"] {
            let item = store.get(&namespace, key).await;
            answers.push((format!("{name} {key}"), item.ok().map(|item| format!("{item:?}"))));
        }
    }
    if let Ok(found) = store.search(Search::everywhere().words("tea")).await {
        let whole = found.into_iter().map(|found| {
            let item = found.item;
            (format!("{} {}", item.namespace, item.key), Some(format!("{:?}", Some(item))))
        });
        answers.extend(whole);
    }
    answers
}

#[tokio::test]
async fn a_flipped_bit_never_yields_another_item() {
    let folder = Folder::new();
    let store = SqliteStore::open_with(folder.db(), Default::default(), StoreOptions::default()).unwrap();
    for name in ["notes", "notes.more"] {
        let namespace = Namespace::parse(name).unwrap();
        for key in ["a", "b"] {
            let value = json!({ "text": format!("tea {key}"), "more": "x".repeat(100) });
            let ttl = Ttl::After(std::time::Duration::from_secs(1 << 30));
            store
                .put_with(&namespace, key, value, PutOptions { ttl, ..PutOptions::default() })
                .await
                .unwrap();
        }
    }
    drop(store);
    let (before, mut bytes) = (items(&folder).await, std::fs::read(folder.db()).unwrap());
    let before: BTreeMap<_, _> = before.into_iter().collect();
    for bit in bits(bytes.len()) {
        let flipped = Folder::new();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(flipped.db(), &bytes).unwrap();
        bytes[bit / 8] ^= 1 << (bit % 8);
        for (what, after) in items(&flipped).await {
            assert!(after.is_none() || before.get(&what) == Some(&after), "bit {bit}: {what}: {after:?}");
        }
    }
}
