//! Contents in a folder under their hashes, written so that they are there after the machine stopped.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    thread,
};

use crate::locks::keep_names;

/// So many files are made to reach the disk at once: it takes little longer than for one of them.
const AT_ONCE: usize = 8;

/// Stores a content under its name, in one step, and tells where, unless it is there already. [`sync`] what was stored.
pub(super) fn store(folder: &Path, name: &str, content: &[u8]) -> io::Result<Option<PathBuf>> {
    let path = folder.join(name);
    // One that is shorter is what a machine left that stopped before it had written it.
    if fs::metadata(&path).is_ok_and(|there| there.len() == content.len() as u64) {
        return Ok(None);
    }
    replace(folder, name, content).map(Some)
}

/// Writes a file in one step, whatever is there, and tells where.
pub(super) fn replace(folder: &Path, name: &str, content: &[u8]) -> io::Result<PathBuf> {
    let path = folder.join(name);
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.persist(&path)?;
    Ok(path)
}

/// Waits until files of one folder are on the disk.
pub(super) fn sync(paths: &[PathBuf]) -> io::Result<()> {
    let sync = |part: &[PathBuf]| {
        part.iter().try_for_each(|path| OpenOptions::new().write(true).open(path)?.sync_all())
    };
    let parts = paths.chunks(paths.len().div_ceil(AT_ONCE).max(1));
    thread::scope(|scope| {
        let parts: Vec<_> = parts.map(|part| scope.spawn(move || sync(part))).collect();
        parts.into_iter().try_for_each(|part| part.join().expect("syncing does not panic"))
    })?;
    // Their names as well.
    paths.first().and_then(|path| path.parent()).map_or(Ok(()), keep_names)
}

/// Whether something may be kept under this name.
pub(super) fn is_kept(name: &str) -> bool {
    hash_in(name).bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a content is what its name says.
pub(super) fn is_whole(name: &str, content: &[u8]) -> bool {
    *blake3::hash(content).to_hex() == *hash_in(name)
}

fn hash_in(name: &str) -> &str {
    name.strip_suffix(".tree").unwrap_or(name)
}
