//! A schema of a PostgreSQL server.
//!
//! Start at [`Server`].

use std::{
    env,
    sync::{Arc, OnceLock},
};

use superstep::{
    Checkpointer, Store,
    checkpoint::CheckpointError,
    postgres::{PostgresCheckpointer, PostgresOptions, PostgresStore},
    store::StoreOptions,
};

use crate::{
    config::names::{DbName, VARIABLE},
    error::SessionError,
};

#[derive(Clone)]
pub struct Server {
    pub options: PostgresOptions,
    /// The name of the database without user and password.
    name: String,
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
    /// Reads the URL of `--db`.
    ///
    /// # Errors
    /// It is not valid.
    pub fn new(given: &DbName) -> Result<Self, SessionError> {
        let options = PostgresOptions::new(given.0.to_string_lossy().into_owned());
        let name = options.location()?;
        let is_of_variable = env::var_os(VARIABLE).is_some_and(|url| url == given.0);
        Ok(Self { options, name, is_of_variable, opened: Arc::default() })
    }

    /// Returns the name of the database without user and password.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the remark behind a suggested command, unless the variable has the URL.
    pub(crate) fn remark(&self) -> Option<String> {
        (!self.is_of_variable).then(|| format!("  # with the URL of {} in {VARIABLE}", self.name))
    }

    fn writing(&self) -> Result<Arc<PostgresCheckpointer>, CheckpointError> {
        if let Some(open) = self.opened.for_writing.get() {
            return Ok(open.clone());
        }
        let open = Arc::new(PostgresCheckpointer::open(self.options.clone())?);
        Ok(self.opened.for_writing.get_or_init(|| open).clone())
    }

    fn reading(&self) -> Result<Option<Arc<PostgresCheckpointer>>, CheckpointError> {
        if let Some(open) = self.opened.for_reading.get() {
            return Ok(Some(open.clone()));
        }
        let options = self.options.clone().read_only();
        let found = PostgresCheckpointer::find(options)?.map(Arc::new);
        Ok(found.map(|open| self.opened.for_reading.get_or_init(|| open).clone()))
    }

    /// Opens it for writing, and creates the tables if there are none, which is the second part of the result.
    pub(crate) fn open_or_create(&self) -> Result<(Arc<dyn Checkpointer>, bool), CheckpointError> {
        let open = self.writing()?;
        let is_new = open.is_new();
        Ok((open, is_new))
    }

    /// Opens it for reading; `None` if there are no tables.
    pub fn find(&self) -> Result<Option<Arc<dyn Checkpointer>>, CheckpointError> {
        Ok(self.reading()?.map(|open| open as Arc<dyn Checkpointer>))
    }

    /// Opens the items beside the threads, for writing.
    pub fn items(&self) -> Result<Arc<dyn Store>, CheckpointError> {
        let threads = self.writing()?;
        Ok(Arc::new(PostgresStore::beside(&threads, StoreOptions::default())))
    }

    /// Returns the identity of the schema, which is the same for all names of the server; `None` if there are no tables.
    pub(crate) fn identity(&self) -> Result<Option<String>, CheckpointError> {
        let open = match self.opened.for_writing.get() {
            Some(open) => Some(open.clone()),
            None => self.reading()?,
        };
        Ok(open.map(|open| open.identity().to_owned()))
    }
}
