//! One writer for each thread, in this process and in others.
//!
//! Within the process, a set has the leased threads. Between processes, a thread's writer holds a lock of the operating
//! system in the folder `<database>-locks`, which ends with the process: on Linux a byte of a file that stays open, elsewhere
//! a file of its own.

#[cfg(any(test, not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))))]
mod files;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod ranges;

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use superstep_checkpoint::{CheckpointError, ThreadId};

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
use files::{FileLock as HeldLock, Key, LockFolder};
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use ranges::{HeldByte as HeldLock, Key, LockFolder};

use crate::{error, location::Location};

/// The threads with a writer.
#[derive(Debug)]
pub(crate) struct Locks {
    place: Arc<Location>,
    /// `None` if no other process can open the database.
    folder: Option<LockFolder>,
    held: Mutex<BTreeSet<Key>>,
    /// The number of them.
    count: AtomicUsize,
}

/// The lock that makes its owner the writer of a thread.
pub(crate) struct ThreadLock {
    locks: Arc<Locks>,
    key: Key,
    held: Option<HeldLock>,
}

impl Locks {
    /// Creates the locks of a database; `shared` if other processes may open it.
    pub(crate) fn new(place: Arc<Location>, shared: bool) -> Self {
        let folder = match &*place {
            Location::File(database) | Location::ReadOnly(database) if shared => {
                Some(LockFolder::new(folder_of(database)))
            }
            _ => None,
        };
        Self { place, folder, held: Mutex::default(), count: AtomicUsize::new(0) }
    }

    /// Returns whether several threads have writers in this process.
    pub(crate) fn are_several(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 1
    }

    pub(crate) fn acquire(self: &Arc<Self>, thread: &ThreadId) -> Result<ThreadLock, CheckpointError> {
        if self.place.is_read_only() {
            return Err(error::read_only(&self.place));
        }
        let key = Key::of(thread);
        if !self.held().insert(key.clone()) {
            return Err(CheckpointError::Busy { thread: thread.clone() });
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        // From here on, any failure releases the thread.
        let mut lock = ThreadLock { locks: self.clone(), key, held: None };
        if let Some(folder) = &self.folder {
            let held = folder.acquire(&lock.key).map_err(|(path, cause)| error::cannot_lock(&path, cause))?;
            lock.held = Some(held.ok_or_else(|| CheckpointError::Busy { thread: thread.clone() })?);
        }
        Ok(lock)
    }

    /// Returns whether the thread has a writer. Creates no file.
    pub(crate) fn is_held(&self, thread: &ThreadId) -> Result<bool, CheckpointError> {
        let key = Key::of(thread);
        if self.held().contains(&key) {
            return Ok(true);
        }
        let Some(folder) = &self.folder else { return Ok(false) };
        folder.is_held(&key).map_err(|(path, cause)| error::cannot_lock(&path, cause))
    }

    fn held(&self) -> MutexGuard<'_, BTreeSet<Key>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ThreadLock {
    fn drop(&mut self) {
        // Another writer in this process may lock the same file only afterwards.
        drop(self.held.take());
        self.locks.held().remove(&self.key);
        self.locks.count.fetch_sub(1, Ordering::Relaxed);
    }
}

fn folder_of(database: &Path) -> PathBuf {
    let mut folder = OsString::from(database);
    folder.push("-locks");
    folder.into()
}

/// Opens a file of the folder, and creates both if they do not exist. Returns `None` if the last user removed the folder
/// meanwhile.
///
/// # Errors
/// Also if one of them is a link: a folder that came with a database could otherwise name files elsewhere, which would be
/// created and removed.
fn open(folder: &Path, path: &Path) -> io::Result<Option<File>> {
    match fs::create_dir(folder) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => return Err(cause),
        _ => {}
    }
    for place in [folder, path] {
        if fs::symlink_metadata(place).is_ok_and(|found| found.is_symlink()) {
            return Err(io::Error::other(format!("`{}` is a link; remove it", place.display())));
        }
    }
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

/// Opens a file of the folder for reading; `None` if there is none.
///
/// # Errors
/// Also if it is not a regular file, or the folder is a link: opening a pipe would wait for its writer.
fn existing(folder: &Path, path: &Path) -> io::Result<Option<File>> {
    let file_type = |place| fs::symlink_metadata(place).map(|found| found.file_type());
    match (file_type(folder), file_type(path)) {
        (Err(cause), _) | (_, Err(cause)) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        (Ok(parent), Ok(file)) if parent.is_dir() && file.is_file() => {}
        (Err(cause), _) | (_, Err(cause)) => return Err(cause),
        _ => return Err(io::Error::other("it is not a regular file in a folder; remove it")),
    }
    match File::open(path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

/// Returns whether `path` still refers to `file`.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(file), Ok(named)) = (file.metadata(), fs::metadata(path)) else {
        return false;
    };
    (file.dev(), file.ino()) == (named.dev(), named.ino())
}
