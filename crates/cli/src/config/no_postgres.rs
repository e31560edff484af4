//! A build without PostgreSQL: no server can be named.

use std::sync::Arc;

use superstep::{Checkpointer, Store, checkpoint::CheckpointError};

use crate::{config::names::DbName, output::exit::Failure};

/// A schema of a server, of which this build opens none.
#[derive(Clone)]
pub(crate) enum Server {}

impl Server {
    pub(crate) fn new(_: &DbName) -> Result<Self, Failure> {
        Err(Failure::missing_feature("a PostgreSQL database", "postgres"))
    }

    pub(crate) fn name(&self) -> &str {
        match *self {}
    }

    pub(crate) fn remark(&self) -> Option<String> {
        match *self {}
    }

    pub(crate) fn open_or_create(&self) -> Result<(Arc<dyn Checkpointer>, bool), CheckpointError> {
        match *self {}
    }

    pub(crate) fn find(&self) -> Result<Option<Arc<dyn Checkpointer>>, CheckpointError> {
        match *self {}
    }

    pub(crate) fn items(&self) -> Result<Arc<dyn Store>, CheckpointError> {
        match *self {}
    }

    pub(crate) fn identity(&self) -> Result<Option<String>, CheckpointError> {
        match *self {}
    }
}
