//! A wrapper around a checkpointer, for tests.
//!
//! Start at [`Wrapper`].

use std::collections::BTreeMap;

use futures::{future::BoxFuture, stream::BoxStream};
use superstep_graph::{
    CheckpointId, Checkpointer, History, ThreadId,
    checkpoint::{
        CheckpointError, CheckpointMeta, Commit, Lease, Loaded, Prune, Storage, TaskKey, TaskRecord,
    },
    state::RawJson,
};

/// The result of a method of a checkpointer.
type Answer<'a, T> = BoxFuture<'a, Result<T, CheckpointError>>;

/// Declares the trait, whose methods delegate to the store, and the checkpointer that calls them.
macro_rules! wrapper {
    (
        $(#[$doc:meta])*
        trait { $($own:tt)* }
        $($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*
    ) => {
        $(#[$doc])*
        pub trait Wrapper: Send + Sync + 'static {
            $($own)*

            $(
                #[doc = concat!("See [`Checkpointer::", stringify!($name), "`].")]
                fn $name(&self, $($argument: $type),*) -> $answer {
                    self.store().$name($($argument),*)
                }
            )*
        }

        impl<W: Wrapper> Checkpointer for Wrapped<W> {
            fn add_effects(&self, task: &TaskKey, results: BTreeMap<String, RawJson>) -> Answer<'_, bool> {
                self.0.add_effects(task, results)
            }

            fn commit_all(
                &self,
                thread: &ThreadId,
                expected: Option<CheckpointId>,
                next: Vec<Commit>,
            ) -> Answer<'_, ()> {
                self.0.commit_all(thread, expected, next)
            }

            $(
                fn $name(&self, $($argument: $type),*) -> $answer {
                    self.0.$name($($argument),*)
                }
            )*
        }
    };
}

/// The checkpointer of a [`Wrapper`].
#[derive(Clone, Debug)]
pub struct Wrapped<W>(pub W);

wrapper! {
    /// A layer around a [`Checkpointer`] that delegates to it by default. [`Wrapped`] turns it into a checkpointer.
    ///
    /// [`record`](Self::record) receives all records and [`commit`](Self::commit) all commits, and [`load`](Self::load) all loads of the
    /// head: the methods of [`Checkpointer`] that combine or avoid them (`record_all`, `load_head`, `remember`, `keeps_values`) are not
    /// delegated.
    ///
    /// Use it for stores that fail, wait, lose data or observe: only the differing methods are implemented.
    ///
    /// # Example: a store that rejects deletion
    /// ```
    /// use futures::future::BoxFuture;
    /// use superstep_graph::{Checkpointer, MemoryCheckpointer, ThreadId, checkpoint::CheckpointError};
    /// use superstep_testing::wrapped::{Wrapped, Wrapper};
    ///
    /// struct Keeps(MemoryCheckpointer);
    ///
    /// impl Wrapper for Keeps {
    ///     fn store(&self) -> &dyn Checkpointer {
    ///         &self.0
    ///     }
    ///
    ///     fn delete(&self, thread: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
    ///         let busy = CheckpointError::Busy { thread: thread.clone() };
    ///         Box::pin(async { Err(busy) })
    ///     }
    /// }
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let store = Wrapped(Keeps(MemoryCheckpointer::new()));
    /// assert!(store.delete(&"t".into()).await.is_err());
    /// assert_eq!(store.load(&"t".into(), None).await?, None);
    /// # Ok::<(), CheckpointError>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    trait {
        /// Returns the store behind it.
        fn store(&self) -> &dyn Checkpointer;

        /// See [`Checkpointer::add_effects`]. Not delegated unless it is implemented, so that
        /// [`record`](Self::record) receives all records.
        fn add_effects(
            &self,
            task: &TaskKey,
            results: BTreeMap<String, RawJson>,
        ) -> Answer<'_, bool> {
            let _ = (task, results);
            Box::pin(std::future::ready(Ok(false)))
        }

        /// See [`Checkpointer::commit_all`]. Calls [`commit`](Self::commit) for each, so that it receives all commits. Delegate
        /// it if they must be stored atomically.
        fn commit_all(
            &self,
            thread: &ThreadId,
            expected: Option<CheckpointId>,
            next: Vec<Commit>,
        ) -> Answer<'_, ()> {
            let thread = thread.clone();
            Box::pin(async move {
                let mut expected = expected;
                for next in next {
                    expected = Some(self.commit(&thread, expected, next).await?);
                }
                Ok(())
            })
        }
    }

    lease(thread: &ThreadId) -> Answer<'_, Lease>;
    has_writer(thread: &ThreadId) -> Answer<'_, bool>;
    load(thread: &ThreadId, at: Option<CheckpointId>) -> Answer<'_, Option<Loaded>>;
    read_commit(thread: &ThreadId, at: CheckpointId) -> Answer<'_, Option<Commit>>;
    record(task: &TaskKey, record: TaskRecord) -> Answer<'_, ()>;
    nonce(thread: &ThreadId) -> Answer<'_, Option<String>>;
    commit(thread: &ThreadId, expected: Option<CheckpointId>, next: Commit) -> Answer<'_, CheckpointId>;
    sync() -> Answer<'_, ()>;
    storage() -> Answer<'_, Option<Storage>>;
    verify() -> Answer<'_, ()>;
    vacuum() -> Answer<'_, ()>;
    changes(thread: &ThreadId) -> Option<BoxStream<'static, ()>>;
    names() -> Answer<'_, Vec<ThreadId>>;
    orphans() -> Answer<'_, Vec<ThreadId>>;
    history(thread: &ThreadId, range: History) -> Answer<'_, Vec<CheckpointMeta>>;
    count(thread: &ThreadId) -> Answer<'_, usize>;
    has_input(thread: &ThreadId, id: &str) -> Answer<'_, bool>;
    threads() -> Answer<'_, Vec<(ThreadId, CheckpointMeta)>>;
    children(thread: &ThreadId) -> Answer<'_, Vec<ThreadId>>;
    delete(thread: &ThreadId) -> Answer<'_, ()>;
    copy(from: &ThreadId, to: &ThreadId) -> Answer<'_, ()>;
    prune(thread: &ThreadId, head: CheckpointId, prune: Prune) -> Answer<'_, usize>;
}
