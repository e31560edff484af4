//! Snapshots of the files of a workspace: taken before and after rounds of tools, compared, restored.
//!
//! ```text
//! .superstep/files/THREAD/HASH        the content of a file, under its BLAKE3 hash
//! .superstep/files/THREAD/HASH.tree   which paths had which content at one moment
//! .superstep/files/+contents/HASH     the same files as those of the threads: a content that several have is there once
//! .superstep/files/+index             what files, also contents, looked like when they were read; they are read again if they look otherwise
//! ```
//!
//! Stored files never change, so that a crash at any moment leaves whole files. The user's repositories are
//! not touched. Start at [`FileSnapshots`].

mod capture;
mod compare;
mod disk;
mod index;
#[cfg(test)]
#[cfg(unix)]
mod linked;
mod note;
#[cfg(test)]
#[cfg(unix)]
mod racing;
mod restore;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs, io,
    path::{Component, Path},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use superstep_llm::snapshots::{FileChanges, SnapshotError, SnapshotFuture, Snapshots};
use tokio_util::sync::CancellationToken;

use crate::{
    call::one_line,
    folders::{held::Folder, stored::read_stored, thread_folders::ThreadFolders},
    workspace::{Workspace, root::is_reserved},
};

pub use self::restore::{RestoreError, Restored};
use self::{
    disk::{SHARED, Written},
    index::Index,
};

/// The folder under the root that stores snapshots.
const FOLDER: &str = ".superstep/files";

/// Maximum number of files in a snapshot.
const MAX_FILES: usize = 20_000;
const MAX_BYTES: u64 = 256 << 20;
/// Maximum size of a tree, a note of restored files and the index: all of them list files.
const MAX_LIST_BYTES: u64 = 16 << 20;
/// Maximum size of the contents of all threads.
const MAX_KEPT_BYTES: u64 = 2 << 30;

/// Stores snapshots of a workspace's files in `.superstep/files` under its root, separately for each thread.
///
/// Files that `.gitignore` excludes, `.git` and `.superstep` are neither stored nor restored, and no link is
/// followed. Each content is stored once for all threads. Snapshots are limited to 20,000 files and 256 MiB;
/// the contents of all threads to 2 GiB. A file is read again only if its length, times or inode have
/// changed.
#[derive(Clone, Debug)]
pub struct FileSnapshots {
    workspace: Workspace,
    folders: ThreadFolders,
    index: Arc<Index>,
}

/// The content hash of each path at one moment. A promise: it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Tree(BTreeMap<String, Entry>);

/// The entry at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Entry {
    /// A file whose content has this hash.
    File(String),
    /// An executable file whose content has this hash.
    Program(String),
    /// A symbolic link to this target.
    Link(String),
    /// A `.gitignore` with this content that is ignored itself: neither reported nor restored, but its rules
    /// apply.
    Rules(String),
    /// An entry that could not be read, including everything below it if it is a folder: neither reported nor
    /// restored.
    Unknown,
}

impl Entry {
    /// Returns the hash of the content, if there is one.
    fn hash(&self) -> Option<&String> {
        match self {
            Self::File(hash) | Self::Program(hash) | Self::Rules(hash) => Some(hash),
            Self::Link(_) | Self::Unknown => None,
        }
    }

    /// Returns the hash of the content by value.
    fn content(self) -> Option<String> {
        match self {
            Self::File(hash) | Self::Program(hash) | Self::Rules(hash) => Some(hash),
            Self::Link(_) | Self::Unknown => None,
        }
    }
}

impl FileSnapshots {
    /// Opens the snapshots of a workspace.
    ///
    /// # Errors
    /// The root of the workspace does not exist any more.
    pub fn new(workspace: &Workspace) -> io::Result<Self> {
        let folders = ThreadFolders::new(workspace.root(), Path::new(FOLDER))?;
        Ok(Self { workspace: workspace.clone(), folders, index: Arc::default() })
    }

    /// Returns whether this folder has the snapshot `tree` of a thread.
    pub fn has(&self, thread: &str, tree: &str) -> bool {
        self.tree(thread, tree).is_ok()
    }

    /// Deletes all snapshots of a thread.
    ///
    /// # Errors
    /// An error of the file system; or the thread's folder was replaced by a link.
    pub fn delete(&self, thread: &str) -> io::Result<()> {
        self.folders.delete(thread)?;
        self.sweep()
    }

    /// Deletes the stored files of a thread that belong to none of these trees, and returns their number.
    /// Also deletes the temporary files of interrupted snapshots, so no other process may be writing. A
    /// repeated call completes an interrupted one.
    ///
    /// # Errors
    /// An error of the file system; or one of the trees cannot be read: then nothing is deleted.
    pub fn prune(&self, thread: &str, trees: &BTreeSet<String>) -> Result<usize, SnapshotError> {
        let folder = match self.folders.open(&self.folders.below(thread)) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(failed(error)),
        };
        let mut wanted: BTreeSet<String> = self.note(&folder)?.contents().collect();
        for name in trees {
            wanted.extend(self.tree(thread, name)?.0.into_values().filter_map(Entry::content));
            wanted.insert(format!("{name}.tree"));
        }
        let mut unwanted = Vec::new();
        for entry in fs::read_dir(folder.path()).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (path, name) = (entry.path(), entry.file_name());
            match name.to_str() {
                Some(name) if disk::is_left_over(name) => fs::remove_file(path).map_err(failed)?,
                Some(name) if disk::is_stored_name(name) && !wanted.contains(name) => unwanted.push(path),
                _ => {}
            }
        }
        // Trees before their contents, so that no tree ever lacks its contents.
        unwanted.sort_by_key(|path| path.extension().is_none());
        for path in &unwanted {
            fs::remove_file(path).map_err(failed)?;
        }
        self.sweep().map_err(failed)?;
        Ok(unwanted.len())
    }

    /// Copies the snapshots of the thread `from` to its copy `to`.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn copy(&self, from: &str, to: &str) -> io::Result<()> {
        let from = match self.folders.open(&self.folders.below(from)) {
            Ok(from) => from,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let to = self.make(&self.folders.below(to))?;
        for entry in fs::read_dir(from.path())? {
            let entry = entry?;
            let is_stored_name =
                entry.file_type()?.is_file() && entry.file_name().to_str().is_some_and(disk::is_stored_name);
            if is_stored_name {
                disk::link(&entry.path(), &to.at(entry.file_name()))?;
            }
        }
        Ok(())
    }

    /// Creates and opens a folder.
    fn make(&self, below: &Path) -> io::Result<Folder> {
        self.folders.make(below)?;
        self.folders.open(below)
    }

    /// Deletes the shared contents that no thread uses.
    fn sweep(&self) -> io::Result<()> {
        match self.folders.open(&Path::new(FOLDER).join(SHARED)) {
            Ok(shared) => disk::sweep(shared.path()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Takes a snapshot of the current files; returns its tree's name.
    fn store_now(&self, thread: &str, stop: &CancellationToken) -> Result<String, SnapshotError> {
        let (folder, tree, written) = self.seen_now(thread, stop)?;
        self.store_tree(&folder, &tree, written)
    }

    /// Stores a tree after all of its contents; returns its name.
    fn store_tree(&self, folder: &Folder, tree: &Tree, contents: Written) -> Result<String, SnapshotError> {
        let text = serde_json::to_vec(tree).expect("a tree has a JSON form");
        if text.len() as u64 > MAX_LIST_BYTES {
            let most = MAX_LIST_BYTES >> 20;
            return Err(SnapshotError(format!("the paths of the files take more than {most} MiB")));
        }
        let name = blake3::hash(&text).to_hex().to_string();
        let mut itself = Written::new();
        let file = format!("{name}.tree");
        if !disk::has(folder.path(), &file, text.len() as u64) {
            disk::write(folder.path(), &file, &text, &mut itself).map_err(failed)?;
        }
        if !contents.is_empty() {
            let names: Vec<String> = contents.keys().cloned().collect();
            disk::store(folder.path(), contents).map_err(failed)?;
            let shared = self.folders.open(&Path::new(FOLDER).join(SHARED)).map_err(failed)?;
            disk::share(shared.path(), folder.path(), &names);
        }
        // Also if it exists: its writer may have stopped before the name was on the disk.
        disk::store(folder.path(), itself).map_err(failed)?;
        Ok(name)
    }

    fn tree(&self, thread: &str, name: &str) -> Result<Tree, SnapshotError> {
        let text = self.read(thread, &format!("{name}.tree"))?;
        let wrong = |why: &dyn fmt::Display| SnapshotError(format!("tree `{name}` cannot be read: {why}"));
        let tree: Tree = serde_json::from_slice(&text).map_err(|error| wrong(&error))?;
        // The hash proves that it is whole, not its origin.
        match tree.0.keys().find(|path| !is_below(path)) {
            Some(path) => Err(wrong(&format!("path '{}' is not in the snapshot", one_line(path)))),
            None => Ok(tree),
        }
    }

    /// Reads a stored file by its name.
    fn read(&self, thread: &str, name: &str) -> Result<Vec<u8>, SnapshotError> {
        let lost =
            |error: io::Error| SnapshotError(format!("`{name}` is not stored for this thread: {error}"));
        // Names come from a database that may not be trusted.
        if !disk::is_stored_name(name) {
            return Err(lost(io::ErrorKind::InvalidInput.into()));
        }
        let most = if name.ends_with(".tree") { MAX_LIST_BYTES } else { MAX_BYTES };
        let folder = self.folders.open(&self.folders.below(thread)).map_err(lost)?;
        let content = read_stored(&folder.at(name), most).map_err(lost)?;
        if !disk::is_whole(name, &content) {
            return Err(SnapshotError(format!("`{name}`, which is stored for this thread, is damaged")));
        }
        Ok(content)
    }
}

impl Snapshots for FileSnapshots {
    fn in_folder(&self, folder: &Path) -> io::Result<Option<Arc<dyn Snapshots>>> {
        let (workspace, folders) = (Workspace::open_real(folder)?, self.folders.in_root(folder)?);
        Ok(Some(Arc::new(Self { workspace, folders, index: Arc::default() })))
    }

    fn keep<'a>(&'a self, thread: Option<&'a str>) -> SnapshotFuture<'a, String> {
        let (files, thread) = (self.clone(), thread.unwrap_or_default().to_owned());
        Box::pin(blocking(move |stop| files.store_now(&thread, stop)))
    }

    fn compare<'a>(
        &'a self,
        thread: Option<&'a str>,
        before: &'a str,
        after: &'a str,
    ) -> SnapshotFuture<'a, FileChanges> {
        let (files, thread) = (self.clone(), thread.unwrap_or_default().to_owned());
        let (before, after) = (before.to_owned(), after.to_owned());
        Box::pin(blocking(move |stop| files.compared(&thread, before, after, stop)))
    }
}

/// Runs a task that reads many files off the runtime; it stops when its future is dropped.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce(&CancellationToken) -> Result<T, SnapshotError> + Send + 'static,
) -> Result<T, SnapshotError> {
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let done = tokio::task::spawn_blocking(move || work(&stop)).await;
    done.unwrap_or_else(|_| Err(SnapshotError("keeping the files failed".to_owned())))
}

/// Returns whether a path of a tree is valid: plain, below the root and not reserved, as
/// [`FileSnapshots::path_of`] makes it.
fn is_below(path: &str) -> bool {
    let is_stored_name = |part: &str| {
        let mut parts = Path::new(part).components();
        let is_plain =
            matches!((parts.next(), parts.next()), (Some(Component::Normal(name)), None) if name == part);
        is_plain && !is_reserved(part.as_bytes())
    };
    path.split('/').all(is_stored_name)
}

/// Returns whether an error means that the path does not exist, and not just that it is inaccessible.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn failed(error: io::Error) -> SnapshotError {
    SnapshotError(format!("the files cannot be stored: {error}"))
}

fn not_stored(error: superstep_llm::ToolError) -> SnapshotError {
    SnapshotError(format!("the files cannot be stored: {error}"))
}

#[cfg(test)]
mod tests;
