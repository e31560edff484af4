//! The place of a database: a file, or a schema of a PostgreSQL server.
//!
//! Start at [`Db`].

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::{
    config::{names::DbName, postgres::Server},
    output::exit::Failure,
};

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
