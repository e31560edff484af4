//! The place of a database: a file, or a schema of a PostgreSQL server.
//!
//! Start at [`Db`].

use std::{
    env, fmt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use superstep::{
    checkpoint::CheckpointError,
    postgres::{PostgresCheckpointer, PostgresOptions},
};

use crate::args::db::{DbArg, VARIABLE};

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
    /// The name of the database without user and password.
    pub(crate) name: String,
    /// The URL is that of the environment variable.
    is_of_variable: bool,
    opened: Arc<ServerConnections>,
}

/// The connections to a server, once it is opened.
#[derive(Default)]
struct ServerConnections {
    for_reading: OnceLock<Arc<PostgresCheckpointer>>,
    for_writing: OnceLock<Arc<PostgresCheckpointer>>,
}

impl Server {
    /// Opens it for writing, and creates the tables if there are none.
    pub(crate) fn open(&self) -> Result<Arc<PostgresCheckpointer>, CheckpointError> {
        if let Some(open) = self.opened.for_writing.get() {
            return Ok(open.clone());
        }
        let open = Arc::new(PostgresCheckpointer::open(self.options.clone())?);
        Ok(self.opened.for_writing.get_or_init(|| open).clone())
    }

    /// Opens it for reading; `None` if there are no tables.
    pub(crate) fn find(&self) -> Result<Option<Arc<PostgresCheckpointer>>, CheckpointError> {
        if let Some(open) = self.opened.for_reading.get() {
            return Ok(Some(open.clone()));
        }
        let options = self.options.clone().read_only();
        let found = PostgresCheckpointer::find(options)?.map(Arc::new);
        Ok(found.map(|open| self.opened.for_reading.get_or_init(|| open).clone()))
    }

    /// Returns the identity of the schema, which is the same for all names of the server; `None` if there are no tables.
    pub(crate) fn identity(&self) -> Result<Option<String>, CheckpointError> {
        let open = match self.opened.for_writing.get() {
            Some(open) => Some(open.clone()),
            None => self.find()?,
        };
        Ok(open.map(|open| open.identity().to_owned()))
    }
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
        let is_of_variable = env::var_os(VARIABLE).is_some_and(|url| url == given.0);
        Ok(Self::Server(Server { options, name, is_of_variable, opened: Arc::default() }))
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
            Self::Server(server) if !server.is_of_variable => {
                Some(format!("  # with the URL of {} in {VARIABLE}", server.name))
            }
            _ => None,
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
