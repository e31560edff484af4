//! The place of a database: a file, or a schema of a PostgreSQL server.
//!
//! Start at [`Db`].

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

use crate::{config::postgres::Server, output::exit::Failure};

/// The environment variable with the database of commands without `--db`.
pub(crate) const VARIABLE: &str = "SUPERSTEP_DB";

/// The name of a database: a path or a URL. A URL has a password, so that no output contains it.
#[derive(Clone)]
pub(crate) struct DbName(pub(crate) OsString);

impl fmt::Debug for DbName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_server() { f.write_str("a PostgreSQL database") } else { self.0.fmt(f) }
    }
}

impl DbName {
    fn is_server(&self) -> bool {
        let text = self.0.to_string_lossy();
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }
}

#[derive(Clone)]
pub(crate) enum Db {
    File(PathBuf),
    Server(Server),
}

impl Db {
    /// Finds the place of a name.
    ///
    /// # Errors
    /// It is not a valid URL, or this build has no feature `postgres`.
    pub(crate) fn parse(given: &DbName) -> Result<Self, Failure> {
        if given.is_server() {
            Server::new(given).map(Self::Server)
        } else {
            Ok(Self::File(given.0.clone().into()))
        }
    }

    /// Returns the file; `None` if it is on a server.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(file) => Some(file),
            Self::Server(_) => None,
        }
    }

    /// Returns the remark behind a suggested command that needs the URL, which no output contains.
    pub(crate) fn remark(&self) -> Option<String> {
        match self {
            Self::File(_) => None,
            Self::Server(server) => server.remark(),
        }
    }
}

impl fmt::Display for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.display().fmt(f),
            Self::Server(server) => f.write_str(server.name()),
        }
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
