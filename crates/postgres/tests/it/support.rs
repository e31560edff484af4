//! Commits to store.

use std::sync::Arc;

use superstep_graph::{
    CheckpointId, Checkpointer, ThreadId,
    checkpoint::{AppliedTask, Commit, Loaded, Source},
    topology::Control,
};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions};

use crate::server::Server;

/// Returns the options for a fresh schema.
pub(crate) fn fresh(server: &Server) -> PostgresOptions {
    PostgresOptions { schema: server.schema(), connections: 4, ..PostgresOptions::new(server.url()) }
}

pub(crate) fn open(options: &PostgresOptions) -> PostgresCheckpointer {
    PostgresCheckpointer::open(options.clone()).expect("the database opens")
}

/// Creates a superstep with one task without a record.
pub(crate) fn superstep(parent: Option<CheckpointId>, update: &str) -> Commit {
    let step = parent.map_or(-1, |id| i64::try_from(id.0).expect("a small id") - 1);
    Commit {
        parent,
        source: if parent.is_none() { Source::Input } else { Source::Loop },
        control: Control::new(step, vec!["b".into()]),
        created_ms: 1_700_000_000_000 + step,
        metadata: Arc::default(),
        applied: vec![AppliedTask { slot: 0, recorded: false, node: "a".into(), update: update.into() }],
        snapshot: None,
        fingerprints: None,
        records: Vec::new(),
    }
}

/// Commits supersteps to a fresh thread, with the updates 1, 2, 3...
pub(crate) async fn line(store: &dyn Checkpointer, thread: &ThreadId, commits: u64) {
    let mut head = None;
    for update in 1..=commits {
        let id = store.commit(thread, head, superstep(head, &update.to_string())).await;
        head = Some(id.expect("a commit behind the head succeeds"));
    }
}

pub(crate) async fn load(store: &dyn Checkpointer, thread: &ThreadId) -> Loaded {
    store.load(thread, None).await.expect("the thread can be loaded").expect("the thread exists")
}

/// Returns the updates of a loaded checkpoint, as text.
pub(crate) fn updates(loaded: &Loaded) -> Vec<String> {
    loaded.commits.concat().into_iter().map(|update| update.to_string()).collect()
}
