//! Threads of one line, for the tests of checkpointers.

use std::sync::Arc;

use superstep_graph::{
    CheckpointId, Checkpointer, ThreadId,
    checkpoint::{AppliedTask, Commit, Loaded, Source},
    topology::Control,
};

/// Creates a superstep with one task without a record.
pub fn superstep(parent: Option<CheckpointId>, update: &str) -> Commit {
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
pub async fn line(store: &dyn Checkpointer, thread: &ThreadId, commits: u64) {
    let mut head = None;
    for update in 1..=commits {
        let id = store.commit(thread, head, superstep(head, &update.to_string())).await;
        head = Some(id.expect("a commit behind the head succeeds"));
    }
}

/// Loads the newest checkpoint.
pub async fn load(store: &dyn Checkpointer, thread: &ThreadId) -> Loaded {
    store.load(thread, None).await.expect("the thread can be loaded").expect("the thread exists")
}

/// Returns the updates of a loaded checkpoint, as text.
pub fn updates(loaded: &Loaded) -> Vec<String> {
    loaded.commits.concat().into_iter().map(|update| update.to_string()).collect()
}
