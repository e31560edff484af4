//! File locks, and durable changes to a folder.

use std::{
    fs::{self, File, Metadata, OpenOptions, TryLockError},
    io,
    ops::{Deref, DerefMut},
    path::Path,
    time::Duration,
};

use superstep_llm::timers::check_timers;
use tokio::time::{Instant, sleep};

use super::stored::{not_a_file, not_elsewhere};

/// Maximum wait for another program's lock.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Interval between attempts to lock the file.
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// A locked file. Dropping it releases the lock at once, although a child process that is just being started may still have a
/// copy of the handle.
#[derive(Debug)]
pub struct LockedFile(File);

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl DerefMut for LockedFile {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // A failure is harmless: the lock ends with the last copy of the handle.
        let _ = self.0.unlock();
    }
}

/// Acquires a lock until the file is dropped; `None` if another program holds it. Creates the file if it is
/// missing.
pub fn lock(path: &Path) -> io::Result<Option<LockedFile>> {
    locked(path, private().write(true))
}

/// Opens and locks a file like [`lock`]. Fails on a link regardless of its target.
pub fn locked(path: &Path, options: &mut OpenOptions) -> io::Result<Option<LockedFile>> {
    if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(not_a_file(path));
    }
    held(not_elsewhere(options.create(true).truncate(false)).open(path)?, path)
}

/// Locks the file and verifies that it is still the one at the path; its last holder may have deleted it.
fn held(file: File, path: &Path) -> io::Result<Option<LockedFile>> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let file = LockedFile(file);
    match fs::symlink_metadata(path) {
        Ok(there) => Ok(same_file(&there, &file.metadata()?).then_some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(unix)]
pub(crate) fn same_file(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Without inode numbers, a file that is not a link is accepted.
#[cfg(not(unix))]
pub(crate) fn same_file(a: &Metadata, b: &Metadata) -> bool {
    a.file_type() == b.file_type()
}

/// Returns options for a file readable by its owner only.
pub fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Syncs the names in a folder, on systems where syncing files is not sufficient.
pub fn keep_names(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Runs a file operation that returns `None` while the file is locked; retries within a time limit.
pub async fn patiently<T: Send + 'static>(
    within: Duration,
    work: impl Fn() -> io::Result<Option<T>> + Clone + Send + 'static,
) -> io::Result<T> {
    let end = Instant::now() + within;
    loop {
        let done = blocking(work.clone()).await?;
        match done {
            Some(done) => return Ok(done),
            None if Instant::now() >= end => {
                let message = format!("another process has had it for {} ms", within.as_millis());
                return Err(io::Error::new(io::ErrorKind::WouldBlock, message));
            }
            None => {
                check_timers().map_err(io::Error::other)?;
                sleep(BETWEEN_TRIES).await;
            }
        }
    }
}

/// Runs blocking work on a thread of its own.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(io::Error::other("it broke off")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = lock(&path).unwrap();
        assert!(first.is_some() && lock(&path).unwrap().is_none());
        drop(first);
        assert!(lock(&path).unwrap().is_some());
    }

    #[cfg(unix)]
    #[test]
    fn a_copy_of_the_handle_keeps_no_lock() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lock");
        let first = lock(&path).unwrap().unwrap();
        let copy = first.try_clone().unwrap();
        drop(first);
        assert!(lock(&path).unwrap().is_some());
        drop(copy);
    }

    #[test]
    fn a_deleted_file_is_not_a_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        for is_made_again in [false, true] {
            let opened = private().write(true).create(true).truncate(false).open(&path).unwrap();
            fs::remove_file(&path).unwrap();
            let _other = is_made_again.then(|| lock(&path).unwrap().unwrap());
            assert!(held(opened, &path).unwrap().is_none());
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_not_a_lock_and_nothing_is_created_at_its_target() {
        let dir = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (dir.path().join("lock"), dir.path().join("elsewhere"));
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert_eq!(lock(&path).unwrap_err().to_string(), "`lock` is not a regular file; remove it");
        assert!(!elsewhere.exists());
    }
}
