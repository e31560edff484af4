//! The duration of a search among 100,000 entries of a memory in SQLite:
//! `cargo bench -p superstep --bench memory`.
//!
//! The target is 10 ms, also for words that most entries have.

#![allow(missing_docs, reason = "criterion makes functions")]

use std::{hint::black_box, sync::Arc};

use criterion::{Criterion, criterion_group, criterion_main};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::json;
use superstep::{
    Store,
    agent::deps::LongTermMemory,
    memory::StoreMemory,
    sqlite::SqliteStore,
    store::{Index, Namespace, Operation, PutOptions},
};
use tokio::runtime::Runtime;

const ENTRIES: usize = 100_000;

/// The number of different words; the nth of them occurs with a probability of 1 / n.
const VOCABULARY: usize = 20_000;

/// Generates twelve words.
fn text(chance: &mut StdRng, sums: &[f64]) -> String {
    let word = |_| {
        let at = chance.random::<f64>() * sums[VOCABULARY - 1];
        format!("w{}", sums.partition_point(|sum| *sum < at))
    };
    (0..12).map(word).collect::<Vec<_>>().join(" ")
}

/// Fills a memory with the entries of `users` users.
async fn filled(store: SqliteStore, users: usize) -> StoreMemory {
    let mut chance = StdRng::seed_from_u64(7);
    let sums = (1..=VOCABULARY).scan(0.0, |sum, nth| {
        *sum += 1.0 / nth as f64;
        Some(*sum)
    });
    let sums: Vec<f64> = sums.collect();
    let entries: Vec<_> = (0..ENTRIES)
        .map(|nth| Operation::Put {
            namespace: Namespace::new(["memory", &format!("u{}", nth % users)]).expect("it is plain"),
            key: nth.to_string(),
            value: json!({ "text": text(&mut chance, &sums) }),
            options: PutOptions::new().index(Index::Fields(vec!["text".into()])),
        })
        .collect();
    for some in entries.chunks(5_000) {
        store.batch(some.to_vec()).await.expect("they are put");
    }
    StoreMemory::new(Arc::new(store))
}

fn search(bench: &mut Criterion) {
    let runtime = Runtime::new().expect("there are threads");
    let folder = tempfile::tempdir().expect("there is room for files");
    for users in [1, 1_000] {
        let store = SqliteStore::open(folder.path().join(format!("{users}.db"))).expect("it is made");
        let memory = runtime.block_on(filled(store, users));
        let mut group = bench.benchmark_group(format!("search/{ENTRIES}/{users} users"));
        for (name, query) in [
            ("a rare word", "w5000"),
            ("a sentence", "w0 w1 w3 w9 w40 w200 w900 w4000"),
            ("common words", "w0 w1 w2 w5"),
            ("a word that most entries have", "w0"),
        ] {
            group.bench_function(name, |bench| {
                bench.iter(|| {
                    black_box(runtime.block_on(memory.search(query, "u0", 5)).expect("it is searched"))
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, search);
criterion_main!(benches);
