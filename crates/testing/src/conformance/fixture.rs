//! Commits to store, and a store's expected data.

use std::{borrow::Cow, collections::BTreeMap, io::Cursor, sync::Arc};

use superstep_graph::{
    CheckpointId, Checkpointer, History, NodeFailure, ThreadId,
    checkpoint::{
        AppliedTask, CheckpointError, CheckpointMeta, Commit, Loaded, Source, TaskKey, TaskRecord,
        text::{self, ExportOptions},
    },
    state::{ChannelValue, RawJson, StoredUpdate},
    topology::Control,
};

pub(super) type Store = Arc<dyn Checkpointer>;

pub(super) const ONE: CheckpointId = CheckpointId(1);
pub(super) const TWO: CheckpointId = CheckpointId(2);
pub(super) const THREE: CheckpointId = CheckpointId(3);

/// Creates a commit of a superstep without tasks.
pub(super) fn plain(parent: Option<CheckpointId>) -> Commit {
    let before = parent.map_or(0, |id| i64::try_from(id.0).expect("a small id"));
    // Several supersteps in one, which may apply the updates of any tasks.
    let step = 2 * before - 1;
    Commit {
        parent,
        source: Source::Loop,
        control: Control::new(step, vec!["a".into()]),
        created_ms: 999 + before,
        metadata: Arc::default(),
        applied: Vec::new(),
        snapshot: None,
        records: Vec::new(),
        fingerprints: None,
    }
}

/// Creates a commit of a superstep that applied these updates, one task each.
pub(super) fn superstep(parent: Option<CheckpointId>, updates: &[&str]) -> Commit {
    let applied = (0..).zip(updates).map(|(slot, update)| applied(slot, update)).collect();
    Commit { applied, ..plain(parent) }
}

pub(super) fn applied(slot: u32, update: &str) -> AppliedTask {
    AppliedTask { slot, recorded: false, node: format!("node-{slot}").into(), update: update.into() }
}

pub(super) fn recorded(slot: u32, update: &str) -> AppliedTask {
    AppliedTask { recorded: true, ..applied(slot, update) }
}

pub(super) fn finished(update: &str, targets: &[&str]) -> TaskRecord {
    TaskRecord::Finished {
        update: update.into(),
        targets: targets.iter().map(|target| (*target).into()).collect(),
        failure: None,
    }
}

/// Creates the failure that an error handler receives.
pub(super) fn failure() -> Box<NodeFailure> {
    let failure = serde_json::json!({
        "node": "agent", "attempts": 3, "kind": "timeout", "message": "no \"answer\"", "causes": ["why"],
        "data": {"status": [503, null]},
    });
    Box::new(serde_json::from_value(failure).expect("it is the JSON form of a failure"))
}

pub(super) fn failed(attempts: u32) -> TaskRecord {
    TaskRecord::Failed {
        attempts,
        error: format!("no answer: {attempts}, \"later\"\n"),
        once: Default::default(),
    }
}

pub(super) fn cancelled() -> TaskRecord {
    TaskRecord::Cancelled { once: BTreeMap::new() }
}

/// Creates an unfinished task with this number of effects.
pub(super) fn started(attempts: u32, results: u32) -> TaskRecord {
    TaskRecord::Started { attempts, once: once(results) }
}

/// Creates this number of effect results.
pub(super) fn once(results: u32) -> BTreeMap<String, RawJson> {
    (0..results).map(|n| (format!("the \"{n}\"\n"), format!("{{\"n\": {n}}}").into())).collect()
}

pub(super) fn channel(name: &str, json: &str) -> ChannelValue {
    ChannelValue { channel: name.into(), json: json.into() }
}

pub(super) fn task(thread: &ThreadId, checkpoint: CheckpointId, slot: u32) -> TaskKey {
    TaskKey { thread: thread.clone(), checkpoint, slot }
}

/// Commits one after the other to a fresh thread, each with the previous one as its parent.
pub(super) async fn line(store: &Store, thread: &ThreadId, updates: &[&str]) -> Option<CheckpointId> {
    let mut head = None;
    for update in updates {
        head = Some(commit(store, thread, head, superstep(head, &[update])).await);
    }
    head
}

pub(super) async fn commit(
    store: &Store,
    thread: &ThreadId,
    expected: Option<CheckpointId>,
    next: Commit,
) -> CheckpointId {
    store.commit(thread, expected, next).await.expect("a commit behind the head succeeds")
}

pub(super) async fn record(store: &Store, task: &TaskKey, record: TaskRecord) {
    store.record(task, record).await.expect("a task of the head can be recorded");
}

pub(super) async fn load(store: &Store, thread: &ThreadId, at: impl Into<Option<CheckpointId>>) -> Loaded {
    let loaded = store.load(thread, at.into()).await.expect("a checkpoint can be loaded");
    loaded.expect("the checkpoint exists")
}

pub(super) async fn history(store: &Store, thread: &ThreadId) -> Vec<CheckpointMeta> {
    store.history(thread, History::default()).await.expect("a history can be read")
}

/// Returns a thread as text.
pub(super) async fn exported(store: &Store, thread: &ThreadId) -> String {
    let text = text::export(&**store, thread, &ExportOptions::default()).await;
    text.expect("a thread can be exported")
}

/// Returns a thread as text with all snapshots.
pub(super) async fn snapshotted(store: &Store, thread: &ThreadId) -> String {
    let all = ExportOptions::new().snapshots();
    text::export(&**store, thread, &all).await.expect("a thread can be exported")
}

/// Stores the thread in a text.
pub(super) async fn imported(store: &Store, text: &str) {
    text::import(&**store, &mut Cursor::new(text)).await.expect("the text of a thread can be imported");
}

/// Returns the updates of a loaded checkpoint as text.
pub(super) fn updates(loaded: &Loaded) -> Vec<Vec<&str>> {
    loaded.commits.iter().map(|commit| commit.iter().map(json).collect()).collect()
}

/// Returns the text of an update that was committed as one.
pub(super) fn json(update: &StoredUpdate) -> &str {
    match update.json() {
        Ok(Cow::Borrowed(json)) => json,
        other => panic!("not the JSON that was stored: {other:?}"),
    }
}

/// The complete data of a store about these threads.
#[derive(Debug, PartialEq)]
pub(super) struct Known {
    threads: Vec<(ThreadId, CheckpointMeta)>,
    histories: Vec<Vec<CheckpointMeta>>,
    checkpoints: Vec<Option<Loaded>>,
}

pub(super) async fn known(store: &Store, threads: &[&ThreadId]) -> Known {
    let mut known = Known {
        threads: store.threads().await.expect("threads can be listed"),
        histories: Vec::new(),
        checkpoints: Vec::new(),
    };
    for thread in threads {
        let checkpoints = history(store, thread).await;
        for checkpoint in &checkpoints {
            known.checkpoints.push(Some(load(store, thread, checkpoint.id).await));
        }
        known.histories.push(checkpoints);
        known.checkpoints.push(store.load(thread, None).await.expect("a thread can be loaded"));
    }
    known
}

/// Asserts that the request was rejected because the thread has another head.
#[track_caller]
pub(super) fn assert_conflict<T: std::fmt::Debug>(
    result: Result<T, CheckpointError>,
    on: &ThreadId,
    seen: Option<CheckpointId>,
) {
    match result {
        Err(CheckpointError::Conflict { thread, expected }) => assert_eq!((&thread, expected), (on, seen)),
        other => panic!("expected a conflict on thread `{on}`, got {other:?}"),
    }
}
