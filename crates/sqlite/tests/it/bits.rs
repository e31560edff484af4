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
/// search for rows. `just bits` tries all of them, or each nth.
fn bits(bytes: usize) -> impl Iterator<Item = usize> {
    const PAGE: usize = 4_096 * 8;
    const FIRST: usize = 24 * 8;
    const LAST: usize = PAGE - 9 * 8;
    let every = std::env::var("SUPERSTEP_EVERY_BIT").map_or(887, |nth| nth.parse().unwrap());
    (0..bytes * 8).filter(move |bit| {
        let place = bit % PAGE;
        bit.is_multiple_of(every)
            || (place < FIRST && place.is_multiple_of(5))
            || (place >= LAST && place.is_multiple_of(8))
    })
}

/// Creates threads with a branch, a snapshot, a question, a subgraph; and a partly pruned one with gaps and a later branch.
async fn threads(folder: &Folder) {
    let store = folder.open();
    let id = |number| Some(CheckpointId(number));
    for name in ["chat", "other", "chat\u{1f}sub"] {
        let thread = ThreadId::from(name);
        store.commit(&thread, None, superstep(None, r#"{"log":["in"]}"#)).await.unwrap();
        store.commit(&thread, id(1), superstep(id(1), r#"{"log":["one"]}"#)).await.unwrap();
        let long = format!(r#"{{"log":["{}"]}}"#, "long ".repeat(if name == "chat" { 1_000 } else { 1 }));
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
    let other = ThreadId::from("other");
    for (head, parent) in [(4, 4), (5, 5), (6, 6), (7, 5), (8, 8)] {
        let update = format!(r#"{{"log":["{head}"]}}"#);
        store.commit(&other, id(head), superstep(id(parent), &update)).await.unwrap();
    }
    let full = vec![ChannelValue { channel: "log".into(), json: r#"["all"]"#.into() }];
    let prune = superstep_graph::checkpoint::Prune {
        keep: [3, 5, 6, 8, 9].map(CheckpointId).into(),
        snapshots: [(CheckpointId(5), full)].into(),
        ..Default::default()
    };
    assert_eq!(store.prune(&other, CheckpointId(9), prune).await.unwrap(), 4);
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
        for id in 1..=10 {
            ask!(format!("{name} {id}"), load(&thread, Some(CheckpointId(id))));
        }
        ask!(name, history(&thread, History::default()));
        ask!(name, history(&thread, History { source: Some(Source::Fork), ..History::default() }));
        ask!(name, history(&thread, History { limit: Some(2), ..History::default() }));
        for before in [CheckpointId(4), CheckpointId(7)].map(Some) {
            ask!(name, history(&thread, History { before, ..History::default() }));
        }
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

/// Returns the bits of every key of the second thread's checkpoints, in tables, inner pages and indexes.
fn bits_of_keys(bytes: &[u8]) -> Vec<usize> {
    let mut bits = Vec::new();
    for id in 1..=9_u64 {
        let key = 2_u64 << 32 | id;
        // As the key of a row, and as a column of an index or its last, where SQLite stores 6 bytes.
        let row: Vec<u8> = (0..5)
            .rev()
            .map(|nth| (key >> (7 * nth)) as u8 & 0x7f | if nth > 0 { 0x80 } else { 0 })
            .collect();
        for form in [row, key.to_be_bytes()[2..].to_vec()] {
            let places = bytes.windows(form.len()).enumerate().filter(|(_, window)| *window == form);
            bits.extend(places.flat_map(|(at, _)| at * 8..(at + form.len()) * 8));
        }
    }
    bits
}

#[tokio::test]
async fn a_damaged_key_of_a_pruned_thread_never_makes_a_checkpoint_seem_pruned() {
    let folder = Folder::new();
    threads(&folder).await;
    let (before, mut bytes) = (answers(&folder).await, std::fs::read(folder.db()).unwrap());
    let pruned = before.iter().filter(|(what, answer)| {
        what.starts_with("load other") && answer.as_ref().is_some_and(|answer| answer == "None")
    });
    // 1, 2, 4, 7, and 10, which was never there.
    assert_eq!(pruned.count(), 5);
    let (mut noticed, bits) = (0, bits_of_keys(&bytes));
    for bit in &bits {
        let flipped = Folder::new();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(flipped.db(), &bytes).unwrap();
        bytes[bit / 8] ^= 1 << (bit % 8);
        noticed += usize::from(compare(*bit, &before, answers(&flipped).await));
    }
    assert!(noticed > bits.len() / 2, "{noticed} of {}", bits.len());
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
            store.put_with(&namespace, key, value, PutOptions::new().ttl(ttl)).await.unwrap();
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
