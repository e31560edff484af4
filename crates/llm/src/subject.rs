//! What an argument of a call stands for.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

/// What an argument of a call stands for, as rules about calls compare it with their patterns: see [`Tool::subject`].
///
/// [`Tool::subject`]: crate::Tool::subject
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subject {
    /// A file or folder, where it really is: links followed, without `.` and `..`.
    Path {
        /// The folder that the tool works in, absolute, with `/` between names.
        root: String,
        /// Below that folder, with `/` between names; empty for the folder itself.
        below: String,
        /// Whether the call reaches everything below it as well.
        whole: bool,
        /// Whether its file system may find it by other letter cases as well.
        any_case: bool,
    },
    /// An address of the web.
    Url(String),
    /// A command line of a shell.
    Command(String),
    /// Text that means what it says.
    Text(String),
    /// Nobody can tell what it stands for: rules that allow are not about it, rules that deny are.
    Unknown,
}

impl Subject {
    /// Resolves a path that a tool opens in a folder: links followed, `..` taken away. One that leads out of the folder, or cannot be
    /// resolved, is [`Unknown`](Self::Unknown).
    ///
    /// # Example
    /// ```
    /// use superstep_llm::Subject;
    ///
    /// let folder = std::env::temp_dir();
    /// let Subject::Path { below, .. } = Subject::path(&folder, "docs/../new.txt") else { panic!("it is below the folder") };
    /// assert_eq!(below, "new.txt");
    /// assert_eq!(Subject::path(&folder, "../other.txt"), Subject::Unknown);
    /// ```
    pub fn path(folder: impl AsRef<Path>, written: &str) -> Self {
        let resolved = || {
            let root = folder.as_ref().canonicalize().ok()?;
            let real = resolve(&root, written)?;
            let below = real.strip_prefix(&root).ok()?.components();
            let below: Option<Vec<&str>> = below.map(|name| name.as_os_str().to_str()).collect();
            let (root, below) = (root.to_str()?.to_owned(), below?.join("/"));
            Some(Self::Path { root, below, whole: false, any_case: cfg!(any(target_os = "macos", windows)) })
        };
        resolved().unwrap_or(Self::Unknown)
    }
}

/// Where a path leads, whether or not there is something.
fn resolve(root: &Path, written: &str) -> Option<PathBuf> {
    let mut real = root.to_owned();
    for part in Path::new(written).components() {
        match part {
            Component::CurDir => continue,
            // The real path has no links in it, so that this is its folder.
            Component::ParentDir => {
                real.pop();
                continue;
            }
            part => real.push(part),
        }
        match fs::symlink_metadata(&real) {
            Ok(there) if there.is_symlink() => real = real.canonicalize().ok()?,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return None,
        }
    }
    Some(real)
}
