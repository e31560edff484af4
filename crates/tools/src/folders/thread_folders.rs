//! Folders that store files by thread.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io,
    path::{Component, Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use superstep_llm::internal::hash_of;

use super::held::{Folder, Root, leads_elsewhere};

/// The name prefix of folders that are being made, and get their names when they are complete.
pub const UNFINISHED: &str = ".superstep-new-";

/// Maximum length of a name derived from a call or a thread, in bytes; file systems allow 255.
const MAX_NAME_LENGTH: usize = 100;

/// Maximum length of one part of a user's name, without [`GOES_ON`].
const MAX_PART_LENGTH: usize = 240;

/// Maximum length of a user's name with all its parts; file systems allow paths of some thousands.
const MAX_USER_LENGTH: usize = 1_200;

/// The suffix of a folder that contains the rest of a user's name. Nothing else has two `%` in a row.
const GOES_ON: &str = "%%";

/// A folder with a folder for each thread, accessible by the owner only and ignored by git. No part of a path
/// is a link.
#[derive(Clone, Debug)]
pub struct ThreadFolders {
    /// Canonical.
    root: Arc<Path>,
    folder: Arc<Path>,
}

impl ThreadFolders {
    /// Opens `folder` below `root`.
    ///
    /// # Errors
    /// `root` is missing, or `folder` is not a plain path below it.
    pub fn new(root: &Path, folder: &Path) -> io::Result<Self> {
        if !folder.components().all(|part| matches!(part, Component::Normal(_))) || folder.to_str().is_none()
        {
            let message = "the folder of threads is not a plain path below the root";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(Self { root: root.canonicalize()?.into(), folder: folder.into() })
    }

    /// Returns the same folder below another root, whose path contains no link.
    pub fn in_root(&self, root: &Path) -> io::Result<Self> {
        if root.canonicalize()? != root {
            return Err(leads_elsewhere());
        }
        Ok(Self { root: root.into(), folder: self.folder.clone() })
    }

    /// Returns the folder of a thread, relative to the root. Threads whose names differ in case only have
    /// different folders on every system.
    pub fn below(&self, thread: &str) -> PathBuf {
        let name = written(thread, |byte| byte.is_ascii_lowercase());
        // Earlier versions did not escape capital letters.
        let earlier = plain(thread);
        let is_there = |folder: fs::ReadDir| folder.flatten().any(|entry| *entry.file_name() == *earlier);
        if earlier != name && fs::read_dir(self.root.join(&self.folder)).is_ok_and(is_there) {
            return self.folder.join(earlier);
        }
        self.folder.join(name)
    }

    /// Returns the folder of a user, relative to the root: a long name is split into nested folders.
    ///
    /// # Errors
    /// The name is too long.
    pub fn of_user(&self, user: &str) -> io::Result<PathBuf> {
        let name = user_name(user);
        if name.len() > MAX_USER_LENGTH {
            let what = format!("the name of the user is too long for a folder: {} bytes", user.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut path = self.folder.to_path_buf();
        let mut rest = name.as_str();
        while rest.len() > MAX_PART_LENGTH {
            let (part, others) = rest.split_at(MAX_PART_LENGTH);
            path.push(format!("{part}{GOES_ON}"));
            rest = others;
        }
        path.push(rest);
        Ok(path)
    }

    /// Returns whether it is inside of the other folder.
    pub fn is_within(&self, other: &Self) -> bool {
        self.root.join(&self.folder).starts_with(other.root.join(&other.folder))
    }

    /// Deletes the files of a thread, if any.
    pub fn delete(&self, thread: &str) -> io::Result<()> {
        self.remove(&self.below(thread))
    }

    /// Deletes a folder, if it exists.
    pub fn remove(&self, below: &Path) -> io::Result<()> {
        let (Some(parent), Some(name)) = (below.parent(), below.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        match self.check(below).and_then(|_| self.open(parent)) {
            Ok(parent) => fs::remove_dir_all(parent.at(name)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Creates a folder below the root, accessible by the owner only and ignored by git.
    pub fn make(&self, below: &Path) -> io::Result<PathBuf> {
        let mut path = self.root.to_path_buf();
        let mut is_hidden = false;
        for part in below.components() {
            path.push(part);
            let made = if is_hidden { private().create(&path) } else { hidden(&path) };
            match made {
                Ok(()) => is_hidden = true,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if fs::symlink_metadata(&path)?.is_symlink() {
                        return Err(link_in(below));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        self.check(below)
    }

    /// Opens a folder below the root, so that its files are found even if its path becomes a link meanwhile.
    ///
    /// # Errors
    /// It is missing; or there is a link in its path.
    pub(crate) fn open(&self, below: &Path) -> io::Result<Folder> {
        Root::open(&self.root)?.folder(&self.check(below)?)
    }

    /// Returns the path of a folder below the root after checking that it contains no link.
    pub fn check(&self, below: &Path) -> io::Result<PathBuf> {
        let path = self.root.join(below);
        if path.canonicalize()? != path {
            return Err(link_in(below));
        }
        Ok(path)
    }
}

/// Creates a folder that is accessible by the owner only and ignored by git, unless it exists.
///
/// # Errors
/// An error of the file system.
pub fn make_private_folder(path: &Path) -> io::Result<()> {
    match hidden(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Creates a folder that git ignores. It gets its name after its `.gitignore` exists, so that its contents
/// are never visible.
fn hidden(path: &Path) -> io::Result<()> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    if fs::symlink_metadata(path).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    if let Some(parent) = path.parent() {
        clear_unfinished(parent);
    }
    let (next, _lock) = loop {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let next = path.with_file_name(format!("{UNFINISHED}{}-{number}", process::id()));
        match private().create(&next) {
            // A process with this number was killed here.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            made => made?,
        }
        if let Some(lock) = lock_unfinished(&next) {
            break (next, lock);
        }
    };
    let made = fs::write(next.join(".gitignore"), "*\n").and_then(|()| fs::rename(&next, path));
    made.map_err(|error| {
        // If that fails as well, git still ignores it.
        let _ = fs::remove_dir_all(&next);
        // A concurrent process was faster.
        if fs::symlink_metadata(path).is_ok() { io::ErrorKind::AlreadyExists.into() } else { error }
    })
}

/// Locks a folder that is being made, so that no other process clears it; `None` if one has begun to. Where folders cannot be
/// locked, none are cleared.
pub fn lock_unfinished(folder: &Path) -> Option<Option<File>> {
    let Ok(open) = File::open(folder) else { return folder.exists().then_some(None) };
    match open.try_lock() {
        Ok(()) => folder.exists().then_some(Some(open)),
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Error(_)) => Some(None),
    }
}

/// Removes folders that killed processes have begun to make here. A failure only wastes disk space.
pub fn clear_unfinished(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let is_unfinished = entry.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes());
        if is_unfinished
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
            // Its maker holds the lock while it lives.
            && let Some(Some(_lock)) = lock_unfinished(&entry.path())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns a builder for folders accessible by the owner only.
fn private() -> DirBuilder {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

fn link_in(below: &Path) -> io::Error {
    io::Error::other(format!("there is a link in `{}`; remove it", below.display()))
}

/// Returns the name of a user's folder, unique also on file systems that ignore case.
pub fn user_name(user_id: &str) -> String {
    let mut name = String::new();
    for (at, byte) in user_id.bytes().enumerate() {
        let is_last = at + 1 == user_id.len();
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'@' => name.push(char::from(byte)),
            b'.' if at > 0 && !is_last => name.push('.'),
            byte => name.push_str(&format!("%{byte:02x}")),
        }
    }
    if name.is_empty() { "%".to_owned() } else { name }
}

/// Returns the user of a folder; `None` if it is not a user's folder.
pub fn user_of(name: &str) -> Option<String> {
    let mut parts = name.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts.filter(|_| name != "%") {
        let (byte, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(byte, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok().filter(|user| user_name(user) == name)
}

/// Encodes a name in letters, digits and a few signs, uniquely. Other characters become `%` and their bytes.
pub(crate) fn plain(name: &str) -> String {
    written(name, |byte| byte.is_ascii_alphabetic())
}

fn written(name: &str, is_letter: impl Fn(u8) -> bool) -> String {
    let mut plain = String::new();
    for (at, byte) in name.bytes().enumerate() {
        match byte {
            b'0'..=b'9' | b'-' | b'_' => plain.push(char::from(byte)),
            letter if is_letter(letter) => plain.push(char::from(letter)),
            b'.' if at > 0 => plain.push('.'),
            byte => plain.push_str(&format!("%{byte:02x}")),
        }
    }
    if plain.is_empty() {
        return "%".to_owned();
    }
    if plain.len() > MAX_NAME_LENGTH {
        plain.truncate(MAX_NAME_LENGTH);
        plain.push_str(&format!("%{}", hash_of(name)));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_known_by_the_name_of_the_folder() {
        for user in ["ada", "Ada Lovelace", "../ada", "a%b", "李", ".", ""] {
            assert_eq!(user_of(&user_name(user)).as_deref(), Some(user));
        }
        for nobody in ["A", "%4", "%zz", "%61", "%ff", "%é"] {
            assert_eq!(user_of(nobody), None, "{nobody}");
        }
    }

    #[test]
    fn threads_that_differ_in_capital_letters_have_folders_that_differ_in_more() {
        let dir = tempfile::tempdir().unwrap();
        let folders = ThreadFolders::new(dir.path(), "kept".as_ref()).unwrap();
        let below = |thread: &str| folders.below(thread).to_str().unwrap().to_owned();
        assert_eq!(["t.1", "T.1", "Ü"].map(below), ["kept/t.1", "kept/%54.1", "kept/%c3%9c"]);
        // A folder of an earlier version.
        folders.make("kept/T.1".as_ref()).unwrap();
        assert_eq!(["t.1", "T.1"].map(below), ["kept/t.1", "kept/T.1"]);
    }

    #[test]
    fn a_folder_is_out_of_sight_of_git_from_its_first_moment() {
        let dir = tempfile::tempdir().unwrap();
        let folders = ThreadFolders::new(dir.path(), "kept".as_ref()).unwrap();
        let kept = dir.path().join("kept");
        for _ in 0..200 {
            std::thread::scope(|scope| {
                let made = ["t", "u"].map(|thread| scope.spawn(|| folders.make(&folders.below(thread))));
                while !kept.exists() {
                    std::thread::yield_now();
                }
                assert_eq!(fs::read_to_string(kept.join(".gitignore")).unwrap(), "*\n");
                for made in made {
                    made.join().unwrap().unwrap();
                }
            });
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left there");
            fs::remove_dir_all(&kept).unwrap();
        }
    }

    #[cfg(unix)]
    #[test]
    fn folders_of_killed_processes_are_cleared_and_those_of_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let at = |number| dir.path().join(format!("{UNFINISHED}1-{number}"));
        [1, 2].into_iter().for_each(|number| fs::create_dir_all(at(number).join("sub")).unwrap());
        let held = lock_unfinished(&at(2)).unwrap();
        make_private_folder(&dir.path().join("kept")).unwrap();
        assert!(!at(1).exists() && at(2).exists());
        drop(held);
        clear_unfinished(dir.path());
        assert!(!at(2).exists());
    }

    #[cfg(unix)]
    #[test]
    fn nothing_is_made_where_a_link_leads() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("kept")).unwrap();
        let folders = ThreadFolders::new(dir.path(), "kept".as_ref()).unwrap();
        let refused = folders.make(&folders.below("t")).unwrap_err();
        assert_eq!(refused.to_string(), "there is a link in `kept/t`; remove it");
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}
