//! A walk through a workspace that respects `.gitignore`, in the order of the paths.

use std::{
    ffi::OsString,
    fs, io,
    io::Read,
    path::{Path, PathBuf},
    vec,
};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use superstep_llm::ToolError;
use tokio_util::sync::CancellationToken;

use super::{
    Workspace,
    root::{Found, is_reserved},
};
use crate::call::check_stop;

/// Name of the file with ignore patterns.
pub(crate) const GITIGNORE: &str = ".gitignore";

/// Maximum size of a `.gitignore`, far above hand-written ones.
const MAX_GITIGNORE_BYTES: u64 = 1 << 20;

/// Longer lines are skipped: parsing nested patterns uses the stack.
const MAX_LINE_BYTES: usize = 4 << 10;

/// Something that is not a directory.
pub(crate) struct Item {
    pub(crate) real: PathBuf,
    pub(crate) is_link: bool,
}

/// Walks a directory depth first, in the order of names; links are reported and never followed.
///
/// The `ignore` crate's own walker is not used: it opens every ignore file it meets, also one that is a FIFO or a
/// link out of the root, and it looks for more of them above the root.
pub(crate) struct Walk<'a> {
    workspace: &'a Workspace,
    stop: &'a CancellationToken,
    /// The rules of the directories above the start.
    above: Vec<Gitignore>,
    levels: Vec<Level>,
    /// The directories that could not be read.
    pub(crate) unreadable: Vec<PathBuf>,
    /// Each `.gitignore` whose rules were applied, including those that ignore themselves.
    pub(crate) followed: Vec<PathBuf>,
}

struct Level {
    entries: vec::IntoIter<Entry>,
    rules: Option<Gitignore>,
}

struct Entry {
    name: OsString,
    real: PathBuf,
    kind: fs::FileType,
}

impl<'a> Walk<'a> {
    /// Starts a walk at the directory `start`. An ignored directory is walked if named explicitly.
    pub(crate) fn new(
        workspace: &'a Workspace,
        start: &Found,
        stop: &'a CancellationToken,
    ) -> Result<Self, ToolError> {
        let mut walk = Self {
            workspace,
            stop,
            above: Vec::new(),
            levels: Vec::new(),
            unreadable: Vec::new(),
            followed: Vec::new(),
        };
        let above: Vec<&Path> =
            start.real.ancestors().skip(1).take_while(|dir| dir.starts_with(workspace.root())).collect();
        for dir in above.into_iter().rev() {
            walk.above.extend(walk.rules_of(dir)?);
        }
        let level = walk.read(&start.real)?;
        walk.levels.push(level.map_err(|error| {
            ToolError::Failed(format!("path '{}' cannot be listed: {error}", start.shown))
        })?);
        Ok(walk)
    }

    /// Returns the next file, link or other entry that is not a directory.
    pub(crate) fn next(&mut self) -> Result<Option<Item>, ToolError> {
        loop {
            check_stop(self.stop)?;
            let Some(level) = self.levels.last_mut() else {
                return Ok(None);
            };
            let Some(entry) = level.entries.next() else {
                self.levels.pop();
                continue;
            };
            if self.is_ignored(&entry) {
                continue;
            }
            if entry.kind.is_dir() {
                match self.read(&entry.real)? {
                    Ok(level) => self.levels.push(level),
                    Err(_) => self.unreadable.push(entry.real),
                }
            } else {
                return Ok(Some(Item { real: entry.real, is_link: entry.kind.is_symlink() }));
            }
        }
    }

    fn is_ignored(&self, entry: &Entry) -> bool {
        let rules = self.above.iter().chain(self.levels.iter().filter_map(|level| level.rules.as_ref()));
        // The nearest rule decides.
        rules
            .rev()
            .map(|rules| rules.matched(&entry.real, entry.kind.is_dir()))
            .find(|verdict| !verdict.is_none())
            .is_some_and(|verdict| verdict.is_ignore())
    }

    fn read(&mut self, dir: &Path) -> Result<io::Result<Level>, ToolError> {
        let entries = match self.entries(dir) {
            Ok(entries) => entries,
            Err(error) => return Ok(Err(error)),
        };
        let has_rules = entries.iter().any(|entry| entry.name == GITIGNORE);
        let rules = if has_rules { self.rules_of(dir)? } else { None };
        self.followed.extend(rules.is_some().then(|| dir.join(GITIGNORE)));
        Ok(Ok(Level { entries: entries.into_iter(), rules }))
    }

    fn entries(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let folder = self.workspace.folder(dir)?;
        for entry in fs::read_dir(folder.path())? {
            let entry = entry?;
            let name = entry.file_name();
            if !is_reserved(name.as_encoded_bytes()) {
                entries.push(Entry { real: dir.join(&name), kind: entry.file_type()?, name });
            }
        }
        // A link that replaced the directory would have revealed names from elsewhere.
        folder.check()?;
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Returns the rules of the `.gitignore` in `dir`, if it is a regular file, as git requires.
    fn rules_of(&self, dir: &Path) -> Result<Option<Gitignore>, ToolError> {
        let real = dir.join(GITIGNORE);
        let shown = self.workspace.show(&real);
        let Ok((file, _)) = self.workspace.open_file(&Found { real, shown: shown.clone() }) else {
            return Ok(None);
        };
        let unusable =
            |why: &dyn std::fmt::Display| ToolError::Failed(format!("path '{shown}' cannot be used: {why}"));
        let mut bytes = Vec::new();
        file.take(MAX_GITIGNORE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unusable(&error))?;
        if bytes.len() as u64 > MAX_GITIGNORE_BYTES {
            return Err(unusable(&"it is larger than 1 MiB"));
        }
        rules(dir, &bytes).map(Some).map_err(|error| unusable(&error))
    }
}

/// Parses the rules of a `.gitignore` with this content in `dir`.
pub(crate) fn rules(dir: &Path, content: &[u8]) -> Result<Gitignore, ignore::Error> {
    let mut builder = GitignoreBuilder::new(dir);
    let text = String::from_utf8_lossy(content);
    let lines = text.trim_start_matches('\u{feff}').lines();
    for line in lines.filter(|line| line.len() <= MAX_LINE_BYTES) {
        // An invalid pattern matches nothing, as in git.
        let _ = builder.add_line(None, line);
    }
    builder.build()
}
