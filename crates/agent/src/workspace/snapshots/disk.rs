//! Contents in a folder under their hashes, written so that they are there after the machine stopped.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write},
    path::Path,
    thread,
};

use tempfile::TempPath;

use crate::locks::keep_names;

/// So many files are made to reach the disk at once: it takes little longer than for one of them.
const AT_ONCE: usize = 8;

/// How the names of files begin that are not whole yet.
const NEXT: &str = ".tmp";

/// Files that are written beside their names, which [`keep`] gives them.
pub(super) type Written = BTreeMap<String, TempPath>;

/// Writes a content beside its name, unless it is there already. What is there under its name is on the disk.
pub(super) fn write(folder: &Path, name: &str, content: &[u8], written: &mut Written) -> io::Result<()> {
    // One of another length is what somebody damaged.
    let is_there = fs::metadata(folder.join(name)).is_ok_and(|there| there.len() == content.len() as u64);
    if !is_there && !written.contains_key(name) {
        written.insert(name.to_owned(), next(folder, content)?);
    }
    Ok(())
}

/// Puts a file in the place of whatever is there.
pub(super) fn replace(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    keep(folder, [(name.to_owned(), next(folder, content)?)].into())
}

fn next(folder: &Path, content: &[u8]) -> io::Result<TempPath> {
    let mut file = tempfile::Builder::new().prefix(NEXT).tempfile_in(folder)?;
    file.write_all(content)?;
    // Open files are few.
    Ok(file.into_temp_path())
}

/// Gives files their names when they are on the disk, and waits until the names of the folder are, too.
pub(super) fn keep(folder: &Path, written: Written) -> io::Result<()> {
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

/// Whether a file is what somebody left who was stopped.
pub(super) fn is_left_over(name: &str) -> bool {
    name.starts_with(NEXT)
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
