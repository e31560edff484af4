//! Reading the files of a workspace for a snapshot.
//!
//! Start at [`FileSnapshots::seen_now`].

use std::{collections::BTreeSet, fs, io::Read, path::Path};

use superstep_llm::snapshots::SnapshotError;
use tokio_util::sync::CancellationToken;

use super::{
    Entry, FOLDER, FileSnapshots, MAX_BYTES, MAX_FILES, MAX_KEPT_BYTES, Tree,
    disk::{self, SHARED, Written},
    failed,
    index::{self, FileStamp},
    is_nothing, not_stored,
};
use crate::{
    folders::held::{Folder, is_swapped},
    workspace::{
        root::Found,
        walk::{GITIGNORE, Walk},
    },
};

/// The prefix of a content's hash in the index; no path begins with it.
const CONTENT: char = '/';

impl FileSnapshots {
    /// Reads the current files and writes the contents that were not stored before.
    pub(super) fn seen_now(
        &self,
        thread: &str,
        stop: &CancellationToken,
    ) -> Result<(Folder, Tree, Written), SnapshotError> {
        let folder = self.make(&self.folders.below(thread)).map_err(failed)?;
        let shared = self.make(&Path::new(FOLDER).join(SHARED)).map_err(failed)?;
        let all = self.folders.open(Path::new(FOLDER)).map_err(failed)?;
        let moment = index::now(all.path()).map_err(failed)?;
        let start = self.workspace.find(".").map_err(not_stored)?;
        let mut walk = Walk::new(&self.workspace, &start, stop).map_err(not_stored)?;
        let mut capture = Capture {
            files: self,
            folder: &folder,
            shared: &shared,
            all: &all,
            open: None,
            tree: Tree::default(),
            bytes: 0,
            new_bytes: 0,
            space: None,
            written: Written::new(),
            stamps: Vec::new(),
        };
        let mut listed = BTreeSet::new();
        while let Some(item) = walk.next().map_err(not_stored)? {
            let Some(path) = self.path_of(&item.real) else { continue };
            if capture.add(&item.real, path.clone(), true)? && item.real.ends_with(GITIGNORE) {
                listed.insert(path);
            }
        }
        for real in &walk.followed {
            let Some(path) = self.path_of(real).filter(|path| !listed.contains(path)) else { continue };
            capture.add(real, path, false)?;
        }
        let Capture { mut tree, written, stamps, .. } = capture;
        let unread = walk.unreadable.iter().filter_map(|dir| self.path_of(dir));
        tree.0.extend(unread.map(|path| (path, Entry::Unknown)));
        // Without the index, files are read again.
        let contents: BTreeSet<&String> = tree.0.values().filter_map(Entry::hash).collect();
        let is_there = |path: &str| match path.strip_prefix(CONTENT) {
            Some(hash) => contents.contains(&hash.to_owned()),
            None => tree.0.contains_key(path),
        };
        let _ = self.index.store(all.path(), stamps, moment, is_there);
        self.workspace.clear_leftovers(&walk.leftovers);
        Ok((folder, tree, written))
    }

    /// Returns a path in the form of trees; `None` if it is not UTF-8.
    pub(super) fn path_of(&self, real: &Path) -> Option<String> {
        let below = real.strip_prefix(self.workspace.root()).ok()?;
        let names: Option<Vec<&str>> = below.components().map(|name| name.as_os_str().to_str()).collect();
        Some(names?.join("/"))
    }

    /// Does the same as [`read_entry`](Self::read_entry), but omits the content of a file whose metadata is unchanged.
    /// Its folder stays open for the following files.
    fn glance(
        &self,
        all: &Path,
        open: &mut Option<Folder>,
        real: &Path,
        path: &str,
    ) -> Result<Option<ReadEntry>, SnapshotError> {
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else { return Ok(None) };
        if open.as_ref().is_none_or(|open| open.real() != parent) {
            *open = self.workspace.folder(parent).ok();
        }
        let metadata = open.as_ref().and_then(|open| fs::symlink_metadata(open.at(name)).ok());
        let known = metadata.as_ref().filter(|metadata| metadata.is_file()).and_then(FileStamp::of);
        match (metadata, known.and_then(|look| self.index.hash(all, path, &look))) {
            (Some(metadata), Some(hash)) => Ok(Some(ReadEntry::file(hash, &metadata, None))),
            _ => self.read_entry(real),
        }
    }

    /// Reads the current entry at a path; `None` if it cannot be stored.
    pub(super) fn read_entry(&self, real: &Path) -> Result<Option<ReadEntry>, SnapshotError> {
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else { return Ok(None) };
        let folder = match self.workspace.folder(parent) {
            Ok(folder) => folder,
            // Nothing is read through a link in the path.
            Err(error) if is_nothing(&error) || is_swapped(&error) => return Ok(None),
            Err(_) => return Ok(Some(ReadEntry::of(Entry::Unknown))),
        };
        let metadata = match fs::symlink_metadata(folder.at(name)) {
            Ok(metadata) => metadata,
            Err(error) if is_nothing(&error) => return Ok(None),
            Err(_) => return Ok(Some(ReadEntry::of(Entry::Unknown))),
        };
        if metadata.is_symlink() {
            let target =
                fs::read_link(folder.at(name)).ok().and_then(|target| target.to_str().map(str::to_owned));
            return Ok(Some(ReadEntry::of(target.map_or(Entry::Unknown, Entry::Link))));
        }
        if !metadata.is_file() {
            return Ok(None);
        }
        let found = Found { real: real.to_owned(), shown: self.workspace.show(real) };
        // It may be unreadable, or is being replaced at this moment.
        let Ok((mut file, metadata)) = self.workspace.open_file(&found) else {
            return Ok(Some(ReadEntry::of(Entry::Unknown)));
        };
        if metadata.len() > MAX_BYTES {
            return Err(SnapshotError(format!(
                "file '{}' is larger than {} MiB",
                found.shown,
                MAX_BYTES >> 20
            )));
        }
        let mut content = Vec::new();
        if file.by_ref().take(MAX_BYTES).read_to_end(&mut content).is_err() {
            return Ok(Some(ReadEntry::of(Entry::Unknown)));
        }
        let hash = blake3::hash(&content).to_hex().to_string();
        Ok(Some(ReadEntry::file(hash, &metadata, Some(content))))
    }
}

/// A snapshot that is being taken.
struct Capture<'a> {
    files: &'a FileSnapshots,
    /// The thread's folder.
    folder: &'a Folder,
    /// The contents that threads share.
    shared: &'a Folder,
    /// The folder of all threads, with the index.
    all: &'a Folder,
    /// The folder of the last file, which stays open.
    open: Option<Folder>,
    tree: Tree,
    bytes: u64,
    /// The size of the contents that are not stored yet.
    new_bytes: u64,
    /// The space for new contents at the start, once it is known.
    space: Option<u64>,
    written: Written,
    /// The metadata of the files that were read, and their hashes.
    stamps: Vec<(String, FileStamp, String)>,
}

impl Capture<'_> {
    /// Adds the entry at a path; returns whether there is one. An entry that is not listed is added only if it
    /// is a file, as rules of the list.
    fn add(&mut self, real: &Path, path: String, is_listed: bool) -> Result<bool, SnapshotError> {
        let Some(ReadEntry { entry, content, length, stamp }) = self.read(real, &path)? else {
            return Ok(false);
        };
        if let Some(hash) = entry.hash() {
            self.bytes += length;
            if self.bytes > MAX_BYTES {
                let most = MAX_BYTES >> 20;
                return Err(SnapshotError(format!("there are more than {most} MiB of files")));
            }
            if let Some(content) = &content {
                self.write(hash, content, length)?;
                self.stamps.extend(stamp.map(|stamp| (path.clone(), stamp, hash.to_owned())));
            }
        }
        let entry = match entry {
            Entry::File(hash) | Entry::Program(hash) if !is_listed => Entry::Rules(hash),
            _ if !is_listed => return Ok(false),
            entry => entry,
        };
        self.tree.0.insert(path, entry);
        if self.tree.0.len() > MAX_FILES {
            return Err(SnapshotError(format!("there are more than {MAX_FILES} files")));
        }
        Ok(true)
    }

    /// Reads the entry at a path, without its content if that is unchanged and stored.
    fn read(&mut self, real: &Path, path: &str) -> Result<Option<ReadEntry>, SnapshotError> {
        let Some(seen) = self.files.glance(self.all.path(), &mut self.open, real, path)? else {
            return Ok(None);
        };
        if let (Some(hash), None) = (seen.entry.hash(), &seen.content)
            && !self.has(hash, seen.length)
            && let Some(again) = self.files.read_entry(real)?
        {
            return Ok(Some(again));
        }
        Ok(Some(seen))
    }

    /// Returns whether the thread has a content, linking it from the shared folder if needed. A content is read once, and again
    /// if its metadata changed.
    fn has(&mut self, hash: &str, length: u64) -> bool {
        let key = format!("{CONTENT}{hash}");
        let own = self.folder.at(hash);
        let stamp =
            || fs::symlink_metadata(&own).ok().filter(fs::Metadata::is_file).as_ref().and_then(FileStamp::of);
        let is_known =
            |stamp| self.files.index.hash(self.all.path(), &key, &stamp).is_some_and(|known| known == hash);
        if stamp().is_some_and(is_known) {
            return true;
        }
        let is_there = disk::has(self.folder.path(), hash, length)
            || disk::has(self.shared.path(), hash, length)
                && disk::replace_by_link(&self.shared.at(hash), &own).is_ok();
        if is_there {
            self.stamps.extend(stamp().map(|stamp| (key, stamp, hash.to_owned())));
        }
        is_there
    }

    /// Writes a content that is not stored yet.
    fn write(&mut self, hash: &str, content: &[u8], length: u64) -> Result<(), SnapshotError> {
        if self.written.contains_key(hash) || self.has(hash, length) {
            return Ok(());
        }
        self.new_bytes += length;
        let space = match self.space {
            Some(space) => space,
            None => {
                let size = disk::size(self.shared.path()).map_err(failed)?;
                *self.space.insert(MAX_KEPT_BYTES.saturating_sub(size))
            }
        };
        if self.new_bytes > space {
            return Err(SnapshotError(format!(
                "the stored files of all threads would take more than {} MiB; delete or prune threads",
                MAX_KEPT_BYTES >> 20
            )));
        }
        disk::write(self.folder.path(), hash, content, &mut self.written).map_err(failed)
    }
}

/// An entry as read from the disk.
pub(super) struct ReadEntry {
    pub(super) entry: Entry,
    /// The content of the file, if it was read.
    content: Option<Vec<u8>>,
    length: u64,
    /// The file's metadata before it was read.
    stamp: Option<FileStamp>,
}

impl ReadEntry {
    fn of(entry: Entry) -> Self {
        Self { entry, content: None, length: 0, stamp: None }
    }

    fn file(hash: String, metadata: &fs::Metadata, content: Option<Vec<u8>>) -> Self {
        let entry = if is_program(metadata) { Entry::Program(hash) } else { Entry::File(hash) };
        let length = content.as_ref().map_or(metadata.len(), |content| content.len() as u64);
        Self { entry, content, length, stamp: FileStamp::of(metadata) }
    }
}

#[cfg(unix)]
pub(super) fn is_program(metadata: &fs::Metadata) -> bool {
    std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o100 != 0
}

#[cfg(not(unix))]
pub(super) fn is_program(_: &fs::Metadata) -> bool {
    false
}
