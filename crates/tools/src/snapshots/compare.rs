//! Comparison of two trees.

use std::{collections::BTreeSet, time::Duration};

use similar::TextDiff;
use superstep_llm::snapshots::{FileChange, FileChangeKind, FileChanges, SnapshotError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Entry, FileSnapshots, Tree, not_stored};
use crate::{
    call::{check_stop, cut, is_binary},
    text::TextForm,
};

/// Maximum number of listed changes.
const MAX_CHANGES: usize = 100;
/// Maximum size of all diffs together.
const MAX_DIFF_BYTES: usize = 16 << 10;
/// Maximum size of a file that is compared line by line.
const MAX_TEXT_BYTES: usize = 256 << 10;
/// Time after which a diff, or all of them, need not be minimal.
const LONG_ENOUGH: Duration = Duration::from_millis(200);
const ALL_LONG_ENOUGH: Duration = Duration::from_secs(1);

impl FileSnapshots {
    pub(super) fn compared(
        &self,
        thread: &str,
        before: String,
        after: String,
        stop: &CancellationToken,
    ) -> Result<FileChanges, SnapshotError> {
        if before == after {
            return Ok(FileChanges { before, after, ..FileChanges::default() });
        }
        let (old, new) = (self.tree(thread, &before)?, self.tree(thread, &after)?);
        let differ = old.changed(&new);
        let end = Instant::now() + ALL_LONG_ENOUGH;
        let mut room = MAX_DIFF_BYTES;
        let mut changes = Vec::new();
        for path in differ.iter().take(MAX_CHANGES) {
            let (was, is) = (old.0.get(*path), new.0.get(*path));
            let kind = match (was, is) {
                (None, _) => FileChangeKind::Made,
                (_, None) => FileChangeKind::Removed,
                _ => FileChangeKind::Changed,
            };
            check_stop(stop).map_err(not_stored)?;
            // Files whose lines are not reported are not read.
            let diff = if room == 0 {
                String::new()
            } else {
                let most = LONG_ENOUGH.min(end.saturating_duration_since(Instant::now()));
                match diff(&self.text(thread, was)?, &self.text(thread, is)?, most) {
                    whole if whole.len() <= room => {
                        room -= whole.len();
                        whole
                    }
                    long => {
                        let room = std::mem::take(&mut room);
                        cut(&long, room).rsplit_once('\n').map_or("", |(lines, _)| lines).to_owned()
                    }
                }
            };
            changes.push(FileChange { path: (*path).clone(), kind, diff });
        }
        let more = differ.len() - changes.len();
        Ok(FileChanges { before, after, changes, more })
    }

    /// Returns the text of a file; `None` if it is not text, or too long.
    fn text(&self, thread: &str, entry: Option<&Entry>) -> Result<Option<String>, SnapshotError> {
        match entry {
            None => Ok(Some(String::new())),
            Some(Entry::Unknown) => Ok(None),
            Some(Entry::Link(target)) => Ok(Some(format!("-> {target}\n"))),
            Some(Entry::File(hash) | Entry::Program(hash) | Entry::Rules(hash)) => {
                let content = self.read(thread, hash)?;
                if content.len() > MAX_TEXT_BYTES {
                    return Ok(None);
                }
                let (text, is_lossy) = TextForm::of(&content).decode(&content);
                Ok(Some(text.into_owned()).filter(|text| !is_lossy && !is_binary(text.as_bytes())))
            }
        }
    }
}

impl Tree {
    /// Returns the paths whose entry differs in `later`, sorted, without unknown entries and those ignored in
    /// both.
    pub(super) fn changed<'a>(&'a self, later: &'a Self) -> Vec<&'a String> {
        let paths: BTreeSet<&String> = self.0.keys().chain(later.0.keys()).collect();
        let differs = |path: &&String| {
            let is_seen = [self, later].iter().any(|tree| match tree.0.get(*path) {
                None | Some(Entry::Rules(_)) => false,
                Some(_) => true,
            });
            is_seen && self.at(path) != later.at(path) && !self.is_unknown(path) && !later.is_unknown(path)
        };
        paths.into_iter().filter(differs).collect()
    }

    /// Returns the paths that are unknown in one of two trees only.
    pub(super) fn unclear<'a>(&'a self, later: &'a Self) -> impl Iterator<Item = &'a String> {
        let only = |one: &'a Self, other: &'a Self| {
            let unknown = one.0.iter().filter(|(_, entry)| **entry == Entry::Unknown).map(|(path, _)| path);
            unknown.filter(|path| !other.is_unknown(path))
        };
        only(self, later).chain(only(later, self))
    }

    /// Returns the entry at a path, ignored or not.
    pub(super) fn at(&self, path: &str) -> Option<Entry> {
        match self.0.get(path)? {
            Entry::Rules(hash) => Some(Entry::File(hash.clone())),
            entry => Some(entry.clone()),
        }
    }

    /// Returns whether the entry at a path, or a folder above it, could not be read.
    fn is_unknown(&self, path: &str) -> bool {
        let folders = path.match_indices('/').map(|(end, _)| &path[..end]);
        folders.chain([path]).any(|path| self.0.get(path) == Some(&Entry::Unknown))
    }
}

fn diff(old: &Option<String>, new: &Option<String>, most: Duration) -> String {
    let (Some(old), Some(new)) = (old, new) else { return String::new() };
    let diff = TextDiff::configure().timeout(most).diff_lines(old, new);
    diff.unified_diff().context_radius(1).missing_newline_hint(false).to_string()
}
