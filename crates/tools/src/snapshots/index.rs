//! Metadata of files at their last read, so that unchanged files are not read again.

use std::{
    collections::BTreeMap,
    fs, io,
    io::Write,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use super::MAX_LIST_BYTES;
use crate::folders::stored::read_stored;

/// The name of the index in the folder of all threads; no thread has this name.
const NAME: &str = "+index";

/// Name prefix of temporary files that will replace it.
const NEXT: &str = "+next";

/// Clock granularity of file systems: a file changed this shortly before it was read may change again with
/// equal metadata.
const COARSE: Duration = Duration::from_secs(2);

/// Metadata of files by their paths below the root. If lost or damaged, it is rebuilt.
#[derive(Debug, Default)]
pub(super) struct Index {
    known: Mutex<Option<BTreeMap<String, Known>>>,
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    #[serde(rename = "look")]
    stamp: FileStamp,
    hash: String,
}

/// The metadata that detects a change: length, modification and change time, inode and device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileStamp(u64, (i64, i64), (i64, i64), u64, u64);

impl FileStamp {
    /// Returns `None` on systems that report too little.
    #[cfg(unix)]
    pub(super) fn of(metadata: &fs::Metadata) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Some(Self(
            metadata.len(),
            modified,
            (metadata.ctime(), metadata.ctime_nsec()),
            metadata.ino(),
            metadata.dev(),
        ))
    }

    #[cfg(not(unix))]
    pub(super) fn of(_: &fs::Metadata) -> Option<Self> {
        None
    }

    /// Returns whether all times are well before a moment.
    fn is_before(&self, moment: SystemTime) -> bool {
        let since_epoch =
            moment.checked_sub(COARSE).and_then(|then| then.duration_since(SystemTime::UNIX_EPOCH).ok());
        let seconds = since_epoch.and_then(|since| i64::try_from(since.as_secs()).ok());
        seconds.is_some_and(|seconds| self.1.0.max(self.2.0) < seconds)
    }
}

impl Index {
    /// Returns the hash of the file at a path with this metadata.
    pub(super) fn hash(&self, folder: &Path, path: &str, stamp: &FileStamp) -> Option<String> {
        let mut known = self.known();
        let known = known.get_or_insert_with(|| read(folder).unwrap_or_default());
        known.get(path).filter(|known| known.stamp == *stamp).map(|known| known.hash.clone())
    }

    /// Records the metadata of files read after `moment`, and removes those that are not in `there`.
    pub(super) fn store(
        &self,
        folder: &Path,
        read: Vec<(String, FileStamp, String)>,
        moment: SystemTime,
        there: impl Fn(&str) -> bool,
    ) -> io::Result<()> {
        let mut known = self.known();
        let known = known.get_or_insert_default();
        let before = known.len();
        known.retain(|path, _| there(path));
        let mut differs = known.len() != before;
        for (path, stamp, hash) in read {
            let now = stamp.is_before(moment).then_some(Known { stamp, hash });
            differs |= known.get(&path) != now.as_ref();
            match now {
                Some(now) => known.insert(path, now),
                None => known.remove(&path),
            };
        }
        if differs { write(folder, known) } else { Ok(()) }
    }

    fn known(&self) -> MutexGuard<'_, Option<BTreeMap<String, Known>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the index: a hash of the rest, then the rest.
fn read(folder: &Path) -> Option<BTreeMap<String, Known>> {
    let text = String::from_utf8(read_stored(&folder.join(NAME), MAX_LIST_BYTES).ok()?).ok()?;
    let (hash, text) = text.split_once('\n')?;
    (*blake3::hash(text.as_bytes()).to_hex() == *hash).then(|| serde_json::from_str(text).ok()).flatten()
}

fn write(folder: &Path, known: &BTreeMap<String, Known>) -> io::Result<()> {
    // A temporary file of an interrupted process.
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(NEXT.as_bytes()) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let text = serde_json::to_string(known)?;
    let mut file = tempfile::Builder::new().prefix(NEXT).tempfile_in(folder)?;
    write!(file, "{}\n{text}", blake3::hash(text.as_bytes()).to_hex())?;
    file.persist(folder.join(NAME))?;
    Ok(())
}

/// Returns the current time by the clock of a folder's file system.
pub(super) fn now(folder: &Path) -> io::Result<SystemTime> {
    tempfile::Builder::new().prefix(NEXT).tempfile_in(folder)?.as_file().metadata()?.modified()
}
