//! Long results as files.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::Arc,
};

use superstep_llm::spill::{Spill, SpillError, SpillFuture, SpillText};

use super::{
    stored::read_stored,
    thread_folders::{ThreadFolders, plain},
};

/// Maximum size of a stored text, and of all texts of a thread, in bytes.
const MAX_TEXT_BYTES: u64 = 16 << 20;
const MAX_THREAD_BYTES: u64 = 256 << 20;

/// Maximum number of results of one thread with the same call id: some providers restart the ids in each
/// response.
const MAX_NAMESAKES: u32 = 10_000;

/// Stores long results as files below a folder, separately for each thread.
///
/// An existing file is never written again. Texts longer than 16 MiB, and more than 256 MiB of one thread,
/// are rejected.
/// # Limits
/// No part of the path may be a symbolic link. This is checked before a file is created; a
/// program that swaps a folder for a link at this moment can redirect the file, though never over an existing
/// one.
#[derive(Clone, Debug)]
pub struct SpillFiles {
    folders: ThreadFolders,
}

impl SpillFiles {
    /// Stores them in `folder`, relative to `root`, which is the root of the tools' paths. The folder is
    /// created on the first write.
    ///
    /// # Errors
    /// `root` is missing, or `folder` is not a plain path below it.
    pub fn new(root: &Path, folder: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { folders: ThreadFolders::new(root, folder.as_ref())? })
    }

    /// Deletes the stored results of a thread, if any.
    ///
    /// # Errors
    /// An error of the file system; or the thread's folder was replaced by a link.
    pub fn delete(&self, thread: &str) -> io::Result<()> {
        self.folders.delete(thread)
    }

    fn write(&self, thread: &str, call_id: &str, text: &str) -> Result<String, SpillError> {
        let failed = |error: io::Error| SpillError(format!("the result cannot be stored: {error}"));
        let size = text.len() as u64;
        if size > MAX_TEXT_BYTES {
            return Err(SpillError(format!("the result is longer than {} MiB", MAX_TEXT_BYTES >> 20)));
        }
        let below = self.folders.below(thread);
        let folder = self.folders.make(&below).map_err(failed)?;
        let name = plain(call_id);
        for namesake in 1..=MAX_NAMESAKES {
            let name = if namesake == 1 { format!("{name}.txt") } else { format!("{name}.{namesake}.txt") };
            let path = folder.join(&name);
            if holds(&path, text).map_err(failed)? {
                return Ok(shown(&below.join(name)));
            }
            if fs::symlink_metadata(&path).is_ok() {
                continue;
            }
            if size_of(&folder).map_err(failed)?.saturating_add(size) > MAX_THREAD_BYTES {
                let most = MAX_THREAD_BYTES >> 20;
                return Err(SpillError(format!("long results of this thread take {most} MiB already")));
            }
            match create(&path, text) {
                Ok(()) => return Ok(shown(&below.join(name))),
                // A concurrent call was faster, with this id or one that maps to the same name.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(SpillError(format!("{MAX_NAMESAKES} results of the call `{name}` are already stored")))
    }
}

impl Spill for SpillFiles {
    fn keep<'a>(&'a self, text: SpillText<'a>) -> SpillFuture<'a> {
        let SpillText { thread, call_id, text } = text;
        let (files, thread) = (self.clone(), thread.unwrap_or_default().to_owned());
        let (call_id, text) = (call_id.to_owned(), text.to_owned());
        Box::pin(async move {
            let written = tokio::task::spawn_blocking(move || files.write(&thread, &call_id, &text)).await;
            written.unwrap_or_else(|_| Err(SpillError("keeping the result failed".to_owned())))
        })
    }

    fn in_folder(&self, folder: &Path) -> io::Result<Option<Arc<dyn Spill>>> {
        Ok(Some(Arc::new(Self { folders: self.folders.in_root(folder)? })))
    }
}

/// Returns whether a file has exactly this text.
fn holds(path: &Path, text: &str) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_file() && there.len() == text.len() as u64 => {}
        Ok(_) => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    }
    Ok(read_stored(path, MAX_TEXT_BYTES)? == text.as_bytes())
}

/// Creates a new file; fails on an existing file or link.
fn create(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}

fn size_of(folder: &Path) -> io::Result<u64> {
    let sizes = fs::read_dir(folder)?.map(|entry| entry?.metadata().map(|there| there.len()));
    sizes.sum()
}

/// Formats a path with `/` between its names, which are all plain.
fn shown(path: &Path) -> String {
    let names: Vec<_> = path.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    names.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> (tempfile::TempDir, SpillFiles) {
        let dir = tempfile::tempdir().unwrap();
        let files = SpillFiles::new(dir.path(), ".superstep/results").unwrap();
        (dir, files)
    }

    #[test]
    fn a_text_is_stored_once_and_never_overwritten() {
        let (dir, files) = files();
        let first = files.write("t", "call_1", "one").unwrap();
        assert_eq!(first, ".superstep/results/t/call_1.txt");
        assert_eq!(files.write("t", "call_1", "one").unwrap(), first);
        assert_eq!(files.write("t", "call_1", "two").unwrap(), ".superstep/results/t/call_1.2.txt");
        assert_eq!(fs::read_to_string(dir.path().join(&first)).unwrap(), "one");
        assert_eq!(fs::read_to_string(dir.path().join(".superstep/.gitignore")).unwrap(), "*\n");
        assert_ne!(files.write("other", "call_1", "two").unwrap(), first);
    }

    #[test]
    fn names_cannot_leave_the_folder_and_do_not_meet() {
        let (dir, files) = files();
        let ids = ["../../evil", "/etc/passwd", "..", ".", "", "a/b", "a_b", "a b", "a\0b", "é", "%"];
        let long = "x/".repeat(300);
        let longer = "x/".repeat(301);
        let mut paths = std::collections::BTreeSet::new();
        for id in ids.into_iter().chain([long.as_str(), longer.as_str()]) {
            let path = files.write(id, id, "text").unwrap();
            let real = dir.path().join(&path).canonicalize().unwrap();
            assert!(
                real.starts_with(dir.path().canonicalize().unwrap().join(".superstep/results")),
                "{path}"
            );
            assert!(paths.insert(path));
        }
        assert!(!dir.path().join("evil").exists());
    }

    #[test]
    fn too_much_text_is_rejected() {
        let (_dir, files) = files();
        let most = usize::try_from(MAX_TEXT_BYTES).unwrap();
        let error = files.write("t", "c", &"x".repeat(most + 1)).unwrap_err();
        assert_eq!(error.to_string(), "the result is longer than 16 MiB");
        let full = files.folders.make(Path::new(".superstep/results/t")).unwrap().join("full");
        fs::File::create(full).unwrap().set_len(MAX_THREAD_BYTES).unwrap();
        let error = files.write("t", "c", "x").unwrap_err();
        assert_eq!(error.to_string(), "long results of this thread take 256 MiB already");
    }

    #[test]
    fn a_thread_is_deleted_with_its_texts() {
        let (dir, files) = files();
        let (path, other) = (files.write("a/b", "c", "x").unwrap(), files.write("a_b", "c", "x").unwrap());
        files.delete("a/b").unwrap();
        files.delete("a/b").unwrap();
        files.delete("never").unwrap();
        assert!(!dir.path().join(path).exists() && dir.path().join(other).exists());
    }

    #[cfg(unix)]
    #[test]
    fn links_are_not_followed() {
        use std::os::unix::fs::symlink;
        let (dir, files) = files();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join(".superstep/results")).unwrap();
        symlink(elsewhere.path(), dir.path().join(".superstep/results/t")).unwrap();
        let error = files.write("t", "c", "x").unwrap_err().to_string();
        assert!(error.contains("there is a link in `.superstep/results/t`"), "{error}");
        assert!(files.delete("t").is_err() && elsewhere.path().exists());

        let target = elsewhere.path().join("target");
        fs::create_dir(dir.path().join(".superstep/results/u")).unwrap();
        symlink(&target, dir.path().join(".superstep/results/u/c.txt")).unwrap();
        assert_eq!(files.write("u", "c", "x").unwrap(), ".superstep/results/u/c.2.txt");
        assert!(!target.exists());
    }

    #[test]
    fn a_folder_elsewhere_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["../x", "/x", "a/../.."] {
            assert!(SpillFiles::new(dir.path(), folder).is_err(), "{folder}");
        }
    }
}
