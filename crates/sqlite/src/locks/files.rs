//! A lock on a file, which the operating system releases with the process.
//!
//! The file exists while there is a writer: it is removed before its lock is released. A lock therefore counts only if
//! its file still has its name; otherwise the attempt is repeated.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use superstep_checkpoint::ThreadId;

#[cfg(unix)]
use super::is_at;
use super::{existing, open};

/// The number of attempts while other processes create and remove the file.
const TRIES: u32 = 1000;

/// The name of a thread's file. Equal in all programs that use the database.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(String);

impl Key {
    pub(super) fn of(thread: &ThreadId) -> Self {
        Self(file_name(thread))
    }
}

/// The folder of the files.
#[derive(Debug)]
pub(super) struct LockFolder(PathBuf);

impl LockFolder {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Locks a thread; `None` if another process or connection has locked it.
    pub(super) fn acquire(&self, key: &Key) -> Result<Option<FileLock>, (PathBuf, io::Error)> {
        let path = self.0.join(&key.0);
        FileLock::acquire(&self.0, &path).map_err(|cause| (path, cause))
    }

    /// Returns whether a process or connection has locked a thread.
    pub(super) fn is_held(&self, key: &Key) -> Result<bool, (PathBuf, io::Error)> {
        let path = self.0.join(&key.0);
        let held = existing(&self.0, &path).and_then(|file| match file.map(|file| file.try_lock_shared()) {
            None | Some(Ok(())) => Ok(false),
            Some(Err(TryLockError::WouldBlock)) => Ok(true),
            Some(Err(TryLockError::Error(cause))) => Err(cause),
        });
        held.map_err(|cause| (path, cause))
    }
}

/// A locked file. The operating system unlocks it when the process ends.
pub(super) struct FileLock {
    path: PathBuf,
    file: Option<File>,
}

impl FileLock {
    fn acquire(folder: &Path, path: &Path) -> io::Result<Option<Self>> {
        for _ in 0..TRIES {
            let Some(file) = open(folder, path)? else { continue };
            match file.try_lock() {
                Ok(()) if is_at(&file, path) => {
                    return Ok(Some(Self { path: path.to_path_buf(), file: Some(file) }));
                }
                // It was removed between opening and locking it.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(cause)) => return Err(cause),
            }
        }
        // After so many changes of the file, one of the other processes is the writer.
        Ok(None)
    }
}

impl Drop for FileLock {
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
        let folder = place.path().join("locks");
        let path = folder.join(file_name(&"t".into()));
        let first = FileLock::acquire(&folder, &path).unwrap().unwrap();
        let late = || open(&folder, &path).unwrap().unwrap();
        let [one, two] = [late(), late()];
        assert!(matches!(late().try_lock(), Err(TryLockError::WouldBlock)));
        drop(first);
        assert!(one.try_lock().is_ok() && !is_at(&one, &path));
        let second = FileLock::acquire(&folder, &path).unwrap().unwrap();
        assert!(two.try_lock().is_err() && !is_at(&two, &path));
        drop(second);
        assert!(!folder.exists());
    }

    #[test]
    fn one_has_the_lock_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let (folder, key) = (LockFolder::new(place.path().join("locks")), Key::of(&"t".into()));
        let held = folder.acquire(&key).unwrap();
        assert!(held.is_some() && folder.acquire(&key).unwrap().is_none());
        assert!(folder.is_held(&key).unwrap());
        drop(held);
        assert!(!folder.is_held(&key).unwrap());
        assert!(folder.acquire(&key).unwrap().is_some());
    }

    #[test]
    fn a_database_whose_folder_is_gone_is_not_busy() {
        let place = tempfile::tempdir().unwrap();
        let folder = LockFolder::new(place.path().join("gone/locks"));
        let refused = folder.acquire(&Key::of(&"t".into()));
        assert!(refused.is_err_and(|(path, _)| path.ends_with(file_name(&"t".into()))));
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
