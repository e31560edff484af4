//! A note of restored files that the thread has not recorded yet, written beside the trees before the first
//! file is replaced.

use std::{collections::BTreeMap, fs, io};

use serde::{Deserialize, Serialize};
use superstep_llm::snapshots::SnapshotError;

use super::{Entry, FileSnapshots, MAX_LIST_BYTES, Tree, disk, failed, is_below, restore::Step};
use crate::folders::{held::Folder, locks::keep_names, stored::read_stored};

// A comparison of the folder with the first tree would need no note, but would count the user's later changes as the
// revert's.
/// The name of the file in the folder of the thread.
const NAME: &str = "revert.json";

/// The files of a restore in progress. A promise: it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note(pub(super) BTreeMap<String, EntryChange>);

/// The entry at a path, before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EntryChange {
    pub(super) was: Option<Entry>,
    pub(super) becomes: Option<Entry>,
}

impl Note {
    /// Removes entries that were not restored or were undone since; the rest has in `tree` its later state.
    pub(super) fn apply(&mut self, tree: &mut Tree) {
        self.0.retain(|path, turned| tree.at(path) == turned.becomes);
        for (path, turned) in &self.0 {
            match &turned.was {
                Some(entry) => tree.0.insert(path.clone(), entry.clone()),
                None => tree.0.remove(path),
            };
        }
    }

    /// Adds planned changes. Of several changes of a file, the state before the first one is retained.
    pub(super) fn add(&mut self, steps: &[Step]) {
        for step in steps {
            let was = self.0.remove(&step.path).map_or_else(|| step.now.clone(), |turned| turned.was);
            self.0.insert(step.path.clone(), EntryChange { was, becomes: step.wanted.clone() });
        }
    }

    /// Returns the contents that are needed to undo the changes.
    pub(super) fn contents(self) -> impl Iterator<Item = String> {
        self.0.into_values().filter_map(|turned| turned.was).filter_map(Entry::content)
    }
}

impl FileSnapshots {
    /// Marks the changes that [`restore`](Self::restore) returned as recorded; until then, the next call
    /// returns them as well.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn recorded(&self, thread: &str) -> io::Result<()> {
        let folder = match self.folders.open(&self.folders.below(thread)) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        match fs::remove_file(folder.at(NAME)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => keep_names(folder.path()),
        }
    }

    /// Reads the note of restored files that are not recorded yet.
    pub(super) fn note(&self, folder: &Folder) -> Result<Note, SnapshotError> {
        let text = match read_stored(&folder.at(NAME), MAX_LIST_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Note::default()),
            Err(error) => return Err(failed(error)),
        };
        let path = folder.real().join(NAME);
        let wrong =
            |why: &str| SnapshotError(format!("`{}` cannot be read: {why}; delete it", path.display()));
        let note: Note = serde_json::from_slice(&text).map_err(|error| wrong(&error.to_string()))?;
        if note.0.keys().all(|path| is_below(path)) { Ok(note) } else { Err(wrong("it leads elsewhere")) }
    }

    pub(super) fn store_note(&self, folder: &Folder, note: &Note) -> Result<(), SnapshotError> {
        let text = serde_json::to_vec(note).expect("a note has a JSON form");
        disk::replace(folder.path(), NAME, &text).map_err(failed)
    }
}
