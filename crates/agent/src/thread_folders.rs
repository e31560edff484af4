//! Folders in which something is kept thread by thread.

use std::{
    fs::{self, DirBuilder},
    io,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

/// So long may a name be that is made of a call or a thread, in bytes; file systems take 255.
const LONGEST_NAME: usize = 100;

/// So long may one be that is a user's, or the beginning of a user's, without [`GOES_ON`].
const LONGEST_PART: usize = 240;

/// So long may a user's be with all its parts; file systems take paths of some thousands.
const LONGEST_USER: usize = 1_200;

/// What the name of a folder ends with that has the rest of a user's name in it. Nothing else has two `%` in a row.
const GOES_ON: &str = "%%";

/// A folder with a folder for each thread, for their owner only and out of sight of git. No part of a path is a link.
#[derive(Clone, Debug)]
pub(crate) struct ThreadFolders {
    /// Canonical.
    root: Arc<Path>,
    folder: Arc<Path>,
}

impl ThreadFolders {
    /// # Errors    `root` is missing, or `folder` is not a plain path below it.
    pub(crate) fn new(root: &Path, folder: &Path) -> io::Result<Self> {
        if !folder.components().all(|part| matches!(part, Component::Normal(_))) || folder.to_str().is_none()
        {
            let message = "the folder of threads is not a plain path below the root";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(Self { root: root.canonicalize()?.into(), folder: folder.into() })
    }

    /// The folder of a thread, relative to the root.
    pub(crate) fn below(&self, thread: &str) -> PathBuf {
        self.folder.join(plain(thread))
    }

    /// The folder of a user, relative to the root: a name that is too long for one is that of several, each in the one before.
    ///
    /// # Errors    The name is too long.
    pub(crate) fn of_user(&self, user: &str) -> io::Result<PathBuf> {
        let name = user_name(user);
        if name.len() > LONGEST_USER {
            let what = format!("the name of the user is too long for a folder: {} bytes", user.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut path = self.folder.to_path_buf();
        let mut rest = name.as_str();
        while rest.len() > LONGEST_PART {
            let (part, others) = rest.split_at(LONGEST_PART);
            path.push(format!("{part}{GOES_ON}"));
            rest = others;
        }
        path.push(rest);
        Ok(path)
    }

    /// Whether all of it is in another one's folder.
    #[cfg(feature = "workspace-tools")]
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.root.join(&self.folder).starts_with(other.root.join(&other.folder))
    }

    /// Deletes what was kept of a thread; nothing if there is nothing.
    pub(crate) fn forget(&self, thread: &str) -> io::Result<()> {
        self.remove(&self.below(thread))
    }

    /// Deletes a folder; nothing if there is none.
    pub(crate) fn remove(&self, below: &Path) -> io::Result<()> {
        match self.check(below) {
            Ok(folder) => fs::remove_dir_all(folder),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes a folder below the root, for its owner only and out of sight of git.
    pub(crate) fn make(&self, below: &Path) -> io::Result<PathBuf> {
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let mut path = self.root.to_path_buf();
        let mut is_hidden = false;
        for part in below.components() {
            path.push(part);
            match builder.create(&path) {
                Ok(()) if !is_hidden => {
                    fs::write(path.join(".gitignore"), "*\n")?;
                    is_hidden = true;
                }
                Ok(()) => {}
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

    /// A folder below the root, if there is no link in its path.
    pub(crate) fn check(&self, below: &Path) -> io::Result<PathBuf> {
        let path = self.root.join(below);
        if path.canonicalize()? != path {
            return Err(link_in(below));
        }
        Ok(path)
    }
}

fn link_in(below: &Path) -> io::Error {
    io::Error::other(format!("there is a link in `{}`", below.display()))
}

/// A name for the folder of a user, different for different users, also where capital letters are none of their own.
pub(crate) fn user_name(user_id: &str) -> String {
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

/// Who has a folder of this name; `None` if nobody has.
#[cfg(feature = "workspace-tools")]
pub(crate) fn user_of(name: &str) -> Option<String> {
    let mut parts = name.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts.filter(|_| name != "%") {
        let (byte, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(byte, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok().filter(|user| user_name(user) == name)
}

/// A name of letters, digits and a few signs, different for different names. What else there is becomes `%` and its bytes.
pub(crate) fn plain(name: &str) -> String {
    let mut plain = String::new();
    for (at, byte) in name.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => plain.push(char::from(byte)),
            b'.' if at > 0 => plain.push('.'),
            byte => plain.push_str(&format!("%{byte:02x}")),
        }
    }
    if plain.is_empty() {
        return "%".to_owned();
    }
    if plain.len() > LONGEST_NAME {
        plain.truncate(LONGEST_NAME);
        plain.push_str(&format!("%{}", hash_of(name)));
    }
    plain
}

/// FNV-1a of a text, as 16 digits.
pub(crate) fn hash_of(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "workspace-tools")]
    #[test]
    fn a_user_is_known_by_the_name_of_the_folder() {
        for user in ["ada", "Ada Lovelace", "../ada", "a%b", "李", ".", ""] {
            assert_eq!(user_of(&user_name(user)).as_deref(), Some(user));
        }
        for nobody in ["A", "%4", "%zz", "%61", "%ff", "%é"] {
            assert_eq!(user_of(nobody), None, "{nobody}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn nothing_is_made_where_a_link_leads() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("kept")).unwrap();
        let folders = ThreadFolders::new(dir.path(), "kept".as_ref()).unwrap();
        let refused = folders.make(&folders.below("t")).unwrap_err();
        assert_eq!(refused.to_string(), "there is a link in `kept/t`");
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}
