//! Restoring files.

use std::{
    collections::{BTreeMap, btree_map},
    fmt, fs, io,
    io::Write,
    path::{Path, PathBuf},
};

use superstep_llm::snapshots::{FileChanges, SnapshotError};
use tokio_util::sync::CancellationToken;

use super::{Entry, FileSnapshots, capture::is_program, is_nothing};
use crate::workspace::{
    root::PREFIX,
    store::make_directories,
    walk::{GITIGNORE, MAX_APPLIED, MAX_RULES, Rules, RulesSize},
};

/// The reason why files were not restored.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// These files were changed by someone else since the last snapshot. Nothing was done.
    #[error("changed by another program since: {}", .0.join(", "))]
    Changed(Vec<String>),
    /// The current content cannot be read, so overwriting it could lose data. Nothing was done.
    #[error("path '{0}' cannot be read, so it is not replaced; nothing was done")]
    Unreadable(String),
    /// The snapshots of the rounds are not stored, or a file cannot be written. The files restored so far are whole;
    /// repeat the call to continue.
    #[error(transparent)]
    Failed(#[from] SnapshotError),
}

superstep_llm::debug_by_chain!(RestoreError);

/// The outcome of [`FileSnapshots::restore`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The changes that were made.
    pub changes: FileChanges,
    /// The paths that could not be restored, each with the reason. They were left alone.
    pub left: BTreeMap<String, String>,
}

/// A planned restore.
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    left: BTreeMap<String, String>,
}

/// A file to be restored.
pub(super) struct Step {
    pub(super) path: String,
    /// The entry found when the restore was planned.
    pub(super) now: Option<Entry>,
    pub(super) wanted: Option<Entry>,
    content: Vec<u8>,
}

/// The changes of rounds to one file.
struct FileRestore {
    /// The entry before the first round that changed it.
    found: Option<Entry>,
    /// The entry after the last round that changed it.
    left: Option<Entry>,
    /// The first round's ignore rules exclude it.
    was_ignored: bool,
    /// Someone else changed it in between.
    is_foreign: bool,
}

impl FileSnapshots {
    /// Reverts these rounds, given in their order, and returns the changes, and the files that could not be restored. Each file that one of them
    /// changed is restored to its state before the first of them. Other files and files ignored then are left
    /// alone.
    ///
    /// A file counts as changed by someone else if it is neither what the last round left nor what it is to
    /// become, or if a later round found it different from what an earlier one left. In that case nothing is
    /// done unless `overwrite` is set. Each file is restored in one step. A repeated call completes an
    /// interrupted one and returns all of its changes. Call [`recorded`](Self::recorded) after the changes
    /// are stored.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn restore(
        &self,
        thread: &str,
        rounds: &[FileChanges],
        overwrite: bool,
    ) -> Result<Restored, RestoreError> {
        let _turn = self.workspace.edit_turn().map_err(|error| SnapshotError(error.to_string()))?;
        let plan = self.plan(thread, rounds, overwrite)?;
        Ok(Restored { changes: self.take(thread, plan.steps)?, left: plan.left })
    }

    /// Plans the restore and checks that it is allowed.
    pub(super) fn plan(
        &self,
        thread: &str,
        rounds: &[FileChanges],
        overwrite: bool,
    ) -> Result<Plan, RestoreError> {
        let (mut steps, mut foreign) = (Vec::new(), Vec::new());
        let mut left = self.unclear(thread, rounds)?;
        // Not the difference between the first and the last tree, which also has the user's own changes between the
        // rounds.
        for (path, doing) in self.doings(thread, rounds)? {
            let FileRestore { found, left: after, was_ignored, is_foreign } = doing;
            let now = self.now(&path)?;
            if now == found {
                continue;
            }
            if found.is_none() && was_ignored {
                left.insert(
                    path,
                    "`.gitignore` excluded it, so it may have existed, unseen, all along".to_owned(),
                );
                continue;
            }
            if now == Some(Entry::Unknown) {
                return Err(RestoreError::Unreadable(path));
            }
            if !overwrite && (is_foreign || now != after) {
                foreign.push(path.clone());
            }
            let content = match found.as_ref().and_then(Entry::hash) {
                Some(hash) => self.read(thread, hash),
                None => Ok(Vec::new()),
            };
            let content = match content {
                Ok(content) => content,
                Err(error) => {
                    left.insert(path, error.to_string());
                    continue;
                }
            };
            steps.push(Step { path, now, wanted: found, content });
        }
        // Obstacles are removed first: a file may be where a folder was.
        steps.sort_by_key(|step| step.wanted.is_some());
        if foreign.is_empty() { Ok(Plan { steps, left }) } else { Err(RestoreError::Changed(foreign)) }
    }

    /// Returns the paths whose changes in these rounds are unknown, with the reason.
    fn unclear(
        &self,
        thread: &str,
        rounds: &[FileChanges],
    ) -> Result<BTreeMap<String, String>, SnapshotError> {
        let mut unclear = BTreeMap::new();
        for round in rounds.iter().filter(|round| round.before != round.after) {
            let (old, new) = (self.tree(thread, &round.before)?, self.tree(thread, &round.after)?);
            for path in old.unclear(&new) {
                if old.at(path).is_none_or(|was| was == Entry::Unknown) || self.now(path)? != old.at(path) {
                    unclear
                        .insert(path.clone(), "it could not be read when the snapshot was taken".to_owned());
                }
            }
        }
        Ok(unclear)
    }

    /// Executes the plan and returns the changes.
    pub(super) fn take(&self, thread: &str, steps: Vec<Step>) -> Result<FileChanges, RestoreError> {
        let stop = CancellationToken::new();
        let (folder, mut tree, written) = self.seen_now(thread, &stop)?;
        // Unrecorded changes of an earlier attempt are returned with this one.
        let mut note = self.note(&folder)?;
        note.apply(&mut tree);
        note.add(&steps);
        let before = self.store_tree(&folder, &tree, written)?;
        self.store_note(&folder, &note)?;
        for Step { path, now, wanted, content } in steps {
            let failed =
                |why: &dyn fmt::Display| SnapshotError(format!("file '{path}' cannot be restored: {why}"));
            // Taking a snapshot of the current state took time.
            if self.now(&path)? != now {
                return Err(failed(&"it was changed at the same time; inspect it, and try again").into());
            }
            self.put(&path, wanted.as_ref(), &content).map_err(|error| failed(&error))?;
        }
        let after = self.store_now(thread, &stop)?;
        Ok(self.compared(thread, before, after, &stop)?)
    }

    /// Returns the changes of rounds to each file that they changed.
    fn doings(
        &self,
        thread: &str,
        rounds: &[FileChanges],
    ) -> Result<BTreeMap<String, FileRestore>, SnapshotError> {
        let mut doings = BTreeMap::<String, FileRestore>::new();
        for round in rounds.iter().filter(|round| round.before != round.after) {
            let (old, new) = (self.tree(thread, &round.before)?, self.tree(thread, &round.after)?);
            let rules = self.rules(thread, &old.0)?;
            for path in old.changed(&new) {
                let (was, is) = (old.at(path), new.at(path));
                match doings.entry(path.clone()) {
                    btree_map::Entry::Vacant(first) => {
                        let was_ignored = self.is_ignored(&rules, path);
                        first.insert(FileRestore { found: was, left: is, was_ignored, is_foreign: false });
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

    /// Returns the entry at a path; `None` if there is nothing, or nothing that can be stored.
    fn now(&self, path: &str) -> Result<Option<Entry>, SnapshotError> {
        let real = self.workspace.root().join(path);
        match real.parent().map(Path::canonicalize) {
            Some(Ok(there)) if Some(&*there) == real.parent() => {}
            Some(Err(error)) if !is_nothing(&error) => return Ok(Some(Entry::Unknown)),
            // A link in the path leads elsewhere; nothing is read there.
            _ => return Ok(None),
        }
        Ok(self.read_entry(&real)?.map(|seen| seen.entry))
    }

    fn put(&self, path: &str, wanted: Option<&Entry>, content: &[u8]) -> io::Result<()> {
        let root = self.workspace.root();
        let real = root.join(path);
        let (directory, name) = (real.parent().unwrap_or(root), real.file_name().unwrap_or_default());
        let Some(entry) = wanted else {
            fs::remove_file(self.workspace.folder(directory)?.at(name))?;
            // Removes folders that are empty now; others stay.
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

    /// Returns the rules of each `.gitignore` of a tree by its folder.
    fn rules(
        &self,
        thread: &str,
        tree: &BTreeMap<String, Entry>,
    ) -> Result<BTreeMap<PathBuf, Rules>, SnapshotError> {
        let (mut rules, mut size) = (BTreeMap::new(), RulesSize::default());
        for (path, entry) in tree {
            let real = self.workspace.root().join(path);
            let (Some(folder), true) = (real.parent(), real.ends_with(GITIGNORE)) else { continue };
            let (Entry::File(hash) | Entry::Program(hash) | Entry::Rules(hash)) = entry else { continue };
            let content = self.read(thread, hash)?;
            let own = RulesSize::of(&content);
            size = size.plus(own);
            if own.exceeds(MAX_APPLIED) || size.exceeds(MAX_RULES) {
                return Err(SnapshotError(format!(
                    "the `.gitignore` files of the snapshot are too large: one has at most {MAX_APPLIED}, all have {MAX_RULES}"
                )));
            }
            if let Ok(built) = Rules::parse(folder, &content) {
                rules.insert(folder.to_owned(), built);
            }
        }
        Ok(rules)
    }

    /// Returns whether a walk would skip a path, because it or a parent folder is ignored.
    fn is_ignored(&self, rules: &BTreeMap<PathBuf, Rules>, path: &str) -> bool {
        let real = self.workspace.root().join(path);
        let mut way = real.ancestors().take_while(|at| *at != self.workspace.root());
        way.any(|at| {
            // The nearest rule decides.
            at.ancestors()
                .skip(1)
                .filter_map(|folder| rules.get(folder))
                .map(|rules| rules.matched(at, at != real))
                .find(|verdict| !verdict.is_none())
                .is_some_and(|verdict| verdict.is_ignore())
        })
    }
}

/// Returns the permissions of a file with the executable bits set or cleared.
#[cfg(unix)]
fn permissions(there: &fs::Metadata, is_program_then: bool) -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    let mode = there.permissions().mode() & 0o777;
    fs::Permissions::from_mode(match is_program_then {
        same if same == is_program(there) => mode,
        // Executable for everyone who may read it.
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
