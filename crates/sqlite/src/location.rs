//! The location of a database, for messages.
//!
//! Start at [`Location`].

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// A database file, or the database in memory.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    File(PathBuf),
    ReadOnly(PathBuf),
    Memory,
}

impl Location {
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) | Self::ReadOnly(path) => Some(path),
            Self::Memory => None,
        }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, Self::ReadOnly(_))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file() {
            Some(path) => write!(f, "database `{}`", path.display()),
            None => f.write_str("the database in memory"),
        }
    }
}

/// Returns the path of a file that SQLite stores next to a database.
pub(crate) fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
