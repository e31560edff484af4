//! Content-addressed files in a folder, synced to the disk before they get their names.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write},
    path::Path,
    thread,
};

use tempfile::TempPath;

use crate::folders::{
    locks::{keep_names, private},
    stored::{open_stored, read_stored},
};

/// Number of files synced in parallel: it takes little longer than syncing one.
const AT_ONCE: usize = 8;

/// Name prefix of incomplete files.
const NEXT: &str = ".tmp";

/// Temporary files, which [`keep`] renames to their names.
pub(super) type Written = BTreeMap<String, TempPath>;

/// Writes a content to a temporary file, which will replace a damaged one of that name.
pub(super) fn write(folder: &Path, name: &str, content: &[u8], written: &mut Written) -> io::Result<()> {
    written.insert(name.to_owned(), next(folder, content)?);
    Ok(())
}

/// The folder of the shared contents, beside the folders of the threads; no thread has this name.
pub(super) const SHARED: &str = "+contents";

/// Returns whether a folder has a content of this length that matches its name. The file is read: a crash, a full disk or
/// another person may have left one of the same length.
pub(super) fn has(folder: &Path, name: &str, length: u64) -> bool {
    let path = folder.join(name);
    length_of(&path) == Some(length)
        && read_stored(&path, length).is_ok_and(|content| is_whole(name, &content))
}

/// Shares contents that a thread has just stored, because the shared ones were missing or damaged. Where hard links are
/// impossible, each thread retains its own.
pub(super) fn share<'a>(shared: &Path, folder: &Path, names: impl IntoIterator<Item = &'a String>) {
    for name in names {
        if !cfg!(unix) || replace_by_link(&folder.join(name), &shared.join(name)).is_err() {
            return;
        }
    }
}

/// Gives a stored file a second name in place of a damaged file.
pub(super) fn replace_by_link(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(to)?;
            fs::hard_link(from, to)
        }
        linked => linked,
    }
}

/// Deletes the shared contents that no thread uses.
#[cfg(unix)]
pub(super) fn sweep(shared: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    for entry in fs::read_dir(shared)? {
        let entry = entry?;
        let is_unused = || entry.metadata().map(|there| there.is_file() && there.nlink() == 1);
        if entry.file_name().to_str().is_some_and(is_stored_name) && is_unused()? {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Does nothing: this system shares no contents.
#[cfg(not(unix))]
pub(super) fn sweep(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Returns the length of a regular file.
fn length_of(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file).map(|there| there.len())
}

/// Gives a stored file a second name, or copies it where that is impossible. An existing file is left alone, and so is a link.
pub(super) fn link(from: &Path, to: &Path) -> io::Result<()> {
    // Stored files never change, so one file serves both.
    if fs::hard_link(from, to).is_ok() || fs::symlink_metadata(to).is_ok() {
        return Ok(());
    }
    io::copy(&mut open_stored(from)?, &mut private().write(true).create_new(true).open(to)?).map(drop)
}

/// Returns the number of bytes in a folder.
pub(super) fn size(folder: &Path) -> io::Result<u64> {
    fs::read_dir(folder)?.map(|entry| entry?.metadata().map(|there| there.len())).sum()
}

/// Replaces anything at a path by a file.
pub(super) fn replace(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    store(folder, [(name.to_owned(), next(folder, content)?)].into())
}

fn next(folder: &Path, content: &[u8]) -> io::Result<TempPath> {
    let mut file = tempfile::Builder::new().prefix(NEXT).tempfile_in(folder)?;
    file.write_all(content)?;
    // The number of open files is limited.
    Ok(file.into_temp_path())
}

/// Syncs the files to the disk, renames them to their names, and syncs the folder.
pub(super) fn store(folder: &Path, written: Written) -> io::Result<()> {
    let sync = |part: &[&TempPath]| {
        part.iter().try_for_each(|path| OpenOptions::new().write(true).open(path)?.sync_all())
    };
    let paths: Vec<_> = written.values().collect();
    let parts = paths.chunks(paths.len().div_ceil(AT_ONCE).max(1));
    thread::scope(|scope| {
        let parts: Vec<_> = parts.map(|part| scope.spawn(move || sync(part))).collect();
        parts.into_iter().try_for_each(|part| part.join().expect("syncing does not panic"))
    })?;
    for (name, path) in written {
        path.persist(folder.join(name))?;
    }
    keep_names(folder)
}

/// Returns whether a file was left by an interrupted process.
pub(super) fn is_left_over(name: &str) -> bool {
    name.starts_with(NEXT)
}

/// Returns whether a stored file may have this name.
pub(super) fn is_stored_name(name: &str) -> bool {
    let hash = hash_in(name);
    hash.len() == 2 * blake3::OUT_LEN && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns whether a content matches the hash in its name.
pub(super) fn is_whole(name: &str, content: &[u8]) -> bool {
    *blake3::hash(content).to_hex() == *hash_in(name)
}

fn hash_in(name: &str) -> &str {
    name.strip_suffix(".tree").unwrap_or(name)
}
