//! The place of a database: a file, a schema of a PostgreSQL server, or a namespace of a Restate cluster.
//!
//! Start at [`Db`].

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::{
    config::{names::DbName, postgres::Server, restate::Cluster},
    error::SessionError,
};

#[derive(Clone)]
pub enum Db {
    File(PathBuf),
    Server(Server),
    Cluster(Cluster),
}

impl Db {
    /// Finds the place of a name.
    ///
    /// # Errors
    /// It is not a valid URL, or this build has not the feature that opens it.
    pub fn parse(given: &DbName) -> Result<Self, SessionError> {
        if given.is_server() {
            Server::new(given).map(Self::Server)
        } else if given.is_cluster() {
            Cluster::new(given).map(Self::Cluster)
        } else {
            Ok(Self::File(given.0.clone().into()))
        }
    }

    /// Returns the file; `None` if it is on a server.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(file) => Some(file),
            Self::Server(_) | Self::Cluster(_) => None,
        }
    }

    /// Returns the remark behind a suggested command that needs the URL, which no output contains.
    pub(crate) fn remark(&self) -> Option<String> {
        match self {
            Self::File(_) | Self::Cluster(_) => None,
            Self::Server(server) => server.remark(),
        }
    }
}

impl fmt::Display for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.display().fmt(f),
            Self::Server(server) => f.write_str(server.name()),
            Self::Cluster(cluster) => f.write_str(cluster.name()),
        }
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
