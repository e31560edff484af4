//! A lock on a byte of a file, which the operating system releases with the process.
//!
//! The name of a thread is hashed to one of [`FILES`] files and to a byte in it; nothing is written there. A file is opened once
//! and stays open, so that a lease costs no folder, file or removal. The locks belong to the open file, not to the process
//! ("open file description locks"): two connections of one process exclude each other, and closing another descriptor of the
//! file releases nothing.
//!
//! All that have a file open share a lock on its first byte. Only the last one can lock that byte alone, and then removes the
//! file.

use std::{
    ffi::c_int,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    libc,
};
use superstep_checkpoint::ThreadId;
use xxhash_rust::xxh3::xxh3_64;

// A file per lease, created, locked and removed, took 104 µs, more than ten commits. A lock on a byte of a file that stays open
// takes 1.5 µs, and 1.8 more for the check that the file is still the one with that name. The locks belong to the open file
// (`F_OFD_SETLK` of Linux; `nix` has a safe function for it), so that two connections of one process exclude each other, and
// closing any other descriptor releases nothing, unlike POSIX locks, which `rustix` has. The kernel searches a list of all locks
// of a file for each new one: with 10,000 leases of one file a lease took 620 µs. So there are 64 files. The byte is 62 bits of
// a hash of the thread's name; two threads with equal hashes could not run at once, and no more.
//
// The last connection to close a file removes it. All that have it open share a lock on its first byte; the one that can lock
// that byte alone is the last. So a removal never looks like a lease.
//
// Other platforms have no such locks, or only in unsafe form: there a writer locks a whole file of its own, as `std` offers it
// everywhere. A table of leases in the database would not be released by `kill -9`. An exclusively opened database needs no
// files at all.

/// The number of files.
const FILES: u8 = 64;

/// The byte that is shared by all that have the file open.
const OPENED: i64 = 0;

/// The number of attempts while another process removes the file.
const TRIES: u32 = 10_000;

/// The place of a thread's lock. Equal in all programs that use the database.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    file: u8,
    byte: i64,
}

impl Key {
    pub(super) fn of(thread: &ThreadId) -> Self {
        let hash = xxh3_64(thread.as_str().as_bytes());
        // Two threads with the same key cannot run at the same time; no more happens.
        let file = u8::try_from(hash % u64::from(FILES)).expect("it is below 64");
        Self { file, byte: (hash >> 2).cast_signed() + OPENED + 1 }
    }
}

/// The files of a database, which are opened when they are needed.
#[derive(Debug)]
pub(super) struct LockFolder {
    folder: PathBuf,
    files: Vec<Mutex<Option<Arc<LockFile>>>>,
}

/// A locked byte.
pub(super) struct HeldByte {
    file: Arc<LockFile>,
    byte: i64,
}

impl LockFolder {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, files: (0..FILES).map(|_| Mutex::default()).collect() }
    }

    /// Locks a thread; `None` if another process or connection has locked it.
    pub(super) fn acquire(&self, key: &Key) -> Result<Option<HeldByte>, (PathBuf, io::Error)> {
        let path = self.path_of(key);
        self.locked(key, &path).map_err(|cause| (path, cause))
    }

    /// Returns whether a process or connection has locked a thread.
    pub(super) fn is_held(&self, key: &Key) -> Result<bool, (PathBuf, io::Error)> {
        let path = self.path_of(key);
        let file = super::existing(&self.folder, &path);
        let held = file.and_then(|file| file.map_or(Ok(false), |file| is_locked(&file, key.byte)));
        held.map_err(|cause| (path, cause))
    }

    fn path_of(&self, key: &Key) -> PathBuf {
        self.folder.join(format!("{:02x}", key.file))
    }

    fn locked(&self, key: &Key, path: &Path) -> io::Result<Option<HeldByte>> {
        for _ in 0..TRIES {
            let Some(file) = self.file(key, path)? else {
                thread::yield_now();
                continue;
            };
            if !file.lock(libc::F_WRLCK, key.byte)? {
                return Ok(None);
            }
            let held = HeldByte { file, byte: key.byte };
            if held.file.is_at_its_path() {
                return Ok(Some(held));
            }
            // The user deleted it. Others lock the next file of this name.
            self.slot(key).take_if(|open| Arc::ptr_eq(open, &held.file));
        }
        // After so many changes of the file, another process is the writer.
        Ok(None)
    }

    /// Returns the open file; `None` if it is being removed.
    fn file(&self, key: &Key, path: &Path) -> io::Result<Option<Arc<LockFile>>> {
        let mut slot = self.slot(key);
        if let Some(file) = &*slot {
            return Ok(Some(file.clone()));
        }
        let opened = LockFile::open(&self.folder, path)?.map(Arc::new);
        slot.clone_from(&opened);
        Ok(opened)
    }

    fn slot(&self, key: &Key) -> MutexGuard<'_, Option<Arc<LockFile>>> {
        self.files[usize::from(key.file)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HeldByte {
    fn drop(&mut self) {
        // Fails only for bytes that cannot be locked either.
        let _ = self.file.lock(libc::F_UNLCK, self.byte);
    }
}

/// An open file, whose first byte is shared.
#[derive(Debug)]
struct LockFile {
    path: PathBuf,
    file: File,
}

impl LockFile {
    /// Opens the file; `None` if it, or the folder, is being removed.
    fn open(folder: &Path, path: &Path) -> io::Result<Option<Self>> {
        let Some(file) = super::open(folder, path)? else { return Ok(None) };
        let is_shared = set_lock(&file, libc::F_RDLCK, OPENED)?;
        Ok(is_shared.then(|| Self { path: path.to_path_buf(), file }))
    }

    fn lock(&self, kind: c_int, byte: i64) -> io::Result<bool> {
        set_lock(&self.file, kind, byte)
    }

    fn is_at_its_path(&self) -> bool {
        super::is_at(&self.file, &self.path)
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // The last one to stop sharing can lock the byte, also if several stop at once.
        let is_last = self.lock(libc::F_UNLCK, OPENED).and_then(|_| self.lock(libc::F_WRLCK, OPENED));
        if matches!(is_last, Ok(true)) && self.is_at_its_path() {
            // A failure is harmless: a file without locks is free.
            let _ = fs::remove_file(&self.path);
            if let Some(folder) = self.path.parent() {
                // Only succeeds if it is empty.
                let _ = fs::remove_dir(folder);
            }
        }
    }
}

/// Locks, shares or unlocks one byte; `false` if another open file has locked it.
fn set_lock(file: &File, kind: c_int, byte: i64) -> io::Result<bool> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&range(kind, byte))) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(cause) => Err(cause.into()),
    }
}

/// Returns whether another open file has locked or shares one byte.
fn is_locked(file: &File, byte: i64) -> io::Result<bool> {
    let mut found = range(libc::F_WRLCK, byte);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut found))?;
    Ok(c_int::from(found.l_type) != libc::F_UNLCK)
}

fn range(kind: c_int, byte: i64) -> libc::flock {
    let short = |constant: c_int| libc::c_short::try_from(constant).expect("these constants are small");
    libc::flock { l_type: short(kind), l_whence: short(libc::SEEK_SET), l_start: byte, l_len: 1, l_pid: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(file: u8, byte: i64) -> Key {
        Key { file, byte }
    }

    fn files(folder: &Path) -> usize {
        fs::read_dir(folder).map_or(0, Iterator::count)
    }

    #[test]
    fn the_place_of_a_threads_lock_is_stable() {
        assert_eq!(Key::of(&"".into()), key(2, 0x0b41_a001_4e34_e531));
        assert_eq!(Key::of(&"support-17".into()), key(20, 1_002_277_286_139_485_766));
    }

    #[test]
    fn leases_of_any_number_share_the_files() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("locks");
        let [one, two] = [LockFolder::new(path.clone()), LockFolder::new(path.clone())];
        let names: Vec<ThreadId> = (0..1000).map(|n| format!("t{n}").into()).collect();
        let held: Vec<_> = names.iter().map(|name| one.acquire(&Key::of(name)).unwrap().unwrap()).collect();
        assert_eq!(files(&path), usize::from(FILES));
        assert!(names.iter().all(|name| two.acquire(&Key::of(name)).unwrap().is_none()));
        drop(held);
        assert_eq!(files(&path), usize::from(FILES));
        assert!(names.iter().all(|name| two.acquire(&Key::of(name)).unwrap().is_some()));
        drop(one);
        assert_eq!(files(&path), usize::from(FILES));
        drop(two);
        assert!(!path.exists());
    }

    #[test]
    fn a_lock_is_found_without_a_file_of_ones_own() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("locks");
        let [one, two] = [LockFolder::new(path.clone()), LockFolder::new(path.clone())];
        assert!(!two.is_held(&key(3, 7)).unwrap() && !path.exists());
        let held = one.acquire(&key(3, 7)).unwrap().unwrap();
        assert!(two.is_held(&key(3, 7)).unwrap());
        assert!(!two.is_held(&key(3, 8)).unwrap() && !two.is_held(&key(4, 7)).unwrap());
        assert_eq!(files(&path), 1);
        drop(held);
        assert!(!two.is_held(&key(3, 7)).unwrap());
        // A link is not followed.
        drop(one);
        fs::write(place.path().join("03"), "").unwrap();
        std::os::unix::fs::symlink(place.path(), &path).unwrap();
        assert!(two.is_held(&key(3, 7)).is_err_and(|(path, _)| path.ends_with("locks/03")));
    }

    #[test]
    fn a_file_that_is_deleted_is_not_a_lock() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("locks");
        let [one, two] = [LockFolder::new(path.clone()), LockFolder::new(path.clone())];
        let first = one.acquire(&key(3, 7)).unwrap().unwrap();
        fs::remove_file(path.join("03")).unwrap();
        let second = two.acquire(&key(3, 8)).unwrap().unwrap();
        // The open file of `one` is another one by now.
        assert!(one.acquire(&key(3, 8)).unwrap().is_none());
        let third = one.acquire(&key(3, 9)).unwrap().unwrap();
        assert!(two.acquire(&key(3, 9)).unwrap().is_none());
        drop((first, second, third, one));
        assert_eq!(files(&path), 1);
        drop(two);
        assert!(!path.exists());
    }

    #[test]
    fn another_descriptor_of_the_file_releases_nothing_when_it_is_closed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("locks");
        let [one, two] = [LockFolder::new(path.clone()), LockFolder::new(path.clone())];
        let _held = one.acquire(&key(1, 1)).unwrap().unwrap();
        drop(File::open(path.join("01")).unwrap());
        assert!(two.acquire(&key(1, 1)).unwrap().is_none());
    }

    #[test]
    fn a_file_that_is_being_removed_is_not_used() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("locks");
        let file = path.join("00");
        let first = LockFile::open(&path, &file).unwrap().unwrap();
        assert!(first.lock(libc::F_WRLCK, OPENED).unwrap());
        assert!(LockFile::open(&path, &file).unwrap().is_none());
        assert!(file.exists(), "only its owner removes it");
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn many_can_open_and_close_the_files_at_once() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("locks");
        let held = AtomicBool::new(false);
        thread::scope(|scope| {
            for own in 0..4 {
                let (path, held) = (&path, &held);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let locks = LockFolder::new(path.clone());
                        // Another byte of the file is never busy.
                        let other = locks.acquire(&key(5, 100 + own)).unwrap();
                        assert!(other.is_some());
                        if let Some(lock) = locks.acquire(&key(5, 1)).unwrap() {
                            assert!(!held.swap(true, Ordering::SeqCst), "two have it");
                            thread::yield_now();
                            held.store(false, Ordering::SeqCst);
                            drop(lock);
                        }
                    }
                });
            }
        });
        assert!(!path.exists());
    }

    #[test]
    fn a_database_whose_folder_is_gone_is_not_busy() {
        let place = tempfile::tempdir().unwrap();
        let refused = LockFolder::new(place.path().join("gone/locks")).acquire(&key(0, 1));
        assert!(refused.is_err_and(|(path, _)| path.ends_with("gone/locks/00")));
    }
}
