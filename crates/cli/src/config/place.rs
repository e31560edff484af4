//! The place of a database: a file, or a schema of a PostgreSQL server.
//!
//! Start at [`Db`].

use std::{
    fmt,
    path::{Path, PathBuf},
};

use superstep::{checkpoint::CheckpointError, postgres::PostgresOptions};

use crate::args::db::DbArg;

/// The place of a database.
#[derive(Clone)]
pub(crate) enum Db {
    File(PathBuf),
    Server(Server),
}

/// A schema of a server.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) options: PostgresOptions,
    /// Its name without user and password.
    name: String,
}

impl Db {
    /// Reads the value of `--db`.
    ///
    /// # Errors    It is not a valid URL.
    pub(crate) fn parse(given: &DbArg) -> Result<Self, CheckpointError> {
        if !given.is_server() {
            return Ok(Self::File(given.0.clone().into()));
        }
        let options = PostgresOptions::new(given.0.to_string_lossy().into_owned());
        let name = options.location()?;
        Ok(Self::Server(Server { options, name }))
    }

    /// Returns the file; `None` if it is on a server.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(file) => Some(file),
            Self::Server(_) => None,
        }
    }

    /// Returns the argument for a suggested command, without user and password.
    pub(crate) fn argument(&self) -> String {
        match self {
            Self::File(file) => file.to_string_lossy().into_owned(),
            Self::Server(server) => server.name.clone(),
        }
    }
}

impl fmt::Display for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.display().fmt(f),
            Self::Server(server) => f.write_str(&server.name),
        }
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
