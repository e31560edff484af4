//! The confinement of file tools to one directory.

use std::{
    ffi::OsStr,
    fs::{self, File, Metadata, TryLockError},
    io,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use superstep_llm::{Subject, ToolCx, ToolError};

use crate::{
    call::one_line,
    folders::{
        held::{Folder, Root, is_swapped, leads_elsewhere},
        locks::same_file,
        thread_folders::UNFINISHED,
    },
};

/// Names that tools must not access: git's directory and this program's.
const RESERVED: [&str; 2] = [".git", ".superstep"];

/// Name prefix of temporary files that are about to replace others. No tool sees them; one left by a killed
/// process is removed by the next write into its folder.
pub(crate) const PREFIX: &str = ".superstep-edit-";

/// Name prefix of temporary files that a journal's note refers to. They are removed together with the notes;
/// edits made without a journal have the other prefix.
pub(crate) const NOTED_PREFIX: &str = ".superstep-noted-";

/// Name prefixes of temporary files, which tools must not access either.
const RESERVED_STARTS: [&str; 3] = [PREFIX, NOTED_PREFIX, UNFINISHED];

/// The folder under the root that stores tool results too long for the conversation. Tools may read it.
pub const RESULTS: &str = ".superstep/results";

/// The maximum number of links in one path, as on Linux.
const MAX_LINKS: usize = 40;

/// A directory that file tools do not leave.
///
/// A path is relative to the root or absolute; `..` and symbolic links are allowed as long as their target is
/// below the root. `.git` and `.superstep` are inaccessible at any depth and in any letter case. Cloning is
/// cheap, and tools made from clones serialize their edits.
///
/// On Linux files and folders are opened from the open root by `openat2`, which follows no link. Swapping a
/// path for a link at any moment does not make a tool read or change anything outside.
/// # Limits
/// On other systems, and where `openat2` or `/proc` is missing, the path is checked by name and
/// again on the opened file. A program that swaps a directory of the path for a link and back, twice, at the
/// right moments of one call, is not detected. Hard links cannot be distinguished from files on any system.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// Canonical.
    root: Arc<Path>,
    open: Root,
    edits: Arc<Mutex<()>>,
    /// The call that uses the workspace, if bound to one.
    call: Option<ToolCx>,
}

/// A path from the model, resolved to something below the root.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Canonical.
    pub(crate) real: PathBuf,
    /// Relative to the root with `/` between names, on one line; `.` is the root.
    pub(crate) shown: String,
}

impl Workspace {
    /// Opens `root`, which must exist, as the confining directory.
    ///
    /// # Errors
    /// `root` is missing, unreadable or not a directory.
    pub fn open(root: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        if !root.is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::NotADirectory,
                "the workspace root is not a directory",
            ));
        }
        Ok(Self { open: Root::open(&root)?, root: root.into(), edits: Arc::default(), call: None })
    }

    /// Opens the same, unless the path of `root` contains a link by now.
    pub(crate) fn open_real(root: &Path) -> io::Result<Self> {
        let opened = Self::open(root)?;
        if opened.root() == root { Ok(opened) } else { Err(leads_elsewhere()) }
    }

    /// Returns the directory, without links in its path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Binds the workspace to a call, whose permission rules [`permit`](Self::permit) applies.
    pub(crate) fn of_call(&self, cx: &ToolCx) -> Self {
        Self { call: Some(cx.clone()), ..self.clone() }
    }

    /// Rejects a resolved path if a link leads to a place that it did not lead to when the call was
    /// permitted.
    pub(crate) fn permit(&self, found: Found, whole: bool) -> Result<Found, ToolError> {
        let permits = |call: &ToolCx| call.permits("path", &self.subject_at(&found.real, whole));
        if self.call.as_ref().is_none_or(permits) { Ok(found) } else { Err(replaced(&found.shown)) }
    }

    /// Resolves a path from the model to something that exists.
    ///
    /// Existence is revealed for paths below the root only; outside of it, existing and missing paths give
    /// the same error.
    pub(crate) fn find(&self, given: impl AsRef<Path>) -> Result<Found, ToolError> {
        there(given.as_ref(), self.resolve(given.as_ref(), false)?)
    }

    /// Resolves a path for reading only, which may be inside of [`RESULTS`].
    pub(crate) fn find_to_read(&self, given: impl AsRef<Path>) -> Result<Found, ToolError> {
        there(given.as_ref(), self.resolve(given.as_ref(), true)?)
    }

    /// Resolves a path for writing, and returns whether it exists.
    pub(crate) fn place(&self, given: &Path) -> Result<(Found, bool), ToolError> {
        self.resolve(given, false)
    }

    fn resolve(&self, given: &Path, to_read: bool) -> Result<(Found, bool), ToolError> {
        let joined = self.root.join(given);
        let given = given.display();
        let (real, missing) = match joined.canonicalize() {
            Ok(real) => (real, None),
            Err(error) => (destination(joined), Some(error)),
        };
        let Ok(below) = real.strip_prefix(&self.root) else {
            return Err(ToolError::Denied(format!(
                "path '{given}' is outside the workspace root; use a path below it"
            )));
        };
        let hidden = below.strip_prefix(RESULTS).ok().filter(|_| to_read).unwrap_or(below);
        if hidden.components().any(|part| is_reserved(part.as_os_str().as_encoded_bytes())) {
            return Err(ToolError::Denied(format!(
                "path '{given}' is reserved: `.git` and `.superstep` are out of reach"
            )));
        }
        let shown = self.show(&real);
        match missing.map(|error| (error.kind(), error)) {
            None => Ok((Found { real, shown }, true)),
            Some((io::ErrorKind::NotFound | io::ErrorKind::NotADirectory, _)) => {
                Ok((Found { real, shown }, false))
            }
            Some((_, error)) => Err(ToolError::Failed(format!("path '{given}' cannot be resolved: {error}"))),
        }
    }

    /// Returns the permission subject of a path; `whole` includes everything below it.
    pub(crate) fn subject(&self, given: &str, whole: bool) -> Subject {
        let found = self.resolve(Path::new(given), true);
        found.map_or(Subject::Unknown, |(found, _)| self.subject_at(&found.real, whole))
    }

    /// Returns the permission subject of a resolved path.
    fn subject_at(&self, real: &Path, whole: bool) -> Subject {
        let told = || {
            let below = real.strip_prefix(&self.root).ok()?;
            let names: Option<Vec<&str>> = below.components().map(|name| name.as_os_str().to_str()).collect();
            let (root, below) = (self.root.to_str()?.to_owned(), names?.join("/"));
            Some(Subject::Path { root, below, whole, any_case: any_case(real) })
        };
        told().unwrap_or(Subject::Unknown)
    }

    /// Opens a regular file for reading and verifies that it is the resolved one.
    pub(crate) fn open_file(&self, found: &Found) -> Result<(File, Metadata), ToolError> {
        let shown = &found.shown;
        let failed = |error: io::Error| {
            if is_swapped(&error) {
                replaced(shown)
            } else {
                ToolError::Failed(format!("path '{shown}' cannot be read: {error}"))
            }
        };
        // Checked before opening, because opening a device may have side effects. If a FIFO replaces the file
        // at this moment, it blocks a thread but not the call: `look` abandons the thread when the call is
        // cancelled.
        regular(&fs::symlink_metadata(&found.real).map_err(failed)?, shown)?;
        let file = self.open.file(&found.real).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        regular(&metadata, shown)?;
        if !self.still_leads_to(found, &metadata) {
            return Err(replaced(shown));
        }
        Ok((file, metadata))
    }

    /// Opens a folder below the root, by its real path.
    pub(crate) fn folder(&self, real: &Path) -> io::Result<Folder> {
        self.open.folder(real)
    }

    /// Returns whether the path is unchanged: it contains no link and ends at the file with this metadata.
    pub(crate) fn still_leads_to(&self, found: &Found, metadata: &Metadata) -> bool {
        found.real.canonicalize().is_ok_and(|now| now == found.real)
            && fs::symlink_metadata(&found.real).is_ok_and(|now| same_file(&now, metadata))
    }

    /// Formats a path below the root for the model.
    pub(crate) fn show(&self, real: &Path) -> String {
        let below = real.strip_prefix(&self.root).unwrap_or(real);
        let mut shown = String::new();
        for part in below.components() {
            if !shown.is_empty() {
                shown.push('/');
            }
            shown.push_str(&one_line(&part.as_os_str().to_string_lossy()));
        }
        if shown.is_empty() {
            shown.push('.');
        }
        shown
    }

    /// Acquires the edit lock, shared by all calls and all processes that work here, so that no two edits
    /// overwrite each other.
    ///
    /// # Errors
    /// Another process holds the lock for too long.
    pub(crate) fn edit_turn(&self) -> Result<EditTurn<'_>, ToolError> {
        let here = self.edits.lock().unwrap_or_else(PoisonError::into_inner);
        // Some file systems cannot lock a folder. There, a change by another process is still detected before
        // it is overwritten.
        let Ok(root) = File::open(&self.root) else { return Ok(EditTurn { root: None, _here: here }) };
        for _ in 0..PATIENCE.as_millis() / TURN.as_millis() {
            match root.try_lock() {
                Ok(()) => return Ok(EditTurn { root: Some(root), _here: here }),
                Err(TryLockError::Error(_)) => return Ok(EditTurn { root: None, _here: here }),
                Err(TryLockError::WouldBlock) => pause(),
            }
        }
        let waited = PATIENCE.as_millis();
        Err(ToolError::Failed(format!(
            "nothing was changed: another process has been changing files here for {waited} ms; try again"
        )))
    }

    /// Removes temporary files of killed processes, unless one is being written now: each writer holds the edit lock. A failure
    /// only wastes disk space.
    pub(crate) fn clear_leftovers(&self, leftovers: &[PathBuf]) {
        if leftovers.is_empty() {
            return;
        }
        let Ok(_here) = self.edits.try_lock() else { return };
        let Some(_root) = File::open(&self.root).ok().filter(|root| root.try_lock().is_ok()) else { return };
        for path in leftovers {
            if let (Some(parent), Some(name)) =
                (path.parent(), path.file_name().filter(|name| is_leftover(name)))
                && let Ok(folder) = self.folder(parent)
            {
                let _ = fs::remove_file(folder.at(name));
            }
        }
    }
}

/// Returns whether a file of this name is the temporary file of an edit.
pub(crate) fn is_leftover(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(PREFIX.as_bytes())
}

#[expect(clippy::disallowed_methods, reason = "edits run outside of the async runtime")]
fn pause() {
    thread::sleep(TURN);
}

/// Maximum wait for another process's edit.
const PATIENCE: Duration = Duration::from_secs(30);

/// Interval between two attempts to get the lock.
const TURN: Duration = Duration::from_millis(2);

/// A held edit lock, released on drop.
pub(crate) struct EditTurn<'a> {
    /// The locked root.
    root: Option<File>,
    _here: MutexGuard<'a, ()>,
}

impl EditTurn<'_> {
    /// Returns whether the lock excludes all other cooperating processes.
    pub(crate) fn is_alone(&self) -> bool {
        self.root.is_some()
    }
}

/// Returns whether a directory entry of this name is hidden from tools.
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    let begins =
        |start: &&str| name.get(..start.len()).is_some_and(|it| it.eq_ignore_ascii_case(start.as_bytes()));
    RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved.as_bytes()))
        || RESERVED_STARTS.iter().any(begins)
}

/// Returns whether the file system at a path ignores letter case. If nothing there has letters, returns the
/// default of the operating system.
fn any_case(path: &Path) -> bool {
    let other_case = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        let swapped: String = name
            .chars()
            .map(|c| if c.is_lowercase() { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() })
            .collect();
        (swapped != name).then(|| path.with_file_name(swapped))
    };
    let known = path.ancestors().find_map(|path| {
        let there = fs::symlink_metadata(path).ok()?;
        let other = fs::symlink_metadata(other_case(path)?);
        Some(other.is_ok_and(|other| same_file(&there, &other)))
    });
    known.unwrap_or(cfg!(any(target_os = "macos", windows)))
}

fn there(given: &Path, (found, exists): (Found, bool)) -> Result<Found, ToolError> {
    if exists {
        Ok(found)
    } else {
        Err(ToolError::Failed(format!("path '{}' not found in the workspace", given.display())))
    }
}

pub(crate) fn replaced(shown: &str) -> ToolError {
    ToolError::Failed(format!("path '{shown}' was replaced while it was in use; try again"))
}

fn regular(metadata: &Metadata, shown: &str) -> Result<(), ToolError> {
    if metadata.is_file() {
        Ok(())
    } else if metadata.is_dir() {
        Err(ToolError::Failed(format!("path '{shown}' is a directory; list it with `list_files`")))
    } else if metadata.is_symlink() {
        Err(replaced(shown))
    } else {
        Err(ToolError::Failed(format!("path '{shown}' is not a regular file")))
    }
}

/// Returns the target of a path that cannot be resolved: existing links are followed, the rest is normalized
/// lexically.
fn destination(mut path: PathBuf) -> PathBuf {
    for _ in 0..MAX_LINKS {
        let Some((base, rest)) = path.ancestors().find_map(|existing| {
            let base = existing.canonicalize().ok()?;
            Some((base, path.strip_prefix(existing).ok()?.to_path_buf()))
        }) else {
            return normal(&path);
        };
        let mut parts = rest.components();
        let Some(first) = parts.next() else { return base };
        let Ok(target) = fs::read_link(base.join(first)) else {
            return normal(&base.join(rest));
        };
        path = base.join(target).join(parts.as_path());
    }
    normal(&path)
}

/// Normalizes `.` and `..` of a path lexically.
fn normal(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                result.pop();
            }
            part => result.push(part),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::testing::TestWorkspace;

    fn shown(place: &TestWorkspace, path: impl AsRef<Path>) -> String {
        place.workspace.find(path).unwrap().shown
    }

    fn refusal(place: &TestWorkspace, path: impl AsRef<Path>) -> String {
        place.workspace.find(path).unwrap_err().to_string()
    }

    fn outside(path: &str) -> String {
        format!("path '{path}' is outside the workspace root; use a path below it")
    }

    #[test]
    fn paths_below_the_root_are_found_in_any_form() {
        let place = TestWorkspace::new();
        place.file("src/main.rs", "");
        assert_eq!(shown(&place, "src/main.rs"), "src/main.rs");
        assert_eq!(shown(&place, "./src/../src/./main.rs"), "src/main.rs");
        assert_eq!(shown(&place, "../root/src"), "src");
        assert_eq!(shown(&place, place.at("src/main.rs")), "src/main.rs");
        assert_eq!(shown(&place, ""), ".");
        assert_eq!(shown(&place, "."), ".");
    }

    #[test]
    fn paths_outside_are_rejected_without_revealing_their_existence() {
        let place = TestWorkspace::new();
        fs::write(place.dir.path().join("secret"), "").unwrap();
        fs::create_dir(place.dir.path().join("rooted")).unwrap();
        for path in [
            "..",
            "../secret",
            "../missing",
            "../rooted",
            "/",
            "/etc/passwd",
            "/missing",
            "missing/../../secret",
        ] {
            assert_eq!(refusal(&place, path), outside(path));
        }
    }

    #[test]
    fn missing_paths_below_the_root_are_not_found() {
        let place = TestWorkspace::new();
        place.file("file", "");
        for path in ["missing", "missing/deeper", "missing/../other", "file/x", "../root/missing"] {
            assert_eq!(refusal(&place, path), format!("path '{path}' not found in the workspace"));
        }
    }

    #[test]
    fn stores_of_git_and_of_this_program_are_out_of_reach() {
        let place = TestWorkspace::new();
        place.file(".git/config", "");
        place.file("sub/.git", "");
        place.file(".superstep/db", "");
        place.file(".gitignore", "");
        for path in
            [".git", ".git/config", ".git/missing", "sub/.git", ".superstep/db", "sub/../.git", ".GIT/x"]
        {
            assert_eq!(
                refusal(&place, path),
                format!("path '{path}' is reserved: `.git` and `.superstep` are out of reach")
            );
        }
        assert_eq!(shown(&place, ".gitignore"), ".gitignore");
    }

    #[test]
    fn long_results_of_the_program_can_be_read_and_not_changed() {
        let place = TestWorkspace::new();
        place.file(".superstep/results/t/c1.txt", "");
        place.file(".superstep/results/.git", "");
        let path = ".superstep/results/t/c1.txt";
        assert_eq!(place.workspace.find_to_read(path).unwrap().shown, path);
        for path in
            [".superstep", ".superstep/threads.db", ".superstep/results/.git", "x/.superstep/results/y"]
        {
            let refusal = place.workspace.find_to_read(path).unwrap_err().to_string();
            assert!(refusal.contains("is reserved"), "{refusal}");
        }
        assert!(refusal(&place, path).contains("is reserved"));
    }

    #[test]
    fn a_path_that_no_system_takes_is_an_error() {
        let place = TestWorkspace::new();
        assert!(refusal(&place, "a\0b").contains("cannot be resolved"), "{}", refusal(&place, "a\0b"));
        assert!(refusal(&place, "a".repeat(5_000)).contains("cannot be resolved"));
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_below_the_root_only() {
        let place = TestWorkspace::new();
        fs::write(place.dir.path().join("secret"), "").unwrap();
        fs::create_dir(place.dir.path().join("elsewhere")).unwrap();
        fs::write(place.dir.path().join("elsewhere/file"), "").unwrap();
        place.file("dir/file", "");
        place.file(".git/config", "");
        place.link("inside", "dir/file");
        place.link("inside_dir", "dir");
        place.link("back", "../root/dir");
        place.link("to_file", "../secret");
        place.link("to_dir", "../elsewhere");
        place.link("chain", "chain2");
        place.link("chain2", "to_file");
        place.link("absolute", "/etc/passwd");
        place.link("dangling_inside", "dir/missing");
        place.link("dangling_outside", "../missing");
        place.link("dangling_chain", "dangling_outside");
        place.link("loop", "loop");
        place.link("git", ".git");
        assert_eq!(shown(&place, "inside"), "dir/file");
        assert_eq!(shown(&place, "inside_dir/file"), "dir/file");
        assert_eq!(shown(&place, "back/file"), "dir/file");
        for path in [
            "to_file",
            "to_dir",
            "to_dir/file",
            "to_dir/missing",
            "to_dir/../root/../secret",
            "chain",
            "absolute",
            "dangling_outside",
            "dangling_chain",
            "dangling_outside/x",
        ] {
            assert_eq!(refusal(&place, path), outside(path));
        }
        assert_eq!(refusal(&place, "dangling_inside"), "path 'dangling_inside' not found in the workspace");
        assert!(refusal(&place, "loop").starts_with("path 'loop' cannot be resolved: "));
        assert_eq!(
            refusal(&place, "git/config"),
            "path 'git/config' is reserved: `.git` and `.superstep` are out of reach"
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_file_replaced_between_check_and_use_is_not_opened() {
        let place = TestWorkspace::new();
        fs::write(place.dir.path().join("secret"), "").unwrap();
        fs::create_dir(place.dir.path().join("elsewhere")).unwrap();
        fs::write(place.dir.path().join("elsewhere/file"), "").unwrap();
        place.file("file", "");
        place.file("dir/file", "");
        let file = place.workspace.find("file").unwrap();
        let in_dir = place.workspace.find("dir/file").unwrap();
        place.workspace.open_file(&file).unwrap();

        fs::remove_file(place.at("file")).unwrap();
        place.link("file", "../secret");
        fs::remove_dir_all(place.at("dir")).unwrap();
        place.link("dir", "../elsewhere");
        for found in [file, in_dir] {
            assert_eq!(
                place.workspace.open_file(&found).unwrap_err().to_string(),
                format!("path '{}' was replaced while it was in use; try again", found.shown)
            );
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_another_one_has_replaced_is_not_the_same() {
        let place = TestWorkspace::new();
        place.file("file", "");
        let found = place.workspace.find("file").unwrap();
        let (_held, metadata) = place.workspace.open_file(&found).unwrap();
        assert!(place.workspace.still_leads_to(&found, &metadata));
        place.file("next", "");
        fs::rename(place.at("next"), place.at("file")).unwrap();
        assert!(!place.workspace.still_leads_to(&found, &metadata));
    }

    #[cfg(unix)]
    #[test]
    fn names_are_shown_on_one_line() {
        let place = TestWorkspace::new();
        place.file("a\nb", "");
        assert_eq!(shown(&place, "a\nb"), "a\\nb");
    }
}
