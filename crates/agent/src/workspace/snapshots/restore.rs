//! Putting files back.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    io::Write,
    path::Path,
};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use tokio_util::sync::CancellationToken;

use super::{Entry, FileSnapshots};
use crate::{
    FileChanges, SnapshotError,
    workspace::store::{PREFIX, make_directories},
};

/// Why files were not put back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// Somebody else changed these since they were kept last. Nothing was done.
    #[error("changed by somebody else since: {}", .0.join(", "))]
    Changed(Vec<String>),
    /// Something that is needed was not kept, or a file cannot be written. What was done so far are whole files; to go on, do it
    /// again.
    #[error(transparent)]
    Failed(#[from] SnapshotError),
}

impl FileSnapshots {
    /// Puts the files that differ between the trees `from` and `to` back to what they are in `to`, and tells what that changed. The
    /// others are left alone, and so is what is ignored by the rules of `to`.
    ///
    /// A file that now is neither as in `from` nor as in `to` was changed by somebody else: then nothing is done, unless `overwrite`.
    /// Each file is put back in one step; if it is interrupted in between, doing it again does the rest.
    ///
    /// # Errors    [`RestoreError`].
    pub fn restore(
        &self,
        thread: &str,
        from: &str,
        to: &str,
        overwrite: bool,
    ) -> Result<FileChanges, RestoreError> {
        let _turn = self.workspace.edit_turn();
        let stop = CancellationToken::new();
        let (old, new) = (self.tree(thread, from)?.0, self.tree(thread, to)?.0);
        let rules = self.rules(thread, &new)?;
        let paths: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let (mut steps, mut foreign) = (Vec::new(), Vec::new());
        for path in paths.into_iter().filter(|path| old.get(*path) != new.get(*path)) {
            let (was, wanted) = (old.get(path), new.get(path));
            let now = self.now(path)?;
            // What is ignored there may have been there, unseen, all along.
            if now.as_ref() == wanted || wanted.is_none() && self.is_ignored(&rules, path) {
                continue;
            }
            if !overwrite && now.as_ref() != was {
                foreign.push(path.clone());
            }
            let content = match wanted {
                Some(Entry::File(hash) | Entry::Program(hash)) => self.read(thread, hash)?,
                Some(Entry::Link(_)) | None => Vec::new(),
            };
            steps.push((path, wanted, content));
        }
        if !foreign.is_empty() {
            return Err(RestoreError::Changed(foreign));
        }
        let before = self.keep_now(thread, &stop)?;
        // What is in the way goes first: a file may be where a folder was.
        steps.sort_by_key(|(_, wanted, _)| wanted.is_some());
        for (path, wanted, content) in steps {
            let put = self.put(path, wanted, &content);
            put.map_err(|error| SnapshotError(format!("file '{path}' cannot be put back: {error}")))?;
        }
        let after = self.keep_now(thread, &stop)?;
        Ok(self.compared(thread, before, after)?)
    }

    /// What is at a path; `None` if nothing is, or nothing that is kept.
    fn now(&self, path: &str) -> Result<Option<Entry>, SnapshotError> {
        let real = self.workspace.root().join(path);
        // A link in the way leads elsewhere, where nothing is looked at.
        let is_here = real.parent().is_some_and(|dir| dir.canonicalize().is_ok_and(|there| there == dir));
        if !is_here {
            return Ok(None);
        }
        Ok(self.look(&real)?.map(|(entry, _)| entry))
    }

    fn put(&self, path: &str, wanted: Option<&Entry>, content: &[u8]) -> io::Result<()> {
        let root = self.workspace.root();
        let real = root.join(path);
        let directory = real.parent().unwrap_or(root);
        let Some(entry) = wanted else {
            if directory.canonicalize()? != directory {
                return Err(io::Error::other("there is a link in its path"));
            }
            fs::remove_file(&real)?;
            // Folders that are empty now are gone as well; others refuse.
            let above = directory.ancestors().take_while(|dir| *dir != root);
            let _ = above.map(fs::remove_dir).take_while(Result::is_ok).count();
            return Ok(());
        };
        make_directories(&self.workspace, directory).map_err(|error| io::Error::other(error.to_string()))?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX);
        if let Entry::Link(target) = entry {
            let link = builder.make_in(directory, |at| symlink(target.as_ref(), at))?;
            link.into_temp_path().persist(&real)?;
            return Ok(());
        }
        #[cfg(unix)]
        {
            let mode = if matches!(entry, Entry::Program(_)) { 0o777 } else { 0o666 };
            builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
        }
        let mut file = builder.tempfile_in(directory)?;
        file.write_all(content)?;
        file.as_file().sync_all()?;
        file.persist(&real)?;
        Ok(())
    }

    /// The rules of every `.gitignore` of a tree, with the folders that they are about; the deepest first.
    fn rules(
        &self,
        thread: &str,
        tree: &BTreeMap<String, Entry>,
    ) -> Result<Vec<(String, Gitignore)>, SnapshotError> {
        let mut rules = Vec::new();
        for (path, entry) in tree {
            let folder = match path.strip_suffix(".gitignore") {
                Some(folder) if folder.is_empty() || folder.ends_with('/') => folder,
                _ => continue,
            };
            let (Entry::File(hash) | Entry::Program(hash)) = entry else { continue };
            let content = self.read(thread, hash)?;
            let mut builder = GitignoreBuilder::new(self.workspace.root().join(folder));
            for line in String::from_utf8_lossy(&content).lines() {
                // A line that is no pattern matches nothing, for git too.
                let _ = builder.add_line(None, line);
            }
            if let Ok(built) = builder.build() {
                rules.push((folder.to_owned(), built));
            }
        }
        rules.sort_by_key(|(folder, _)| std::cmp::Reverse(folder.len()));
        Ok(rules)
    }

    fn is_ignored(&self, rules: &[(String, Gitignore)], path: &str) -> bool {
        let real = self.workspace.root().join(path);
        let about = rules.iter().filter(|(folder, _)| path.starts_with(folder));
        about
            .map(|(_, rules)| rules.matched_path_or_any_parents(&real, false))
            .find(|verdict| !verdict.is_none())
            .is_some_and(|verdict| verdict.is_ignore())
    }
}

#[cfg(unix)]
fn symlink(target: &Path, at: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, at)
}

#[cfg(not(unix))]
fn symlink(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::Error::other("links are not made on this system"))
}
