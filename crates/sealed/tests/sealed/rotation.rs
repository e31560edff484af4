//! Rotation of keys among all other operations, with kills in the middle: a readable store says the same.

use std::{
    io::Cursor,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::future::{BoxFuture, join_all};
use proptest::{
    collection::vec,
    option,
    prelude::{Strategy, any, prop_oneof},
    sample::Index,
    test_runner::{Config, TestRunner},
};
use superstep_graph::{
    CheckpointId, Checkpointer, History, MemoryCheckpointer, ThreadId,
    checkpoint::{
        CheckpointError, Commit, Prune, TaskKey, TaskRecord,
        text::{self, ExportOptions},
    },
    state::ChannelValue,
};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions};
use superstep_sealed::{Rekeyed, SealOptions, SealedCheckpointer};
use superstep_testing::{
    lines::{line, load, superstep},
    wrapped::{Wrapped, Wrapper},
};

use crate::{
    server::shared,
    support::{Folder, with_keys},
};

const THREADS: [&str; 4] = ["one", "two", "three", "four"];

/// A word of all values.
const SECRET: &str = "swordfish";

/// A database whose process ends after some writes.
struct Killed {
    inner: Arc<MemoryCheckpointer>,
    left: AtomicUsize,
}

impl Killed {
    /// Counts a write. Once it has failed, all later ones do.
    fn write(&self) -> Result<(), CheckpointError> {
        let counted =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        counted
            .map(|_| ())
            .map_err(|_| CheckpointError::Storage { what: "the process was killed".to_owned(), source: None })
    }
}

/// Implements methods that write.
macro_rules! writes {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        fn $name(&self, $($argument: $type),*) -> BoxFuture<'_, Result<$result, CheckpointError>> {
            match self.write() {
                Ok(()) => self.inner.$name($($argument),*),
                Err(error) => Box::pin(async { Err(error) }),
            }
        }
    )*};
}

impl Wrapper for Killed {
    fn store(&self) -> &dyn Checkpointer {
        &*self.inner
    }

    writes! {
        record(task: &TaskKey, record: TaskRecord) -> ();
        commit(thread: &ThreadId, expected: Option<CheckpointId>, next: Commit) -> CheckpointId;
        commit_all(thread: &ThreadId, expected: Option<CheckpointId>, next: Vec<Commit>) -> ();
        delete(thread: &ThreadId) -> ();
        copy(from: &ThreadId, to: &ThreadId) -> ();
        prune(thread: &ThreadId, head: CheckpointId, prune: Prune) -> usize;
    }
}

#[derive(Clone, Debug)]
enum Operation {
    /// A checkpoint behind the head.
    Write {
        thread: usize,
        update: u32,
    },
    /// A checkpoint behind an older one.
    Fork {
        thread: usize,
        at: Index,
        update: u32,
    },
    /// The record of a task of the head.
    Record {
        thread: usize,
        error: u32,
    },
    /// All checkpoints but the head are deleted.
    Prune {
        thread: usize,
    },
    Copy {
        from: usize,
        to: usize,
    },
    /// A thread goes to another name as text.
    Import {
        from: usize,
        to: usize,
    },
    Delete {
        thread: usize,
    },
    /// All threads get a new key.
    Rotate,
    Restart,
}

fn operation() -> impl Strategy<Value = Operation> {
    let thread = || 0..THREADS.len();
    prop_oneof![
        8 => (thread(), any::<u32>()).prop_map(|(thread, update)| Operation::Write { thread, update }),
        3 => (thread(), any::<Index>(), any::<u32>())
            .prop_map(|(thread, at, update)| Operation::Fork { thread, at, update }),
        2 => (thread(), any::<u32>()).prop_map(|(thread, error)| Operation::Record { thread, error }),
        2 => thread().prop_map(|thread| Operation::Prune { thread }),
        3 => (thread(), thread()).prop_map(|(from, to)| Operation::Copy { from, to }),
        2 => (thread(), thread()).prop_map(|(from, to)| Operation::Import { from, to }),
        1 => thread().prop_map(|thread| Operation::Delete { thread }),
        4 => any::<bool>().prop_map(|_| Operation::Rotate),
        1 => any::<bool>().prop_map(|_| Operation::Restart),
    ]
}

/// An encrypted database beside a readable one.
struct Both {
    inner: Arc<MemoryCheckpointer>,
    sealed: SealedCheckpointer,
    plain: MemoryCheckpointer,
    /// The keys of the program, the newest first. Older ones are removed once a rotation was complete.
    keys: Vec<u8>,
}

impl Both {
    fn new() -> Self {
        let (inner, keys) = (Arc::new(MemoryCheckpointer::new()), vec![1]);
        let sealed = open(&inner, &keys, None);
        Self { inner, sealed, plain: MemoryCheckpointer::new(), keys }
    }

    /// Applies an operation, whose process is killed after some writes, and another one starts.
    async fn apply(&mut self, operation: &Operation, kill: Option<usize>) {
        if kill.is_some() || matches!(operation, Operation::Restart) {
            self.sealed = open(&self.inner, &self.keys, kill);
        }
        if let Operation::Rotate = operation {
            self.rotate(kill).await;
        } else {
            let before = self.plain.names().await.unwrap();
            let done = apply(&self.sealed, operation).await;
            if kill.is_some() {
                self.sealed = open(&self.inner, &self.keys, None);
                self.delete_begun_imports().await;
            }
            // The one that was killed may have taken effect.
            match done {
                Ok(()) => apply(&self.plain, operation).await.unwrap(),
                Err(error) if kill.is_some() && is_killed(&error) => {
                    if self.has_taken_effect(operation, &before).await {
                        apply(&self.plain, operation).await.unwrap();
                    }
                }
                Err(error) => {
                    let plain = apply(&self.plain, operation).await.unwrap_err();
                    assert_eq!(kind(&error), kind(&plain), "{operation:?}: {error} {plain}");
                }
            }
        }
        self.compare().await;
    }

    /// Deletes what an import leaves that is killed: a thread of a name of its own.
    async fn delete_begun_imports(&self) {
        for thread in self.sealed.names().await.unwrap() {
            if thread.as_str().contains("(import ") {
                self.sealed.delete(&thread).await.unwrap();
            }
        }
    }

    /// Returns whether an operation that failed has changed the database.
    async fn has_taken_effect(&self, operation: &Operation, before: &[ThreadId]) -> bool {
        match operation {
            Operation::Copy { to, .. } | Operation::Import { to, .. } => {
                let to = name(*to);
                !before.contains(&to) && self.inner.names().await.unwrap().contains(&to)
            }
            // All others are one write, which fails before it begins.
            _ => false,
        }
    }

    async fn rotate(&mut self, kill: Option<usize>) {
        self.keys.insert(0, self.keys[0] + 1);
        let rotation = open(&self.inner, &self.keys, kill);
        let mut is_complete = true;
        for thread in rotation.names().await.unwrap() {
            match rotation.rekey(&thread).await {
                Ok(rekeyed) => assert_eq!(rekeyed, Rekeyed::Changed),
                Err(error) => {
                    assert!(is_killed(&error), "{error}");
                    is_complete = false;
                }
            }
        }
        if is_complete {
            self.keys.truncate(1);
        }
        self.sealed = open(&self.inner, &self.keys, None);
    }

    async fn compare(&self) {
        same(&self.sealed, &self.plain).await;
    }
}

fn open(inner: &Arc<MemoryCheckpointer>, keys: &[u8], kill: Option<usize>) -> SealedCheckpointer {
    let killed = Killed { inner: inner.clone(), left: AtomicUsize::new(kill.unwrap_or(usize::MAX)) };
    SealedCheckpointer::new(Wrapped(killed), SealOptions { required: true, ..with_keys(keys) })
}

fn is_killed(error: &CheckpointError) -> bool {
    error.to_string().contains("the process was killed")
}

/// Returns the kind of an error.
fn kind(error: &CheckpointError) -> String {
    format!("{error:?}").split(' ').next().unwrap_or_default().to_owned()
}

fn name(thread: usize) -> ThreadId {
    THREADS[thread].into()
}

fn update(number: u32) -> String {
    format!("\"{SECRET} {number}\"")
}

async fn head(store: &dyn Checkpointer, thread: &ThreadId) -> Option<CheckpointId> {
    let newest = store.history(thread, History { limit: Some(1), ..History::default() }).await.unwrap();
    newest.first().map(|meta| meta.id)
}

/// Applies an operation other than those of the keys.
async fn apply(store: &dyn Checkpointer, operation: &Operation) -> Result<(), CheckpointError> {
    match operation {
        Operation::Write { thread, update: number } => {
            let (thread, number) = (name(*thread), *number);
            let head = head(store, &thread).await;
            store.commit(&thread, head, superstep(head, &update(number))).await.map(drop)
        }
        Operation::Fork { thread, at, update: number } => {
            let thread = name(*thread);
            let history = store.history(&thread, History::default()).await?;
            let Some(head) = history.first().map(|meta| meta.id) else { return Ok(()) };
            let at = Some(at.get(&history).id);
            store.commit(&thread, Some(head), superstep(at, &update(*number))).await.map(drop)
        }
        Operation::Record { thread, error } => {
            let thread = name(*thread);
            let Some(checkpoint) = head(store, &thread).await else { return Ok(()) };
            let once = [("pay".to_owned(), update(*error).into())].into();
            let record = TaskRecord::Failed { attempts: 1, error: update(*error), once };
            store.record(&TaskKey { thread, checkpoint, slot: 0 }, record).await
        }
        Operation::Prune { thread } => {
            let thread = name(*thread);
            let Some(head) = head(store, &thread).await else { return Ok(()) };
            let loaded = load(store, &thread).await;
            if loaded.commits.len() <= 1 {
                return Ok(());
            }
            let snapshot = ChannelValue { channel: "c".to_owned(), json: update(7).into() };
            let (keep, snapshots) = ([head].into(), [(head, vec![snapshot])].into());
            store.prune(&thread, head, Prune { keep, snapshots, ..Prune::default() }).await.map(drop)
        }
        Operation::Copy { from, to } => store.copy(&name(*from), &name(*to)).await,
        Operation::Import { from, to } => {
            let (from, to) = (name(*from), name(*to));
            if head(store, &from).await.is_none() || head(store, &to).await.is_some() {
                return Ok(());
            }
            let text = text::export(store, &from, &ExportOptions::default()).await.unwrap();
            let mut text = Cursor::new(text);
            match text::check(&mut text).unwrap().store(store, &to).await {
                Err(text::TextError::Checkpoint(error)) => Err(error),
                stored => {
                    stored.unwrap();
                    Ok(())
                }
            }
        }
        Operation::Delete { thread } => store.delete(&name(*thread)).await,
        Operation::Rotate | Operation::Restart => Ok(()),
    }
}

/// Compares all threads of two databases: their lists, histories, checkpoints and texts.
async fn same(one: &dyn Checkpointer, other: &dyn Checkpointer) {
    let names = other.names().await.unwrap();
    assert_eq!(one.names().await.unwrap(), names);
    for thread in names {
        let history = other.history(&thread, History::default()).await.unwrap();
        assert_eq!(one.history(&thread, History::default()).await.unwrap(), history);
        for meta in &history {
            let loaded = one.load(&thread, Some(meta.id)).await.unwrap();
            assert_eq!(loaded, other.load(&thread, Some(meta.id)).await.unwrap(), "{thread}@{}", meta.id);
        }
        let options = ExportOptions::new().snapshots();
        let text = text::export(one, &thread, &options).await.unwrap();
        assert_eq!(text, text::export(other, &thread, &options).await.unwrap());
    }
}

#[test]
fn a_database_with_changing_keys_says_the_same_as_a_readable_one() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let config = Config { failure_persistence: None, cases: 96, ..Config::default() };
    let step = (operation(), option::weighted(0.3, 0..6_usize));
    let result = TestRunner::new(config).run(&vec(step, 1..30), |operations| {
        runtime.block_on(async {
            let mut both = Both::new();
            for (operation, kill) in &operations {
                both.apply(operation, *kill).await;
            }
            // The newest key alone opens all, after a rotation that is not killed.
            both.rotate(None).await;
            assert_eq!(both.keys.len(), 1);
            both.compare().await;
            for thread in both.inner.names().await.unwrap() {
                let stored = both.inner.load(&thread, None).await.unwrap();
                assert!(!format!("{stored:?}").contains(SECRET), "{stored:?}");
            }
        });
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// Rotations, copies and imports by processes of their own, at the same time.
async fn rotates_beside_copies_and_imports(open: impl Fn(&[u8]) -> SealedCheckpointer) {
    const ROTATIONS: u8 = 5;
    const COPIES: usize = 6;
    let from = ThreadId::from("from");
    let first = open(&[1]);
    line(&first, &from, 5).await;
    let text = text::export(&first, &from, &ExportOptions::default()).await.unwrap();
    let all: Vec<u8> = (1..=ROTATIONS).rev().collect();
    let rotation = async {
        for newest in 2..=ROTATIONS {
            let keys: Vec<u8> = (1..=newest).rev().collect();
            let store = open(&keys);
            for thread in store.names().await.unwrap() {
                while let Err(error) = store.rekey(&thread).await {
                    assert!(matches!(error, CheckpointError::Conflict { .. }), "{error}");
                }
            }
        }
    };
    // Processes with the first key as the current one.
    let late: Vec<u8> = (1..=ROTATIONS).collect();
    let copies = (0..COPIES).map(|nth| {
        let (store, from) = (open(&late), &from);
        async move {
            let to = ThreadId::from(format!("copy {nth}"));
            while let Err(error) = store.copy(from, &to).await {
                assert!(matches!(error, CheckpointError::Conflict { .. }), "{error}");
            }
        }
    });
    let imports = (0..COPIES).map(|nth| {
        let (store, text) = (open(&late), &text);
        async move {
            let to = ThreadId::from(format!("import {nth}"));
            let stored = text::check(&mut Cursor::new(text)).unwrap().store(&store, &to).await;
            stored.unwrap();
        }
    });
    futures::join!(rotation, join_all(copies), join_all(imports));

    let last = open(&all);
    for thread in last.names().await.unwrap() {
        last.rekey(&thread).await.unwrap();
    }
    let newest = open(&[ROTATIONS]);
    let expected = load(&newest, &from).await;
    let names = newest.names().await.unwrap();
    assert_eq!(names.len(), 1 + 2 * COPIES);
    for thread in names {
        assert_eq!(load(&newest, &thread).await, expected, "{thread}");
    }
}

#[tokio::test]
async fn a_rotation_beside_copies_and_imports_loses_no_key() {
    let folder = Folder::new();
    rotates_beside_copies_and_imports(|keys| SealedCheckpointer::new(folder.open(), with_keys(keys))).await;
}

#[tokio::test]
async fn a_rotation_beside_copies_and_imports_loses_no_key_on_a_server() {
    let Some(server) = shared() else { return };
    let options = PostgresOptions::new(server.url()).schema(server.schema()).connections(2);
    rotates_beside_copies_and_imports(|keys| {
        let store = PostgresCheckpointer::open(options.clone()).unwrap();
        SealedCheckpointer::new(store, with_keys(keys))
    })
    .await;
}

#[tokio::test]
async fn a_rekey_deletes_the_record_that_a_killed_one_left() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let (thread, keys) = (ThreadId::from("t"), ThreadId::from("t\u{1f}$keys"));
    line(&open(&inner, &[1], None), &thread, 2).await;
    let killed = open(&inner, &[2, 1], Some(1)).rekey(&thread).await.unwrap_err();
    assert!(is_killed(&killed), "{killed}");
    assert_eq!(inner.count(&keys).await.unwrap(), 2);
    assert_eq!(open(&inner, &[2, 1], None).rekey(&thread).await.unwrap(), Rekeyed::Current);
    assert_eq!(inner.count(&keys).await.unwrap(), 1);
    assert_eq!(load(&open(&inner, &[2], None), &thread).await.head, CheckpointId(2));
}
