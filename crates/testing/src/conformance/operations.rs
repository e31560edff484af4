//! Random operations in random order, compared with a simple model.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
};

use proptest::{
    collection::vec,
    prelude::{Just, Strategy, any, prop_oneof},
    sample::Index,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use superstep_graph::{
    CheckpointId, Checkpointer, ThreadId,
    checkpoint::{CheckpointError, CheckpointMeta, Commit, Loaded, Prune, Source, TaskRecord},
    node::NodeName,
    state::{Snapshot, StoredUpdate},
};

use super::fixture::{
    Store, applied, assert_conflict, cancelled, channel, failed, finished, history, imported, json, load,
    once, plain, recorded, snapshotted, started, task,
};

/// Executes random sequences of operations of users, other programs and crashes, and compares the store with
/// a model after each step. At the end all threads are moved to a fresh store as text, and compared again.
///
/// `make` returns a fresh store and a value that must live as long, such as its folder. `restart` returns the
/// store as another process would find it; for a store in memory, it returns the same store.
///
/// Runs 256 sequences, or the number in `PROPTEST_CASES`; always the same ones. Creates its own runtime.
///
/// # Panics
/// If the store differs from the model; shows the shortest such sequence.
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use superstep_graph::MemoryCheckpointer;
///
/// superstep_testing::conformance::check_operations(
///     async || (Arc::new(MemoryCheckpointer::new()) as _, ()),
///     async |store, ()| store,
/// );
/// ```
pub fn check_operations<P>(
    make: impl AsyncFn() -> (Arc<dyn Checkpointer>, P),
    restart: impl AsyncFn(Arc<dyn Checkpointer>, &P) -> Arc<dyn Checkpointer>,
) {
    check_some_operations(Config::default().cases, make, restart);
}

/// Executes this number of sequences like [`check_operations`], for a store whose answers take long.
///
/// # Panics
/// See [`check_operations`].
pub fn check_some_operations<P>(
    sequences: u32,
    make: impl AsyncFn() -> (Arc<dyn Checkpointer>, P),
    restart: impl AsyncFn(Arc<dyn Checkpointer>, &P) -> Arc<dyn Checkpointer>,
) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers starts");
    let config = Config { failure_persistence: None, cases: sequences, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let result = runner.run(&vec(operation(), 1..40), |operations| {
        runtime.block_on(async {
            let (mut store, place) = make().await;
            let mut model = Model::default();
            for operation in operations {
                match operation {
                    Operation::Restart => store = restart(store, &place).await,
                    other => model.apply(&store, other).await,
                }
                model.compare_heads(&store).await;
            }
            model.compare_all(&store).await;
            let (imported, _place) = make().await;
            moved(&store, &imported).await;
            model.compare_all(&imported).await;
        });
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// Moves all threads to another store as text, and compares their texts.
async fn moved(from: &Store, to: &Store) {
    for thread in from.names().await.expect("threads can be listed") {
        let text = snapshotted(from, &thread).await;
        imported(to, &text).await;
        same(&snapshotted(to, &thread).await, &text);
    }
}

/// The names of the threads.
const THREADS: [&str; 3] = ["one", "../two", "drei ü"];

/// An operation on a store. Numbers select among existing items.
#[derive(Clone, Debug)]
enum Operation {
    /// A task of the head ends.
    Record {
        thread: usize,
        slot: u32,
        end: TaskRecord,
    },
    /// A task of the head stores further results of its effects.
    AddEffects {
        thread: usize,
        slot: u32,
        results: u32,
    },
    /// A task of a checkpoint other than the head ends too late.
    StaleRecord {
        thread: usize,
        back: u64,
    },
    /// A checkpoint follows the head. It applies all finished tasks, and one without a record.
    Commit {
        thread: usize,
        source: Source,
        update: u64,
        snapshot: bool,
        records: Vec<u32>,
    },
    /// A commit with an outdated head.
    StaleCommit {
        thread: usize,
        seen: Option<u64>,
    },
    /// A checkpoint follows an older one.
    Fork {
        thread: usize,
        at: Index,
        update: u64,
    },
    /// Most checkpoints are deleted; the others get a snapshot if they need one.
    Prune {
        thread: usize,
        keep: Vec<Index>,
    },
    /// A prune with an outdated head, or of a checkpoint that does not exist.
    BadPrune {
        thread: usize,
        seen: u64,
    },
    /// A thread is copied.
    Copy {
        from: usize,
        to: usize,
    },
    Delete {
        thread: usize,
    },
    /// The process ends and another one starts.
    Restart,
}

fn operation() -> impl Strategy<Value = Operation> {
    let thread = || 0..THREADS.len();
    let end = prop_oneof![
        3 => (0..100u64).prop_map(|n| finished(&n.to_string(), &["next"])),
        1 => (0..5u32).prop_map(failed),
        1 => Just(cancelled()),
        1 => (0..3u32, 1..3u32).prop_map(|(attempts, results)| started(attempts, results)),
    ];
    let source = prop_oneof![4 => Just(Source::Loop), 1 => Just(Source::Update), 1 => Just(Source::Input)];
    prop_oneof![
        6 => (thread(), 0..4u32, end).prop_map(|(thread, slot, end)| Operation::Record { thread, slot, end }),
        3 => (thread(), 0..4u32, 1..4u32)
            .prop_map(|(thread, slot, results)| Operation::AddEffects { thread, slot, results }),
        1 => (thread(), 0..5u64).prop_map(|(thread, back)| Operation::StaleRecord { thread, back }),
        8 => (thread(), source, any::<u64>(), proptest::bool::weighted(0.2), vec(0..4u32, 0..3)).prop_map(
            |(thread, source, update, snapshot, records)| {
                Operation::Commit { thread, source, update, snapshot, records }
            }
        ),
        2 => (thread(), proptest::option::of(0..9u64))
            .prop_map(|(thread, seen)| Operation::StaleCommit { thread, seen }),
        3 => (thread(), any::<Index>(), any::<u64>())
            .prop_map(|(thread, at, update)| Operation::Fork { thread, at, update }),
        2 => (thread(), vec(any::<Index>(), 0..5)).prop_map(|(thread, keep)| Operation::Prune { thread, keep }),
        1 => (thread(), 0..9u64).prop_map(|(thread, seen)| Operation::BadPrune { thread, seen }),
        2 => (thread(), thread()).prop_map(|(from, to)| Operation::Copy { from, to }),
        1 => thread().prop_map(|thread| Operation::Delete { thread }),
        2 => Just(Operation::Restart),
    ]
}

/// The expected contents of a store.
#[derive(Default)]
struct Model {
    threads: BTreeMap<ThreadId, Vec<Checkpoint>>,
}

#[derive(Clone)]
struct Checkpoint {
    meta: CheckpointMeta,
    applied: Vec<(u32, NodeName, StoredUpdate)>,
    snapshot: Option<Snapshot>,
    records: BTreeMap<u32, TaskRecord>,
}

impl Model {
    async fn apply(&mut self, store: &Store, operation: Operation) {
        match operation {
            Operation::Record { thread, slot, end } => self.record(store, thread, slot, end).await,
            Operation::AddEffects { thread, slot, results } => {
                self.add_effects(store, thread, slot, results).await
            }
            Operation::StaleRecord { thread, back } => {
                let thread = ThreadId::from(THREADS[thread]);
                let id = CheckpointId(back);
                if self.head(&thread) != Some(id) {
                    let added = store.add_effects(&task(&thread, id, 0), once(1)).await;
                    assert!(!added.is_ok_and(|added| added), "it is not the head");
                    assert_conflict(store.record(&task(&thread, id, 0), failed(9)).await, &thread, Some(id));
                }
            }
            Operation::Commit { thread, source, update, snapshot, records } => {
                let thread = ThreadId::from(THREADS[thread]);
                let head = self.head(&thread);
                let mut next = self.next(&thread, head, update);
                next.source = source;
                next.snapshot = snapshot.then(|| vec![channel("n", &update.to_string())].into());
                next.records =
                    (0..).zip(records).map(|(n, slot)| (slot, finished(&format!("[{n}]"), &[]))).collect();
                self.commit(store, &thread, next).await;
            }
            Operation::StaleCommit { thread, seen } => {
                let thread = ThreadId::from(THREADS[thread]);
                let seen = seen.map(CheckpointId);
                if self.head(&thread) != seen {
                    assert_conflict(store.commit(&thread, seen, plain(seen)).await, &thread, seen);
                }
            }
            Operation::Fork { thread, at, update } => {
                let thread = ThreadId::from(THREADS[thread]);
                if let Some(checkpoints) = self.threads.get(&thread) {
                    let parent = at.get(checkpoints).meta.id;
                    let next = Commit { source: Source::Fork, ..self.next(&thread, Some(parent), update) };
                    self.commit(store, &thread, next).await;
                }
            }
            Operation::Prune { thread, keep } => self.prune(store, &THREADS[thread].into(), &keep).await,
            Operation::BadPrune { thread, seen } => self.bad_prune(store, thread, seen).await,
            Operation::Copy { from, to } => self.copy(store, from, to).await,
            Operation::Delete { thread } => {
                let thread = ThreadId::from(THREADS[thread]);
                store.delete(&thread).await.expect("a thread can be deleted");
                self.threads.remove(&thread);
            }
            Operation::Restart => unreachable!("it is not up to the model"),
        }
    }

    /// Stores a record of the head.
    async fn record(&mut self, store: &Store, thread: usize, slot: u32, end: TaskRecord) {
        let thread = ThreadId::from(THREADS[thread]);
        let key = |id| task(&thread, id, slot);
        match self.threads.get_mut(&thread).and_then(|checkpoints| checkpoints.last_mut()) {
            Some(head) => {
                store.record(&key(head.meta.id), end.clone()).await.expect("the head takes records");
                head.records.insert(slot, end);
            }
            None => {
                let id = CheckpointId(1);
                assert_conflict(store.record(&key(id), end).await, &thread, Some(id));
            }
        }
    }

    /// Adds results of effects to a record of the head.
    async fn add_effects(&mut self, store: &Store, thread: usize, slot: u32, results: u32) {
        let thread = ThreadId::from(THREADS[thread]);
        if let Some(head) = self.threads.get_mut(&thread).and_then(|checkpoints| checkpoints.last_mut()) {
            let key = task(&thread, head.meta.id, slot);
            let added = store.add_effects(&key, once(results)).await.expect("the head takes effects");
            let known = head.records.get_mut(&slot).and_then(TaskRecord::once_mut);
            match known {
                Some(known) if added => known.extend(once(results)),
                Some(_) => {}
                None => assert!(!added, "there is no record to add to"),
            }
        }
    }

    /// Prunes with another head, or below a checkpoint without a snapshot: both are refused.
    async fn bad_prune(&self, store: &Store, thread: usize, seen: u64) {
        let (thread, seen) = (ThreadId::from(THREADS[thread]), CheckpointId(seen));
        if self.head(&thread) != Some(seen) {
            assert_conflict(store.prune(&thread, seen, Prune::default()).await, &thread, Some(seen));
        } else if self
            .get(&thread, seen)
            .is_some_and(|head| head.snapshot.is_none() && head.meta.parent.is_some())
        {
            let refused = store.prune(&thread, seen, Prune::default()).await;
            assert!(matches!(refused, Err(CheckpointError::Storage { .. })), "{refused:?}");
        }
    }

    /// Copies a thread to a free name.
    async fn copy(&mut self, store: &Store, from: usize, to: usize) {
        let [from, to] = [from, to].map(|thread| ThreadId::from(THREADS[thread]));
        let copied = store.copy(&from, &to).await;
        match (self.threads.get(&from), self.threads.contains_key(&to)) {
            (None, _) => {
                assert!(matches!(copied, Err(CheckpointError::NoThread { .. })), "{copied:?}")
            }
            (_, true) => {
                assert!(matches!(copied, Err(CheckpointError::ThreadExists { .. })), "{copied:?}")
            }
            (Some(checkpoints), false) => {
                copied.expect("the name is free");
                let checkpoints = checkpoints.clone();
                self.threads.insert(to, checkpoints);
            }
        }
    }

    /// Creates a commit that applies the finished tasks, and a task without a record.
    fn next(&self, thread: &ThreadId, parent: Option<CheckpointId>, update: u64) -> Commit {
        let records = parent.and_then(|id| self.get(thread, id)).map(|parent| &parent.records);
        let mut tasks = Vec::new();
        for (slot, end) in records.into_iter().flatten().rev() {
            match end {
                TaskRecord::Finished { update, .. } => tasks.push(recorded(*slot, json(update))),
                _ => tasks.push(applied(*slot, &update.to_string())),
            }
        }
        tasks.push(applied(9, &format!("{{\"x\":{update}}}")));
        Commit { applied: tasks, created_ms: i64::from(update as u16), ..plain(parent) }
    }

    async fn commit(&mut self, store: &Store, thread: &ThreadId, next: Commit) {
        let head = self.head(thread);
        let id = store.commit(thread, head, next.clone()).await.expect("a commit behind the head succeeds");
        assert_eq!(id.0, head.map_or(1, |head| head.0 + 1), "the id of a new checkpoint");
        self.threads.entry(thread.clone()).or_default().push(Checkpoint {
            meta: CheckpointMeta {
                id,
                parent: next.parent,
                parent_pruned: false,
                source: next.source,
                control: next.control,
                created_ms: next.created_ms,
                metadata: (*next.metadata).clone(),
            },
            applied: next.applied.into_iter().map(|task| (task.slot, task.node, task.update)).collect(),
            snapshot: next.snapshot,
            records: next.records.into_iter().collect(),
        });
    }

    async fn prune(&mut self, store: &Store, thread: &ThreadId, keep: &[Index]) {
        let Some(checkpoints) = self.threads.get(thread) else { return };
        let head = checkpoints.last().expect("a thread has a checkpoint").meta.id;
        let mut kept: BTreeSet<_> = keep.iter().map(|at| at.get(checkpoints).meta.id).collect();
        let named = kept.clone();
        kept.insert(head);
        let mut left = Vec::new();
        let mut snapshots = BTreeMap::new();
        for checkpoint in checkpoints.iter().filter(|checkpoint| kept.contains(&checkpoint.meta.id)) {
            let id = checkpoint.meta.id;
            let tasks = self.loaded(thread, id).expect("it is there").tasks;
            let mut checkpoint = checkpoint.clone();
            if checkpoint.snapshot.is_none()
                && checkpoint.meta.parent.is_some_and(|parent| !kept.contains(&parent))
            {
                snapshots.insert(id, vec![channel("pruned", &id.to_string())]);
                checkpoint.snapshot = snapshots.get(&id).cloned().map(Snapshot::from);
            }
            // The results of its tasks remain readable although the superstep that folded them is deleted.
            let newest =
                checkpoints.iter().rfind(|c| c.meta.parent == Some(id) && c.meta.source == Source::Loop);
            if newest.is_some_and(|newest| !kept.contains(&newest.meta.id)) {
                checkpoint.records = tasks.into_iter().collect();
            }
            left.push(checkpoint);
        }
        let pruned = store.prune(thread, head, Prune { keep: named, snapshots, ..Prune::default() }).await;
        assert_eq!(pruned.expect("all have a way to their state"), checkpoints.len() - left.len());
        self.threads.insert(thread.clone(), left);
    }

    fn head(&self, thread: &ThreadId) -> Option<CheckpointId> {
        Some(self.threads.get(thread)?.last()?.meta.id)
    }

    fn get(&self, thread: &ThreadId, id: CheckpointId) -> Option<&Checkpoint> {
        self.threads.get(thread)?.iter().find(|checkpoint| checkpoint.meta.id == id)
    }

    fn loaded(&self, thread: &ThreadId, id: CheckpointId) -> Option<Loaded> {
        let wanted = self.get(thread, id)?;
        let mut snapshot = None;
        let mut commits = Vec::new();
        let mut next = Some(wanted);
        while let Some(checkpoint) = next {
            snapshot = checkpoint.snapshot.clone();
            if snapshot.is_some() {
                break;
            }
            commits.insert(0, checkpoint.applied.iter().map(|(_, _, update)| update.clone()).collect());
            next = checkpoint.meta.parent.and_then(|parent| self.get(thread, parent));
        }
        let mut tasks = wanted.records.clone();
        let mut supersteps = self.threads[thread]
            .iter()
            .filter(|c| c.meta.parent == Some(id) && c.meta.source == Source::Loop);
        for (slot, _, update) in supersteps.next_back().into_iter().flat_map(|child| &child.applied) {
            if !matches!(tasks.get(slot), Some(TaskRecord::Finished { .. })) {
                tasks.insert(*slot, finished(json(update), &[]));
            }
        }
        Some(Loaded {
            meta: self.meta(thread, wanted),
            head: self.head(thread)?,
            applied: wanted.applied.iter().map(|(slot, node, _)| (*slot, node.clone())).collect(),
            snapshot,
            commits,
            tasks: tasks.into_iter().collect(),
            fingerprints: None,
        })
    }

    /// Returns the metadata, with the mark of a deleted parent.
    fn meta(&self, thread: &ThreadId, checkpoint: &Checkpoint) -> CheckpointMeta {
        let gone = checkpoint.meta.parent.is_some_and(|parent| self.get(thread, parent).is_none());
        CheckpointMeta { parent_pruned: gone, ..checkpoint.meta.clone() }
    }

    async fn compare_heads(&self, store: &Store) {
        for thread in THREADS.map(ThreadId::from) {
            let expected = self.head(&thread).and_then(|head| self.loaded(&thread, head));
            same(&store.load(&thread, None).await.expect("a thread can be loaded"), &expected);
        }
    }

    async fn compare_all(&self, store: &Store) {
        for thread in THREADS.map(ThreadId::from) {
            let checkpoints = self.threads.get(&thread).into_iter().flatten();
            let mut metas: Vec<_> = checkpoints.map(|checkpoint| self.meta(&thread, checkpoint)).collect();
            for meta in &metas {
                let loaded = load(store, &thread, meta.id).await;
                same(&Some(loaded), &self.loaded(&thread, meta.id));
            }
            metas.reverse();
            same(&history(store, &thread).await, &metas);
        }
        let mut heads: Vec<_> = self
            .threads
            .iter()
            .filter_map(|(thread, checkpoints)| {
                Some((thread.clone(), self.meta(thread, checkpoints.last()?)))
            })
            .collect();
        heads.sort_by_key(|(_, head)| std::cmp::Reverse(head.created_ms));
        same(&store.threads().await.expect("threads can be listed"), &heads);
    }
}

#[track_caller]
fn same<T: PartialEq + Debug>(found: &T, expected: &T) {
    assert_eq!(found, expected, "the store knows one thing, the model another");
}
