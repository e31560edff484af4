//! The subjects of a call's arguments.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

/// The subject of an argument of a call, for comparison with the patterns of rules: see [`Tool::subject`].
///
/// [`Tool::subject`]: crate::Tool::subject
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subject {
    /// A file or folder at its real path: links followed, without `.` and `..`.
    Path {
        /// The folder of the tool, absolute, with `/` between names.
        root: String,
        /// The path below that folder, with `/` between names; empty for the folder itself.
        below: String,
        /// `true` if the call reaches everything below it as well.
        whole: bool,
        /// `true` if its file system may ignore letter case.
        any_case: bool,
    },
    /// A web address.
    Url(String),
    /// A command line of a shell.
    Command(String),
    /// Text without a further meaning.
    Text(String),
    /// An unknown subject: rules that allow do not apply to it, rules that deny do.
    Unknown,
}

impl Subject {
    /// Resolves a path that a tool opens in a folder: links are followed, `..` is removed. A path that leads
    /// out of the folder, or cannot be resolved, is [`Unknown`](Self::Unknown).
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

/// Returns the target of a path, whether or not it exists.
fn resolve(root: &Path, written: &str) -> Option<PathBuf> {
    let mut real = root.to_owned();
    for part in Path::new(written).components() {
        match part {
            Component::CurDir => continue,
            // The real path contains no links, so that this is its folder.
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
