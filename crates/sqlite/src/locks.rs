//! One writer for each thread, in this process and in others.
//!
//! Within the process, a set has the names of leased threads. Between processes, a thread's writer locks a
//! separate file next to the database. The file exists while there is a writer: it is removed before its lock
//! is released. A lock therefore counts only if its file still has its name; otherwise the attempt is
//! repeated.

use std::{
    collections::BTreeSet,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use superstep_checkpoint::{CheckpointError, ThreadId};

use crate::{error, location::Location};

/// The number of attempts while other processes create and remove the file.
const TRIES: u32 = 1000;

/// The threads with a writer.
#[derive(Debug)]
pub(crate) struct Locks {
    place: Arc<Location>,
    held: Mutex<BTreeSet<ThreadId>>,
}

/// The lock that makes its owner the writer of a thread.
pub(crate) struct ThreadLock {
    locks: Arc<Locks>,
    thread: ThreadId,
    file: Option<LockFile>,
}

impl Locks {
    pub(crate) fn new(place: Arc<Location>) -> Self {
        Self { place, held: Mutex::default() }
    }

    pub(crate) fn acquire(self: &Arc<Self>, thread: &ThreadId) -> Result<ThreadLock, CheckpointError> {
        if !self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(thread.clone()) {
            return Err(CheckpointError::Busy { thread: thread.clone() });
        }
        // From here on, any failure releases the name.
        let mut held = ThreadLock { locks: self.clone(), thread: thread.clone(), file: None };
        held.file = match &*self.place {
            Location::File(database) => Some(LockFile::acquire(&folder(database), thread)?),
            Location::ReadOnly(_) => return Err(error::read_only(&self.place)),
            Location::Memory => None,
        };
        Ok(held)
    }
}

impl Drop for ThreadLock {
    fn drop(&mut self) {
        drop(self.file.take());
        self.locks.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.thread);
    }
}

/// A locked file. The operating system unlocks it when the process ends.
struct LockFile {
    path: PathBuf,
    file: Option<File>,
}

impl LockFile {
    fn acquire(folder: &Path, thread: &ThreadId) -> Result<Self, CheckpointError> {
        let path = folder.join(file_name(thread));
        for _ in 0..TRIES {
            let opened = open(folder, &path).map_err(|cause| error::cannot_lock(&path, cause))?;
            if let Some(file) = opened
                && let Some(locked) = Self::lock(file, &path, thread)?
            {
                return Ok(locked);
            }
        }
        // After so many changes of the file, one of the other processes is the writer.
        Err(CheckpointError::Busy { thread: thread.clone() })
    }

    /// Locks the file. Returns `None` if it was removed between opening and locking it.
    fn lock(file: File, path: &Path, thread: &ThreadId) -> Result<Option<Self>, CheckpointError> {
        match file.try_lock() {
            Ok(()) if is_at(&file, path) => Ok(Some(Self { path: path.to_path_buf(), file: Some(file) })),
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Err(CheckpointError::Busy { thread: thread.clone() }),
            Err(TryLockError::Error(cause)) => Err(error::cannot_lock(path, cause)),
        }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if cfg!(unix) {
            // Removed while locked, so that no other process can have locked the removed file. A failure is
            // harmless: a lock file without a lock counts as free.
            let _ = fs::remove_file(&self.path);
        }
        drop(self.file.take());
        if let Some(folder) = self.path.parent() {
            // Only succeeds if it is empty.
            let _ = fs::remove_dir(folder);
        }
    }
}

fn folder(database: &Path) -> PathBuf {
    let mut folder = database.as_os_str().to_owned();
    folder.push("-locks");
    folder.into()
}

/// Opens the file. Returns `None` if the last writer of another thread removed the folder meanwhile.
fn open(folder: &Path, path: &Path) -> io::Result<Option<File>> {
    match fs::create_dir(folder) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => return Err(cause),
        _ => {}
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

/// Returns whether `path` still refers to `file`.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(file), Ok(named)) = (file.metadata(), fs::metadata(path)) else {
        return false;
    };
    (file.dev(), file.ino()) == (named.dev(), named.ino())
}

/// Returns true: files are not removed on this platform.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

/// Returns a file name for any thread: the harmless characters of its name, for readability, and a hash.
fn file_name(thread: &ThreadId) -> String {
    let harmless = |c: &char| c.is_ascii_alphanumeric() || *c == '-' || *c == '_';
    let readable: String = thread.as_str().chars().filter(harmless).take(40).collect();
    format!("{readable}.{:032x}.lock", fnv(thread.as_str()))
}

/// Hashes a name, equally on every machine and in every version of this program.
fn fnv(name: &str) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    name.bytes().fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_name_is_stable() {
        assert_eq!(fnv(""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv("a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }

    #[cfg(unix)]
    #[test]
    fn a_removed_file_is_not_a_lock() {
        let place = tempfile::tempdir().unwrap();
        let (folder, thread) = (place.path().join("locks"), ThreadId::from("t"));
        let path = folder.join(file_name(&thread));
        let first = LockFile::acquire(&folder, &thread).unwrap();
        let late = || open(&folder, &path).unwrap().unwrap();
        let [one, two] = [late(), late()];
        assert!(matches!(LockFile::lock(late(), &path, &thread), Err(CheckpointError::Busy { .. })));
        drop(first);
        assert!(LockFile::lock(one, &path, &thread).unwrap().is_none());
        let second = LockFile::acquire(&folder, &thread).unwrap();
        assert!(LockFile::lock(two, &path, &thread).unwrap().is_none());
        drop(second);
        assert!(!folder.exists());
    }

    #[test]
    fn a_database_whose_folder_is_gone_is_not_busy() {
        let place = tempfile::tempdir().unwrap();
        let refused = LockFile::acquire(&place.path().join("gone/locks"), &"t".into()).err().unwrap();
        assert!(refused.to_string().starts_with("SS303: cannot lock `"), "{refused}");
    }

    #[test]
    fn a_file_name_stays_in_its_folder_and_is_short() {
        for name in ["", "../x", "a/b", "\0", "CON", &"x".repeat(10_000)] {
            let file = file_name(&name.into());
            assert!(file.len() < 100, "{file}");
            assert!(!file.contains(['/', '\\', '\0']), "{file}");
        }
        assert_ne!(file_name(&"a".into()), file_name(&"A".into()));
        assert_ne!(file_name(&"x/".into()), file_name(&"x".into()));
    }
}
