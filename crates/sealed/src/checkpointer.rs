//! Threads with sealed values.
//!
//! Start at [`SealedCheckpointer`].

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures::{future::BoxFuture, stream::BoxStream};
use superstep_checkpoint::{
    CheckpointError, CheckpointId, CheckpointMeta, Checkpointer, Commit, HeadState, History, IntoShared,
    Lease, Loaded, LoadedHead, Prune, Storage, TaskKey, TaskRecord, ThreadId,
    internal::{has_input, own::inbox_of},
};
use superstep_state::RawJson;

use crate::{
    error,
    form::{Fault, SEALED},
    keys::DataKeys,
    options::SealOptions,
    path::PathDigest,
    thread_keys::{MAX_ATTEMPTS, ThreadKeys, busy, is_key_thread},
    values::{Located, Opener, Read, Sealer},
};

/// The number of checkpoints that are read at a time if a history is selected by metadata.
const PAGE: usize = 256;

/// A layer in front of any [`Checkpointer`] that encrypts and compresses what it stores.
///
/// Encrypted are updates, snapshots, metadata, the items of workers, and the records of tasks with their questions, answers,
/// errors and effects. The names of threads, nodes and effects, numbers and times remain readable. Each value is bound to its
/// thread, checkpoint and task, and the readable columns of a checkpoint are bound to its metadata: a value that was changed or
/// moved is an error. Copies, prunes, exports and imports work as without the layer; an export is readable.
///
/// Each thread has data keys of its own, encrypted with the current key of the [`KeyProvider`](crate::KeyProvider) and stored
/// with the thread. [`rekey`](Self::rekey) replaces the provider's key without reading the thread's values.
///
/// # Example
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use std::sync::Arc;
/// use superstep_graph::{END, MemoryCheckpointer, START, State, StateGraph};
/// use superstep_sealed::{KeyRing, MasterKey, SealOptions, SealedCheckpointer, SystemRandom};
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Count { n: u32 }
///
/// let mut graph = StateGraph::<Count>::new("count");
/// let more = graph.add_node("more", async |state: Count, _| Count::update().n(state.n + 1));
/// graph.add_edge(START, more);
/// graph.add_edge(more, END);
///
/// // From a place for secrets: `text.parse::<MasterKey>()?`.
/// let key = MasterKey::generate(&SystemRandom)?;
/// let database = Arc::new(MemoryCheckpointer::new());
/// let sealed = SealedCheckpointer::new(database.clone(), SealOptions::encrypted(KeyRing::new(key)));
/// let graph = graph.compile()?.with_checkpointer(sealed);
/// graph.thread("t").run(Count::update().n(41)).await?;
/// assert_eq!(graph.thread("t").state().await?.values.n, 42);
///
/// let readable = graph.with_checkpointer(database).thread("t").state().await;
/// assert!(readable.is_err());
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct SealedCheckpointer {
    inner: Arc<dyn Checkpointer>,
    options: SealOptions,
    keys: ThreadKeys,
}

/// Commits that are about to be stored, with the path to the last of them.
struct SealedCommits {
    commits: Vec<Commit>,
    head: Option<(CheckpointId, Option<PathDigest>)>,
    keys: Option<Arc<DataKeys>>,
}

impl SealedCommits {
    /// Remembers the path to the last one.
    fn are_stored(self, thread: &ThreadId) {
        if let (Some(keys), Some((head, path))) = (self.keys, self.head) {
            keys.heads.set(thread, head, path);
        }
    }
}

/// The result of [`SealedCheckpointer::rekey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rekeyed {
    /// The data keys are encrypted with the current key now, and new values get a new data key.
    Changed,
    /// The data keys were encrypted with the current key already.
    Current,
    /// The thread is not encrypted, or does not exist.
    Plain,
}

impl SealedCheckpointer {
    /// Creates the layer.
    pub fn new(inner: impl IntoShared<dyn Checkpointer>, options: SealOptions) -> Self {
        let inner = inner.into_shared();
        Self { keys: ThreadKeys::new(inner.clone(), options.clone()), inner, options }
    }

    /// Encrypts the data keys of a thread with the current key, and adds a data key for new values. The thread may be running.
    ///
    /// Call it for each of [`names`](Checkpointer::names). The old key is not needed any more once all threads and stores have
    /// the new one; a second pass skips those that have.
    ///
    /// # Errors
    /// [`CheckpointError::Key`] if the key of the thread is unknown, or its data keys are missing, and those of the checkpointer.
    pub async fn rekey(&self, thread: &ThreadId) -> Result<Rekeyed, CheckpointError> {
        let root = thread.root();
        self.keys.check_readable(&root).await?;
        if self.keys.rekey(&root).await? {
            return Ok(Rekeyed::Changed);
        }
        if self.keys.get(&root, true).await?.is_some() {
            return Ok(Rekeyed::Current);
        }
        let newest = self.inner.history(&root, History { limit: Some(1), ..History::default() }).await?;
        // An encrypted thread whose keys are lost is an error.
        let sealed: Vec<_> = newest.into_iter().filter(|meta| meta.metadata.contains_key(SEALED)).collect();
        self.metas(&root, &sealed).await?;
        Ok(Rekeyed::Plain)
    }

    /// Opens what was read. Keys in memory that do not fit are read again, once.
    async fn opened<T>(
        &self,
        thread: &ThreadId,
        open: impl Fn(&Opener<'_>) -> Read<T>,
    ) -> Result<T, CheckpointError> {
        let mut is_fresh = false;
        loop {
            let keys = self.keys.get(thread, is_fresh).await?;
            let opener = Opener { options: &self.options, keys: keys.as_deref(), thread };
            match open(&opener) {
                Ok(opened) => return Ok(opened),
                Err(found) => {
                    // Another process may have begun to encrypt the thread, or replaced it.
                    if self.options.keys.is_none()
                        && let Fault::UnknownKey(_) = found.fault
                        && let Some(master) = self.keys.master(thread).await?
                    {
                        return Err(error::no_keys(thread, &master));
                    }
                    if is_fresh || self.options.keys.is_none() {
                        let lenient = SealOptions { required: false, ..self.options.clone() };
                        let is_plain = |found: Located| matches!(found.fault, Fault::Plain);
                        return Err(match found.fault {
                            Fault::Plain
                                if open(&Opener { options: &lenient, ..opener }).is_err_and(is_plain) =>
                            {
                                error::inserted(thread, &found.part)
                            }
                            fault => error::of_thread(thread, &found.part, fault),
                        });
                    }
                    is_fresh = true;
                }
            }
        }
    }

    fn sealer<'a>(&'a self, keys: Option<&'a DataKeys>, thread: &'a ThreadId) -> Sealer<'a> {
        Sealer { options: &self.options, keys, thread }
    }

    /// Seals consecutive commits.
    async fn sealed(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Vec<Commit>,
    ) -> Result<SealedCommits, CheckpointError> {
        let first = expected.map_or(0, |head| head.0).saturating_add(1);
        let keys = self.keys.get_or_create(thread, first).await?;
        let sealer = self.sealer(keys.as_deref(), thread);
        let (mut commits, mut paths) = (Vec::with_capacity(next.len()), BTreeMap::new());
        for (nth, mut next) in (0..).zip(next) {
            let id = CheckpointId(first.saturating_add(nth));
            let before = match (next.parent, &keys) {
                (_, None) => None,
                (None, Some(_)) => Some(PathDigest::start()),
                (Some(parent), Some(keys)) => match paths.get(&parent) {
                    Some(path) => Clone::clone(path),
                    None => {
                        let (path, is_readable) = self.path_to(thread, keys, parent).await?;
                        // Its tasks may have been recorded before the thread was encrypted.
                        if is_readable {
                            next.applied.iter_mut().for_each(|task| task.recorded = false);
                        }
                        path
                    }
                },
            };
            let path = before.map(|before| before.after(next.applied.iter().map(|task| task.slot)));
            commits.push(sealer.commit(id, next, path.as_ref())?);
            paths.insert(id, path);
        }
        Ok(SealedCommits { commits, head: paths.pop_last(), keys })
    }

    /// Returns the path to a checkpoint, if it is known, and whether the checkpoint was stored before its thread was encrypted.
    async fn path_to(
        &self,
        thread: &ThreadId,
        keys: &DataKeys,
        id: CheckpointId,
    ) -> Result<(Option<PathDigest>, bool), CheckpointError> {
        if let Some(path) = keys.heads.get(thread, id) {
            return Ok((path, false));
        }
        let before = Some(CheckpointId(id.0.saturating_add(1)));
        let range = History { before, limit: Some(1), ..History::default() };
        let found = self.inner.history(thread, range).await?;
        // The store refuses a commit behind a checkpoint that does not exist.
        let Some(meta) = found.first().filter(|meta| meta.id == id) else { return Ok((None, false)) };
        let is_readable = keys.from > 1 && !meta.metadata.contains_key(SEALED);
        Ok((self.opened(thread, |opener| opener.path_to(meta)).await?, is_readable))
    }

    /// Reads a history that is selected by metadata.
    async fn selected(
        &self,
        thread: &ThreadId,
        range: &History,
    ) -> Result<Vec<CheckpointMeta>, CheckpointError> {
        let limit = range.limit.unwrap_or(usize::MAX);
        let (mut found, mut before) = (Vec::new(), range.before);
        while found.len() < limit {
            let page = History { limit: Some(PAGE), before, metadata: Default::default(), ..range.clone() };
            let metas = self.inner.history(thread, page).await?;
            before = metas.last().map(|meta| meta.id);
            let is_last = metas.len() < PAGE;
            let metas = self.metas(thread, &metas).await?;
            found.extend(metas.into_iter().filter(|meta| range.has(meta)).take(limit - found.len()));
            if is_last {
                break;
            }
        }
        Ok(found)
    }

    async fn exists(&self, thread: &ThreadId) -> Result<bool, CheckpointError> {
        let newest = self.inner.history(thread, History { limit: Some(1), ..History::default() });
        Ok(!newest.await?.is_empty())
    }

    async fn metas(
        &self,
        thread: &ThreadId,
        metas: &[CheckpointMeta],
    ) -> Result<Vec<CheckpointMeta>, CheckpointError> {
        if metas.is_empty() {
            return Ok(Vec::new());
        }
        self.opened(thread, |opener| metas.iter().map(|meta| opener.meta(meta)).collect()).await
    }

    /// Seals the snapshots and the metadata of a prune.
    async fn sealed_prune(&self, thread: &ThreadId, mut prune: Prune) -> Result<Prune, CheckpointError> {
        let keys = if prune.snapshots.is_empty() && prune.metadata.is_empty() {
            return Ok(prune);
        } else {
            error::check_thread_keys(&self.options)?;
            self.keys.check_readable(&thread.root()).await?;
            self.keys.get(thread, false).await?
        };
        let sealer = self.sealer(keys.as_deref(), thread);
        for (id, channels) in &mut prune.snapshots {
            let path = match &keys {
                Some(keys) => self.path_to(thread, keys, *id).await?.0,
                None => None,
            };
            *channels = sealer.new_snapshot(*id, channels, path.as_ref())?;
        }
        if !prune.metadata.is_empty() {
            let opener = Opener { options: &self.options, keys: keys.as_deref(), thread };
            for meta in self.inner.history(thread, History::default()).await? {
                if let Some(metadata) = prune.metadata.get_mut(&meta.id) {
                    *metadata = sealer.new_metadata(&meta, &opener, std::mem::take(metadata))?;
                }
            }
        }
        Ok(prune)
    }

    /// Encrypts what was posted to a thread before the thread was encrypted.
    // A post takes no lease, so that another process, without the key, may run the thread. If a post began its
    // encryption, the next checkpoint of that process would be a readable one in an encrypted thread, which no
    // command accepts. The encryption begins with the first write under the lease.
    async fn seal_inbox(&self, root: &ThreadId) -> Result<(), CheckpointError> {
        let Some(keys) = self.keys.get(root, false).await? else { return Ok(()) };
        // Readable posts were never allowed here, and encrypted they would be valid.
        if self.options.required || keys.from == 1 {
            return Ok(());
        }
        let inbox = inbox_of(root);
        let sealer = self.sealer(Some(&keys), &inbox);
        for _ in 0..MAX_ATTEMPTS {
            let posts = self.inner.history(&inbox, History::default()).await?;
            let readable = posts.iter().filter(|post| !post.metadata.contains_key(SEALED));
            let sealed = readable.map(|post| Ok((post.id, sealer.metadata_of_post(post)?)));
            let metadata = sealed.collect::<Result<BTreeMap<_, _>, CheckpointError>>()?;
            let Some(head) = posts.first().filter(|_| !metadata.is_empty()) else { return Ok(()) };
            let keep = posts.iter().map(|post| post.id).collect();
            match self.inner.prune(&inbox, head.id, Prune { keep, metadata, ..Prune::default() }).await {
                // Another post came in between.
                Err(CheckpointError::Conflict { .. }) => {}
                ended => return ended.map(drop),
            }
        }
        Err(busy(root))
    }
}

impl Checkpointer for SealedCheckpointer {
    fn lease(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Lease, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            let lease = self.inner.lease(&thread).await?;
            // No other process replaces the thread from here.
            self.keys.forget(&thread);
            Ok(lease)
        })
    }

    fn has_writer(&self, thread: &ThreadId) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        self.inner.has_writer(thread)
    }

    fn load(
        &self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> BoxFuture<'_, Result<Option<Loaded>, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            let Some(loaded) = self.inner.load(&thread, at).await? else { return Ok(None) };
            self.opened(&thread, |opener| opener.loaded(&loaded, true)).await.map(Some)
        })
    }

    fn read_commit(
        &self,
        thread: &ThreadId,
        at: CheckpointId,
    ) -> BoxFuture<'_, Result<Option<Commit>, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            let Some(commit) = self.inner.read_commit(&thread, at).await? else { return Ok(None) };
            self.opened(&thread, |opener| opener.commit(at, &commit)).await.map(Some)
        })
    }

    fn load_head(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Option<LoadedHead>, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            let Some(head) = self.inner.load_head(&thread).await? else { return Ok(None) };
            // A state that is in memory comes without the path to it.
            let has_path = head.state.is_none();
            let loaded = self.opened(&thread, |opener| opener.loaded(&head.loaded, has_path)).await?;
            Ok(Some(LoadedHead { loaded, state: head.state }))
        })
    }

    fn remember(&self, thread: &ThreadId, head: CheckpointId, state: HeadState) {
        self.inner.remember(thread, head, state);
    }

    fn record(&self, task: &TaskKey, record: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let task = task.clone();
        Box::pin(async move {
            let keys = self.keys.of_head(&task.thread, task.checkpoint).await?;
            let sealer = self.sealer(keys.as_deref(), &task.thread);
            let record = sealer.record(task.checkpoint, task.slot, record)?;
            self.inner.record(&task, record).await
        })
    }

    fn record_all(
        &self,
        thread: &ThreadId,
        checkpoint: CheckpointId,
        records: Vec<(u32, TaskRecord)>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            let keys = self.keys.of_head(&thread, checkpoint).await?;
            let sealer = self.sealer(keys.as_deref(), &thread);
            let records = records.into_iter();
            let records = records.map(|(slot, record)| Ok((slot, sealer.record(checkpoint, slot, record)?)));
            let records = records.collect::<Result<_, CheckpointError>>()?;
            self.inner.record_all(&thread, checkpoint, records).await
        })
    }

    fn add_effects(
        &self,
        task: &TaskKey,
        results: BTreeMap<String, RawJson>,
    ) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let task = task.clone();
        Box::pin(async move {
            let keys = self.keys.of_head(&task.thread, task.checkpoint).await?;
            let sealer = self.sealer(keys.as_deref(), &task.thread);
            let results = sealer.effects(task.checkpoint, task.slot, results)?;
            self.inner.add_effects(&task, results).await
        })
    }

    fn nonce(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Option<String>, CheckpointError>> {
        self.inner.nonce(thread)
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            let mut sealed = self.sealed(&thread, expected, vec![next]).await?;
            let head = self.inner.commit(&thread, expected, sealed.commits.remove(0)).await?;
            sealed.are_stored(&thread);
            Ok(head)
        })
    }

    fn commit_all(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Vec<Commit>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            if next.is_empty() {
                return self.inner.commit_all(&thread, expected, next).await;
            }
            let mut sealed = self.sealed(&thread, expected, next).await?;
            self.inner.commit_all(&thread, expected, std::mem::take(&mut sealed.commits)).await?;
            sealed.are_stored(&thread);
            Ok(())
        })
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.inner.sync()
    }

    fn storage(&self) -> BoxFuture<'_, Result<Option<Storage>, CheckpointError>> {
        self.inner.storage()
    }

    fn verify(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.inner.verify()
    }

    fn vacuum(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.inner.vacuum()
    }

    fn history(
        &self,
        thread: &ThreadId,
        range: History,
    ) -> BoxFuture<'_, Result<Vec<CheckpointMeta>, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            if !range.metadata.is_empty() && self.options.keys.is_some() {
                return self.selected(&thread, &range).await;
            }
            let metas = self.inner.history(&thread, range).await?;
            self.metas(&thread, &metas).await
        })
    }

    fn count(&self, thread: &ThreadId) -> BoxFuture<'_, Result<usize, CheckpointError>> {
        self.inner.count(thread)
    }

    fn has_input(&self, thread: &ThreadId, id: &str) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let (thread, id) = (thread.clone(), id.to_owned());
        Box::pin(async move {
            self.keys.check_readable(&thread.root()).await?;
            // Another process may have encrypted it meanwhile, so the keys are read again.
            if self.keys.get(&thread, true).await?.is_none() {
                return self.inner.has_input(&thread, &id).await;
            }
            // No index reads encrypted metadata.
            let metas = self.history(&thread, History::default()).await?;
            Ok(metas.iter().any(|meta| has_input(&meta.metadata, &id)))
        })
    }

    fn changes(&self, thread: &ThreadId) -> Option<BoxStream<'static, ()>> {
        self.inner.changes(thread)
    }

    fn threads(&self) -> BoxFuture<'_, Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError>> {
        Box::pin(async {
            let mut threads = self.inner.threads().await?;
            for (thread, meta) in &mut threads {
                *meta = self.opened(thread, |opener| opener.meta(meta)).await?;
            }
            Ok(threads)
        })
    }

    fn names(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        self.inner.names()
    }

    fn orphans(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        self.inner.orphans()
    }

    fn children(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        let children = self.inner.children(thread);
        Box::pin(async move {
            let mut children = children.await?;
            children.retain(|child| !is_key_thread(child));
            Ok(children)
        })
    }

    fn delete(&self, thread: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            let deleted = self.inner.delete(&thread).await;
            self.keys.forget(&thread);
            deleted
        })
    }

    fn copy(&self, from: &ThreadId, to: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let (from, to) = (from.clone(), to.clone());
        Box::pin(async move {
            if self.options.keys.is_none() {
                error::check_thread_keys(&self.options)?;
                // Its keys are bound to its name.
                self.keys.check_readable(&from).await?;
                return self.inner.copy(&from, &to).await;
            }
            if from.is_child() || to.is_child() {
                let what =
                    format!("thread `{from}` is encrypted with its root, and cannot be copied without it");
                return Err(CheckpointError::Storage { what, source: None });
            }
            if !self.exists(&from).await? {
                return Err(CheckpointError::NoThread { thread: from });
            }
            if from == to || self.is_stored(&to).await? {
                return Err(CheckpointError::ThreadExists { thread: to });
            }
            // Keys without a thread are of one whose first commit failed.
            self.inner.delete(&to).await?;
            for _ in 0..MAX_ATTEMPTS {
                // Before the copy, so that one that was begun has its keys or does not exist.
                self.keys.prepare_copy(&from, &to).await?;
                self.inner.copy(&from, &to).await?;
                self.keys.forget(&to);
                if self.keys.finish_copy(&from, &to).await? {
                    return Ok(());
                }
            }
            Err(busy(&to))
        })
    }

    fn prune(
        &self,
        thread: &ThreadId,
        head: CheckpointId,
        prune: Prune,
    ) -> BoxFuture<'_, Result<usize, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            let prune = self.sealed_prune(&thread, prune).await?;
            let pruned = self.inner.prune(&thread, head, prune).await?;
            if !thread.is_child() {
                self.seal_inbox(&thread).await?;
            }
            Ok(pruned)
        })
    }
}

impl fmt::Debug for SealedCheckpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedCheckpointer").field("options", &self.options).finish_non_exhaustive()
    }
}
