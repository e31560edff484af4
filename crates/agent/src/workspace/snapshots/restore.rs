//! Putting files back.

use std::{
    collections::{BTreeMap, btree_map},
    fmt, fs, io,
    io::Write,
    path::{Path, PathBuf},
};

use ignore::gitignore::Gitignore;
use tokio_util::sync::CancellationToken;

use super::{Entry, FileSnapshots, is_nothing, is_program};
use crate::{
    FileChanges, SnapshotError,
    workspace::{
        store::{PREFIX, make_directories},
        walk::{self, GITIGNORE},
    },
};

/// Why files were not put back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// Somebody else changed these since they were kept last. Nothing was done.
    #[error("changed by somebody else since: {}", .0.join(", "))]
    Changed(Vec<String>),
    /// What is here now cannot be read, so that nobody knows what would be lost. Nothing was done.
    #[error("path '{0}' cannot be read, and is not replaced unseen; nothing was done")]
    Unreadable(String),
    /// Something that is needed was not kept, or a file cannot be written. What was done so far are whole files; to go on, do it
    /// again.
    #[error(transparent)]
    Failed(#[from] SnapshotError),
}

/// A file to be put back.
pub(super) struct Step {
    pub(super) path: String,
    /// What was there when it was looked whether that may be done.
    pub(super) now: Option<Entry>,
    pub(super) wanted: Option<Entry>,
    content: Vec<u8>,
}

/// What rounds did to a file.
struct Doing {
    /// What the first of them that changed it found.
    found: Option<Entry>,
    /// What the last of them that changed it left.
    left: Option<Entry>,
    /// Whether the rules that the first one found exclude it.
    was_ignored: bool,
    /// Whether somebody else changed it in between.
    is_foreign: bool,
}

impl FileSnapshots {
    /// Takes back what these rounds did, given in the order in which they were: each file that one of them changed is put back to
    /// what the first one that did so found, and that is told. The others are left alone, and so is what was ignored then.
    ///
    /// A file that now is neither what the last of them left nor what it is to become was changed by somebody else, and so was one
    /// that a later round found otherwise than an earlier one left it: then nothing is done, unless `overwrite`. Each file is put
    /// back in one step; if it is interrupted in between, doing it again does the rest, and tells all of it. Call
    /// [`recorded`](Self::recorded) when what it told is stored.
    ///
    /// # Errors    [`RestoreError`].
    pub fn restore(
        &self,
        thread: &str,
        rounds: &[FileChanges],
        overwrite: bool,
    ) -> Result<FileChanges, RestoreError> {
        let _turn = self.workspace.edit_turn().map_err(|error| SnapshotError(error.to_string()))?;
        let steps = self.steps(thread, rounds, overwrite)?;
        self.take(thread, steps)
    }

    /// What there is to do, if that may be done.
    pub(super) fn steps(
        &self,
        thread: &str,
        rounds: &[FileChanges],
        overwrite: bool,
    ) -> Result<Vec<Step>, RestoreError> {
        let (mut steps, mut foreign) = (Vec::new(), Vec::new());
        for (path, doing) in self.doings(thread, rounds)? {
            let Doing { found, left, was_ignored, is_foreign } = doing;
            let now = self.now(&path)?;
            // What was ignored may have been there, unseen, all along.
            if now == found || found.is_none() && was_ignored {
                continue;
            }
            if now == Some(Entry::Unknown) {
                return Err(RestoreError::Unreadable(path));
            }
            if !overwrite && (is_foreign || now != left) {
                foreign.push(path.clone());
            }
            let content = match &found {
                Some(Entry::File(hash) | Entry::Program(hash) | Entry::Rules(hash)) => {
                    self.read(thread, hash)?
                }
                Some(Entry::Link(_) | Entry::Unknown) | None => Vec::new(),
            };
            steps.push(Step { path, now, wanted: found, content });
        }
        // What is in the way goes first: a file may be where a folder was.
        steps.sort_by_key(|step| step.wanted.is_some());
        if foreign.is_empty() { Ok(steps) } else { Err(RestoreError::Changed(foreign)) }
    }

    /// Does it, and tells what that changed.
    pub(super) fn take(&self, thread: &str, steps: Vec<Step>) -> Result<FileChanges, RestoreError> {
        let stop = CancellationToken::new();
        let (folder, mut tree, written) = self.seen_now(thread, &stop)?;
        // What an earlier try did that nobody was told of is told with this one.
        let mut note = self.note(&folder)?;
        note.apply(&mut tree);
        note.add(&steps);
        let before = self.keep_tree(&folder, &tree, written)?;
        self.keep_note(&folder, &note)?;
        for Step { path, now, wanted, content } in steps {
            let failed =
                |why: &dyn fmt::Display| SnapshotError(format!("file '{path}' cannot be put back: {why}"));
            // Keeping what is there took its time.
            if self.now(&path)? != now {
                return Err(failed(&"it was changed right now; look at it, and do it again").into());
            }
            self.put(&path, wanted.as_ref(), &content).map_err(|error| failed(&error))?;
        }
        let after = self.keep_now(thread, &stop)?;
        Ok(self.compared(thread, before, after, &stop)?)
    }

    /// What rounds did to each file that they changed.
    fn doings(&self, thread: &str, rounds: &[FileChanges]) -> Result<BTreeMap<String, Doing>, SnapshotError> {
        let mut doings = BTreeMap::<String, Doing>::new();
        for round in rounds.iter().filter(|round| round.before != round.after) {
            let (old, new) = (self.tree(thread, &round.before)?, self.tree(thread, &round.after)?);
            let rules = self.rules(thread, &old.0)?;
            for path in old.changed(&new) {
                let (was, is) = (old.at(path), new.at(path));
                match doings.entry(path.clone()) {
                    btree_map::Entry::Vacant(first) => {
                        let was_ignored = self.is_ignored(&rules, path);
                        first.insert(Doing { found: was, left: is, was_ignored, is_foreign: false });
                    }
                    btree_map::Entry::Occupied(mut earlier) => {
                        let doing = earlier.get_mut();
                        doing.is_foreign |= was != doing.left && was != doing.found;
                        doing.left = is;
                    }
                }
            }
        }
        Ok(doings)
    }

    /// What is at a path; `None` if nothing is, or nothing that is kept.
    fn now(&self, path: &str) -> Result<Option<Entry>, SnapshotError> {
        let real = self.workspace.root().join(path);
        match real.parent().map(Path::canonicalize) {
            Some(Ok(there)) if Some(&*there) == real.parent() => {}
            Some(Err(error)) if !is_nothing(&error) => return Ok(Some(Entry::Unknown)),
            // A link in the way leads elsewhere, where nothing is looked at.
            _ => return Ok(None),
        }
        Ok(self.look(&real)?.map(|seen| seen.entry))
    }

    fn put(&self, path: &str, wanted: Option<&Entry>, content: &[u8]) -> io::Result<()> {
        let root = self.workspace.root();
        let real = root.join(path);
        let (directory, name) = (real.parent().unwrap_or(root), real.file_name().unwrap_or_default());
        let Some(entry) = wanted else {
            fs::remove_file(self.workspace.folder(directory)?.at(name))?;
            // Folders that are empty now are gone as well; others refuse.
            for above in directory.ancestors().take_while(|dir| *dir != root) {
                let (Some(parent), Some(name)) = (above.parent(), above.file_name()) else { break };
                let removed =
                    self.workspace.folder(parent).and_then(|parent| fs::remove_dir(parent.at(name)));
                if removed.is_err() {
                    break;
                }
            }
            return Ok(());
        };
        let folder = make_directories(&self.workspace, directory)
            .map_err(|error| io::Error::other(error.to_string()))?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX);
        if let Entry::Link(target) = entry {
            let link = builder.make_in(folder.path(), |at| symlink(target.as_ref(), at))?;
            link.into_temp_path().persist(folder.at(name))?;
            return Ok(());
        }
        let there = fs::symlink_metadata(folder.at(name)).ok().filter(fs::Metadata::is_file);
        #[cfg(unix)]
        {
            let mode = if matches!(entry, Entry::Program(_)) { 0o777 } else { 0o666 };
            builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
        }
        let mut file = builder.tempfile_in(folder.path())?;
        if let Some(there) = there {
            file.as_file().set_permissions(permissions(&there, matches!(entry, Entry::Program(_))))?;
        }
        file.write_all(content)?;
        file.as_file().sync_all()?;
        file.persist(folder.at(name))?;
        Ok(())
    }

    /// The rules of every `.gitignore` of a tree, by the folders that they are about.
    fn rules(
        &self,
        thread: &str,
        tree: &BTreeMap<String, Entry>,
    ) -> Result<BTreeMap<PathBuf, Gitignore>, SnapshotError> {
        let mut rules = BTreeMap::new();
        for (path, entry) in tree {
            let real = self.workspace.root().join(path);
            let (Some(folder), true) = (real.parent(), real.ends_with(GITIGNORE)) else { continue };
            let (Entry::File(hash) | Entry::Program(hash) | Entry::Rules(hash)) = entry else { continue };
            if let Ok(built) = walk::rules(folder, &self.read(thread, hash)?) {
                rules.insert(folder.to_owned(), built);
            }
        }
        Ok(rules)
    }

    /// Whether a walk would not have come to a path: it, or a folder on the way to it, is ignored.
    fn is_ignored(&self, rules: &BTreeMap<PathBuf, Gitignore>, path: &str) -> bool {
        let real = self.workspace.root().join(path);
        let mut way = real.ancestors().take_while(|at| *at != self.workspace.root());
        way.any(|at| {
            // The rule nearest to it has the last word.
            at.ancestors()
                .skip(1)
                .filter_map(|folder| rules.get(folder))
                .map(|rules| rules.matched(at, at != real))
                .find(|verdict| !verdict.is_none())
                .is_some_and(|verdict| verdict.is_ignore())
        })
    }
}

/// Those of a file, but that it may be executed, or not.
#[cfg(unix)]
fn permissions(there: &fs::Metadata, is_program_then: bool) -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    let mode = there.permissions().mode() & 0o777;
    fs::Permissions::from_mode(match is_program_then {
        same if same == is_program(there) => mode,
        // Whoever may read it may execute it.
        true => mode | (mode & 0o444) >> 2,
        false => mode & !0o111,
    })
}

#[cfg(not(unix))]
fn permissions(there: &fs::Metadata, _: bool) -> fs::Permissions {
    there.permissions()
}

#[cfg(unix)]
fn symlink(target: &Path, at: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, at)
}

#[cfg(not(unix))]
fn symlink(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::Error::other("links are not made on this system"))
}
