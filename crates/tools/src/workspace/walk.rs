//! A walk through a workspace that respects `.gitignore`, in the order of the paths.

use std::{
    ffi::OsString,
    fmt, fs, io,
    io::Read,
    path::{Path, PathBuf},
    vec,
};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder, Glob},
};
use superstep_llm::ToolError;
use tokio_util::sync::CancellationToken;

use super::{
    Workspace,
    omitted::Names,
    root::{Found, is_leftover, is_reserved},
};
use crate::call::{check_stop, grouped};

/// Name of the file with ignore patterns.
pub(crate) const GITIGNORE: &str = ".gitignore";

/// Limits of the `.gitignore` files that apply to one folder: those in it and above it, which are in memory at the same time. They are far
/// above hand-written ones: compiling 1 MiB of patterns can take 200 MB for a moment.
pub(crate) const MAX_APPLIED: RulesSize = RulesSize { bytes: 256 << 10, patterns: 10_000 };

// More is an error: without the patterns, the model would see, and snapshots would store, files that the user
// excludes.
/// Limits of all `.gitignore` files of a walk or a tree.
pub(crate) const MAX_RULES: RulesSize = RulesSize { bytes: 4 << 20, patterns: 100_000 };

/// Longer lines are skipped: parsing nested patterns uses the stack.
const MAX_LINE_BYTES: usize = 4 << 10;

// Not `ignore::WalkBuilder`, which opens a `.gitignore` that is a pipe or a link, searches above the root, and enters
// a folder that became a link. On 19,801 files (debug build, Linux) a snapshot of unchanged files takes 112,000
// system calls and 1.7 to 7 s here, 21,000 calls and 1.3 to 2.4 s with that walker and the same index.
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
    above: Vec<Rules>,
    levels: Vec<Level>,
    /// The size of all rules that were read.
    read: RulesSize,
    /// The directories that could not be read.
    pub(crate) unreadable: Vec<PathBuf>,
    /// The files and directories that rules exclude.
    pub(crate) ignored: Names,
    /// The temporary files of edits, which a killed process may have left.
    pub(crate) leftovers: Vec<PathBuf>,
    /// Each `.gitignore` whose rules were applied, including those that ignore themselves.
    pub(crate) followed: Vec<PathBuf>,
}

struct Level {
    entries: vec::IntoIter<Entry>,
    rules: Option<Rules>,
}

/// The rules of a `.gitignore`.
pub(crate) struct Rules {
    matcher: Gitignore,
    size: RulesSize,
}

/// The size of `.gitignore` files.
#[derive(Clone, Copy, Default)]
pub(crate) struct RulesSize {
    bytes: u64,
    patterns: u64,
}

impl Rules {
    /// Parses the rules of a `.gitignore` with this content in `dir`.
    pub(crate) fn parse(dir: &Path, content: &[u8]) -> Result<Self, ignore::Error> {
        let mut builder = GitignoreBuilder::new(dir);
        let text = String::from_utf8_lossy(content);
        let lines = text.trim_start_matches('\u{feff}').lines();
        for line in lines.filter(|line| line.len() <= MAX_LINE_BYTES) {
            // An invalid pattern matches nothing, as in git.
            let _ = builder.add_line(None, &translated(line));
        }
        Ok(Self { matcher: builder.build()?, size: RulesSize::of(content) })
    }

    pub(crate) fn matched(&self, path: &Path, is_dir: bool) -> Match<&Glob> {
        self.matcher.matched(path, is_dir)
    }
}

/// Translates a pattern of git for the matcher, in which braces are alternatives and which does not know the classes of POSIX.
fn translated(pattern: &str) -> String {
    const CLASSES: [(&str, &str); 8] = [
        ("[:alnum:]", "a-zA-Z0-9"),
        ("[:alpha:]", "a-zA-Z"),
        ("[:blank:]", " \t"),
        ("[:digit:]", "0-9"),
        ("[:lower:]", "a-z"),
        ("[:space:]", " \t\r\n\u{b}\u{c}"),
        ("[:upper:]", "A-Z"),
        ("[:xdigit:]", "0-9a-fA-F"),
    ];
    let (mut translated, mut rest, mut in_class) = (String::new(), pattern, false);
    while let Some(char) = rest.chars().next() {
        let class = CLASSES.iter().find(|(class, _)| in_class && rest.starts_with(class));
        let length = match (class, char) {
            (Some((class, range)), _) => {
                translated.push_str(range);
                rest = &rest[class.len()..];
                continue;
            }
            // Together with the escaped character.
            (None, '\\') => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            // Together with a negation, and a bracket that does not end the class.
            (None, '[') if !in_class => {
                in_class = true;
                let behind = rest[1..].trim_start_matches(['!', '^']);
                rest.len() - behind.strip_prefix(']').unwrap_or(behind).len()
            }
            (None, ']') => {
                in_class = false;
                1
            }
            (None, '{' | '}') if !in_class => {
                translated.push('\\');
                1
            }
            (None, char) => char.len_utf8(),
        };
        translated.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    translated
}

impl RulesSize {
    pub(crate) fn of(content: &[u8]) -> Self {
        let lines = content.split(|byte| *byte == b'\n');
        let patterns = lines.filter(|line| !line.trim_ascii().is_empty() && !line.starts_with(b"#")).count();
        Self { bytes: content.len() as u64, patterns: patterns as u64 }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, patterns: self.patterns + other.patterns }
    }

    pub(crate) fn exceeds(self, most: Self) -> bool {
        self.bytes > most.bytes || self.patterns > most.patterns
    }
}

impl fmt::Display for RulesSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB or {} patterns", grouped(self.bytes >> 10), grouped(self.patterns))
    }
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
            read: RulesSize::default(),
            unreadable: Vec::new(),
            ignored: Names::default(),
            leftovers: Vec::new(),
            followed: Vec::new(),
        };
        let above: Vec<&Path> =
            start.real.ancestors().skip(1).take_while(|dir| dir.starts_with(workspace.root())).collect();
        for dir in above.into_iter().rev() {
            let rules = walk.rules_of(dir)?;
            walk.above.extend(rules);
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
                let end = if entry.kind.is_dir() { "/" } else { "" };
                self.ignored.push(self.workspace.show(&entry.real) + end);
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

    /// Describes the directories that cannot be read, and, if nothing else `is_found`, what the rules exclude: the descriptions of the
    /// tools say that they leave it out.
    pub(crate) fn omitted(&self, is_found: bool) -> [Option<String>; 2] {
        let mut unreadable = Names::default();
        self.unreadable.iter().for_each(|dir| unreadable.push(self.workspace.show(dir)));
        let ignored =
            self.ignored.described("entry that .gitignore excludes", "entries that .gitignore excludes");
        let unreadable =
            unreadable.described("directory that cannot be read", "directories that cannot be read");
        [unreadable, ignored.filter(|_| !is_found)]
    }

    fn is_ignored(&self, entry: &Entry) -> bool {
        // The nearest rule decides.
        self.applied()
            .rev()
            .map(|rules| rules.matched(&entry.real, entry.kind.is_dir()))
            .find(|verdict| !verdict.is_none())
            .is_some_and(|verdict| verdict.is_ignore())
    }

    /// Returns the rules that apply to the current folder.
    fn applied(&self) -> impl DoubleEndedIterator<Item = &Rules> {
        self.above.iter().chain(self.levels.iter().filter_map(|level| level.rules.as_ref()))
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

    fn entries(&mut self, dir: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let folder = self.workspace.folder(dir)?;
        for entry in fs::read_dir(folder.path())? {
            let entry = entry?;
            let name = entry.file_name();
            if is_leftover(&name) {
                self.leftovers.push(dir.join(&name));
            } else if !is_reserved(name.as_encoded_bytes()) {
                entries.push(Entry { real: dir.join(&name), kind: entry.file_type()?, name });
            }
        }
        // A link that replaced the directory would have revealed names from elsewhere.
        folder.check()?;
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Returns the rules of the `.gitignore` in `dir`, if it is a regular file, as git requires.
    fn rules_of(&mut self, dir: &Path) -> Result<Option<Rules>, ToolError> {
        let real = dir.join(GITIGNORE);
        let shown = self.workspace.show(&real);
        let Ok((file, _)) = self.workspace.open_file(&Found { real, shown: shown.clone() }) else {
            return Ok(None);
        };
        let unusable =
            |why: &dyn fmt::Display| ToolError::Failed(format!("path '{shown}' cannot be used: {why}"));
        let mut bytes = Vec::new();
        file.take(MAX_APPLIED.bytes + 1).read_to_end(&mut bytes).map_err(|error| unusable(&error))?;
        // Checked before the patterns are compiled, which takes most of the memory and the time.
        let size = RulesSize::of(&bytes);
        let applied = self.applied().fold(size, |sum, rules| sum.plus(rules.size));
        if applied.exceeds(MAX_APPLIED) {
            return Err(unusable(&format_args!("with those above it, it has more than {MAX_APPLIED}")));
        }
        self.read = self.read.plus(size);
        if self.read.exceeds(MAX_RULES) {
            return Err(unusable(&format_args!(
                "with those read before it, it has more than {MAX_RULES}; name a folder with fewer of them"
            )));
        }
        Rules::parse(dir, &bytes).map(Some).map_err(|error| unusable(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_what_it_means_to_git() {
        for (pattern, wanted) in [
            ("{a,b}.txt", r"\{a,b\}.txt"),
            (r"\{a}", r"\{a\}"),
            ("q[[:digit:]].c", "q[0-9].c"),
            ("[^[:alpha:]_{]{", r"[^a-zA-Z_{]\{"),
            ("[]{]", "[]{]"),
            ("é*.rs", "é*.rs"),
        ] {
            assert_eq!(translated(pattern), wanted);
        }
        let rules = Rules::parse(Path::new("/d"), b"{a,b}.txt\nq[[:digit:]].c\n").unwrap();
        let hides = |name: &str| rules.matched(&Path::new("/d").join(name), false).is_ignore();
        let hidden = ["a.txt", "{a,b}.txt", "q1.c", "qa.c"].map(hides);
        assert_eq!(hidden, [false, true, true, false]);
    }
}
