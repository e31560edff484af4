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

/// Where contents are kept for all threads, beside the folders of the threads; none of these is called so.
pub(super) const SHARED: &str = "+contents";

/// Whether the folder of a thread has a content of this length, if need be by way of the one that all threads share.
pub(super) fn has(shared: &Path, folder: &Path, name: &str, length: u64) -> bool {
    let is_in = |folder: &Path| fs::metadata(folder.join(name)).is_ok_and(|there| there.len() == length);
    is_in(folder) || is_in(shared) && fs::hard_link(shared.join(name), folder.join(name)).is_ok()
}

/// Shares contents of a thread with all others. Where that cannot be, each keeps its own.
pub(super) fn share<'a>(shared: &Path, folder: &Path, names: impl IntoIterator<Item = &'a String>) {
    for name in names {
        let (own, all) = (folder.join(name), shared.join(name));
        let lengths = [&own, &all].map(|path| fs::metadata(path).map(|there| there.len()).ok());
        if lengths[1].is_some() && lengths[0] != lengths[1] {
            // One of another length is what somebody damaged.
            let _ = fs::remove_file(&all);
        }
        if !cfg!(unix)
            || fs::hard_link(own, all).is_err_and(|error| error.kind() != io::ErrorKind::AlreadyExists)
        {
            return;
        }
    }
}

/// Deletes the shared contents that no thread has.
#[cfg(unix)]
pub(super) fn sweep(shared: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let entries = match fs::read_dir(shared) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_kept) && entry.metadata()?.nlink() == 1 {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Nothing is shared here.
#[cfg(not(unix))]
pub(super) fn sweep(_: &Path) -> io::Result<()> {
    Ok(())
}

/// How many bytes there are in a folder.
pub(super) fn size(folder: &Path) -> io::Result<u64> {
    fs::read_dir(folder)?.map(|entry| entry?.metadata().map(|there| there.len())).sum()
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
