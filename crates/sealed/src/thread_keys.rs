//! The data keys of threads, stored in a thread of their own below each: `name ␟ $keys`.
//!
//! A checkpointer copies and deletes it together with its root. Its newest snapshot is the [record](KeyRecord).
//!
//! Start at [`ThreadKeys`].

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use hashlink::LruCache;
use superstep_checkpoint::{
    CheckpointError, CheckpointId, Checkpointer, Commit, History, Prune, Source, ThreadId,
    internal::{
        leftovers,
        own::{KEYS, inbox_of, keys_of},
    },
};
use superstep_engine::Control;
use superstep_state::ChannelValue;

use crate::{
    error::{KeyFault, check_thread_keys, no_keys, of_thread, of_thread_keys, readable},
    form::Fault,
    keys::{DataKeys, KeyRecord, Owner},
    master::KeyProvider,
    options::SealOptions,
};

/// The maximum number of threads whose keys are in memory.
const MAX_CACHED: usize = 1_024;

/// The number of attempts if other processes change a record at the same time.
pub(crate) const MAX_ATTEMPTS: usize = 8;

/// The data keys of the threads of a checkpointer.
pub(crate) struct ThreadKeys {
    inner: Arc<dyn Checkpointer>,
    options: SealOptions,
    /// By root; `None` for a thread without keys. Without a provider all are.
    cache: Mutex<LruCache<ThreadId, Option<Arc<DataKeys>>>>,
    /// `true` once the database was found to be readable, if there are no keys.
    is_readable: AtomicBool,
}

/// A change of a record.
enum Change {
    /// Adds the keys for a copy with this owner.
    CopyTo(String),
    /// Removes the keys for that copy.
    CopyEnded(String),
    /// Removes the keys of other threads.
    Own,
    /// Encrypts the keys with the current master key.
    Rekey,
}

/// Returns whether a thread is the one that stores data keys.
pub(crate) fn is_key_thread(thread: &ThreadId) -> bool {
    *thread == keys_of(&thread.root())
}

/// Returns whether the record of a thread was read, and its keys are lost.
fn cannot_be_opened(error: &CheckpointError) -> bool {
    matches!(error, CheckpointError::Key { source: None, .. } | CheckpointError::Corrupt { .. })
}

/// Returns the owner of the keys of a thread, by which they are bound.
fn owner(root: &ThreadId) -> String {
    format!("thread {}", root.as_str())
}

impl ThreadKeys {
    pub(crate) fn new(inner: Arc<dyn Checkpointer>, options: SealOptions) -> Self {
        let cache = Mutex::new(LruCache::new(MAX_CACHED));
        Self { inner, options, cache, is_readable: AtomicBool::new(false) }
    }

    /// Drops the keys of a thread from memory, because another process may have replaced it.
    pub(crate) fn forget(&self, thread: &ThreadId) {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).remove(&thread.root());
    }

    /// Returns the keys in memory.
    fn cached(&self, root: &ThreadId) -> Option<Option<Arc<DataKeys>>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(root).cloned()
    }

    fn remember(&self, root: ThreadId, keys: Option<Arc<DataKeys>>) {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).insert(root, keys);
    }

    /// Returns the keys of a thread; `None` if it has none. `is_fresh` reads them again.
    pub(crate) async fn get(
        &self,
        thread: &ThreadId,
        is_fresh: bool,
    ) -> Result<Option<Arc<DataKeys>>, CheckpointError> {
        let Some(provider) = &self.options.keys else { return Ok(None) };
        let root = thread.root();
        if let Some(keys) = self.cached(&root).filter(|_| !is_fresh) {
            return Ok(keys);
        }
        let keys = match self.read(&root).await? {
            Some((_, record)) => Some(Arc::new(self.opened(&root, &record, &**provider).await?)),
            None => None,
        };
        self.remember(root, keys.clone());
        Ok(keys)
    }

    /// Returns the keys of a thread to which something is written, and creates them if there are none. `next` is the number of its
    /// next checkpoint, and 1 begins a thread, whose keys are read again.
    pub(crate) async fn get_or_create(
        &self,
        thread: &ThreadId,
        next: u64,
    ) -> Result<Option<Arc<DataKeys>>, CheckpointError> {
        check_thread_keys(&self.options)?;
        let Some(provider) = &self.options.keys else {
            if next == 1 && !thread.is_child() {
                self.refuse_readable(thread).await?
            } else {
                self.check_readable_once(thread.root()).await?
            }
            return Ok(None);
        };
        let root = thread.root();
        for nth in 0..MAX_ATTEMPTS {
            let is_new = next == 1 && !thread.is_child();
            match self.get(&root, is_new || nth > 0).await {
                Ok(Some(keys)) => return Ok(Some(keys)),
                // The process that has the lease may have no key, and continues the thread readable.
                Ok(None) if *thread == inbox_of(&root) && self.head(&root).await? > 0 => {
                    return match self.get(&root, true).await? {
                        None if self.options.required => Err(of_thread(&root, "the inbox", Fault::Plain)),
                        keys => Ok(keys),
                    };
                }
                Ok(None) => {}
                // A process with another key ended before its first commit.
                Err(error) if is_new && cannot_be_opened(&error) && self.has_keys_only(&root).await? => {
                    self.inner.delete(&root).await?;
                }
                Err(error) => return Err(error),
            }
            let from = self.first_encrypted(thread, next).await?;
            let name = owner(&root);
            let record =
                KeyRecord::create(Owner { name: &name, from }, &**provider, &*self.options.random).await;
            let record = record.map_err(|fault| of_thread_keys(&root, fault))?;
            // Another process may create them at the same time; then there are some.
            if self.write(&root, None, &record).await? {
                let keys = Arc::new(self.opened(&root, &record, &**provider).await?);
                self.remember(root, Some(keys.clone()));
                return Ok(Some(keys));
            }
        }
        Err(busy(&root))
    }

    /// Returns the number of the root's next checkpoint, from which all must be encrypted.
    ///
    /// # Errors
    /// [`CheckpointError::Conflict`] if `next` is not that of the thread, so that nothing will be written.
    async fn first_encrypted(&self, thread: &ThreadId, next: u64) -> Result<u64, CheckpointError> {
        let own = self.head(thread).await?;
        if own.checked_add(1) != Some(next) {
            let expected = next.checked_sub(1).filter(|head| *head > 0).map(CheckpointId);
            return Err(CheckpointError::conflict(thread, expected));
        }
        let root = if thread.is_child() { self.head(&thread.root()).await? } else { own };
        Ok(root + 1)
    }

    /// Returns whether nothing of a thread is stored but its keys.
    async fn has_keys_only(&self, root: &ThreadId) -> Result<bool, CheckpointError> {
        Ok(self.head(root).await? == 0 && leftovers(self.inner.children(root).await?).is_empty())
    }

    /// Returns the number of a thread's newest checkpoint; 0 if there is none.
    async fn head(&self, thread: &ThreadId) -> Result<u64, CheckpointError> {
        let range = History { limit: Some(1), ..History::default() };
        let newest = self.inner.history(thread, range).await?;
        Ok(newest.first().map_or(0, |head| head.id.0))
    }

    /// Refuses an encrypted thread if there are no keys. Another process may have begun to encrypt it, so its record is read.
    pub(crate) async fn check_readable(&self, root: &ThreadId) -> Result<(), CheckpointError> {
        if self.options.keys.is_none()
            && let Some(master) = self.master(root).await?
        {
            return Err(no_keys(root, &master));
        }
        Ok(())
    }

    /// Does so for the first value after a lease was taken: only the process that has it begins to encrypt a thread.
    async fn check_readable_once(&self, root: ThreadId) -> Result<(), CheckpointError> {
        if self.cached(&root).is_none() {
            self.check_readable(&root).await?;
            self.remember(root, None);
        }
        Ok(())
    }

    /// Refuses a new readable thread in a database whose first thread is encrypted.
    async fn refuse_readable(&self, thread: &ThreadId) -> Result<(), CheckpointError> {
        if self.is_readable.load(Ordering::Relaxed) {
            return Ok(());
        }
        if let Some(first) = self.inner.names().await?.first()
            && let Some(master) = self.master(first).await?
        {
            return Err(readable(thread, &master));
        }
        self.is_readable.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the id of the master key of a thread; `None` if it is not encrypted.
    pub(crate) async fn master(&self, thread: &ThreadId) -> Result<Option<String>, CheckpointError> {
        Ok(self.read(&thread.root()).await?.map(|(_, record)| record.master(&owner(&thread.root()))))
    }

    async fn opened(
        &self,
        root: &ThreadId,
        record: &KeyRecord,
        provider: &dyn KeyProvider,
    ) -> Result<DataKeys, CheckpointError> {
        record.open(&owner(root), provider).await.map_err(|fault| of_thread_keys(root, fault))
    }

    /// Returns the keys of a thread with the head `head`, to which a record is written.
    pub(crate) async fn of_head(
        &self,
        thread: &ThreadId,
        head: CheckpointId,
    ) -> Result<Option<Arc<DataKeys>>, CheckpointError> {
        let next = head.0.checked_add(1).filter(|next| *next > 1);
        let conflict = || CheckpointError::conflict(thread, Some(head));
        self.get_or_create(thread, next.ok_or_else(conflict)?).await.map_err(|error| match error {
            CheckpointError::Conflict { .. } => conflict(),
            error => error,
        })
    }

    /// Stores the keys of a thread for its copy `to` as well, so that the copy has them from the beginning.
    pub(crate) async fn prepare_copy(&self, from: &ThreadId, to: &ThreadId) -> Result<(), CheckpointError> {
        let prepared = self.change(from, &Change::CopyTo(owner(to))).await;
        self.forget(from);
        prepared.map(|_| ())
    }

    /// Removes the keys of the original from those of a copy, and the other way round. Deletes the copy and returns `false` if it
    /// does not have keys, because too many others were begun at the same time.
    pub(crate) async fn finish_copy(&self, from: &ThreadId, to: &ThreadId) -> Result<bool, CheckpointError> {
        let Some((_, record)) = self.read(to).await? else { return Ok(true) };
        if !record.has(&owner(to)) {
            self.inner.delete(to).await?;
            return Ok(false);
        }
        // A reader only needs its own ones, so that a process that ends here does no harm, nor do other processes.
        for (thread, change) in [(to, Change::Own), (from, Change::CopyEnded(owner(to)))] {
            match self.change(thread, &change).await {
                Ok(_) | Err(CheckpointError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Encrypts the keys of a thread with the current master key, and adds a new one for new values. Returns `false` if that is
    /// done already, or if the thread has no keys.
    pub(crate) async fn rekey(&self, root: &ThreadId) -> Result<bool, CheckpointError> {
        let is_changed = self.change(root, &Change::Rekey).await?;
        self.forget(root);
        Ok(is_changed)
    }

    /// Changes the record of a thread. Returns `false` if there is none, or nothing to change.
    async fn change(&self, root: &ThreadId, change: &Change) -> Result<bool, CheckpointError> {
        for _ in 0..MAX_ATTEMPTS {
            let Some((head, record)) = self.read(root).await? else { return Ok(false) };
            let changed = self.changed(&owner(root), &record, change).await;
            let Some(changed) = changed.map_err(|fault| of_thread_keys(root, fault))? else {
                if let Change::Rekey = change {
                    // A process that replaced the record may have ended before it deleted the old one.
                    self.delete_before(&keys_of(root), head).await?;
                }
                return Ok(false);
            };
            if self.write(root, Some(head), &changed).await? {
                return Ok(true);
            }
        }
        Err(busy(root))
    }

    async fn changed(
        &self,
        of: &str,
        record: &KeyRecord,
        change: &Change,
    ) -> Result<Option<KeyRecord>, KeyFault> {
        let Some(provider) = self.options.keys.as_deref() else { return Ok(None) };
        let random = &*self.options.random;
        match change {
            Change::CopyTo(to) => record.with_copy((of, to), provider, random).await.map(Some),
            Change::CopyEnded(to) => Ok(record.has(to).then(|| record.without(to))),
            Change::Own => Ok(record.has_others(of).then(|| record.only(of))),
            Change::Rekey => {
                let master = provider.current().await.map_err(KeyFault::Provider)?;
                if record.is_current(&master) {
                    Ok(None)
                } else {
                    record.rekeyed(of, provider, random).await.map(Some)
                }
            }
        }
    }

    async fn read(&self, root: &ThreadId) -> Result<Option<(CheckpointId, KeyRecord)>, CheckpointError> {
        let Some(loaded) = self.inner.load(&keys_of(root), None).await? else { return Ok(None) };
        let changed = |why: &str| of_thread_keys(root, KeyFault::Changed(why.to_owned()));
        let snapshot = loaded.snapshot.ok_or_else(|| changed("the record is missing"))?;
        let channels = snapshot.channels().map_err(|cause| changed(&cause.to_string()))?;
        let record = channels.iter().find(|value| value.channel == KEYS);
        let record = record.ok_or_else(|| changed("the record is missing"))?;
        let record = KeyRecord::parse(&record.json).map_err(|fault| of_thread_keys(root, fault))?;
        Ok(Some((loaded.head, record)))
    }

    /// Replaces the record. Returns `false` if it is no longer the one that was read.
    async fn write(
        &self,
        root: &ThreadId,
        head: Option<CheckpointId>,
        record: &KeyRecord,
    ) -> Result<bool, CheckpointError> {
        let thread = keys_of(root);
        let value = ChannelValue { channel: KEYS.to_owned(), json: record.text().into() };
        let commit = Commit {
            parent: head,
            source: Source::Update,
            control: Control::new(-1, Vec::new()),
            created_ms: 0,
            metadata: Default::default(),
            applied: Vec::new(),
            snapshot: Some(vec![value].into()),
            records: Vec::new(),
            fingerprints: None,
        };
        let head = match self.inner.commit(&thread, head, commit).await {
            Ok(head) => head,
            Err(CheckpointError::Conflict { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        if head.0 > 1 {
            self.delete_before(&thread, head).await?;
        }
        Ok(true)
    }

    /// Deletes the records before the newest one, which an old master key opens.
    async fn delete_before(&self, thread: &ThreadId, head: CheckpointId) -> Result<(), CheckpointError> {
        if self.inner.count(thread).await? < 2 {
            return Ok(());
        }
        let prune = Prune { keep: [head].into(), ..Prune::default() };
        match self.inner.prune(thread, head, prune).await {
            // Another process replaced the record, and prunes.
            Ok(_) | Err(CheckpointError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Creates the error of a record that other processes keep changing.
pub(crate) fn busy(root: &ThreadId) -> CheckpointError {
    CheckpointError::conflict(root, None)
}
