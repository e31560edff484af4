//! A build without PostgreSQL: no server can be named.

use std::sync::Arc;

use superstep::{Checkpointer, Store, checkpoint::CheckpointError};

use crate::{config::names::DbName, error::SessionError};

/// A schema of a server, of which this build opens none.
#[derive(Clone)]
pub enum Server {}

impl Server {
    pub fn new(_: &DbName) -> Result<Self, SessionError> {
        Err(SessionError::missing_feature("a PostgreSQL database", "postgres"))
    }

    pub fn name(&self) -> &str {
        match *self {}
    }

    pub(crate) fn remark(&self) -> Option<String> {
        match *self {}
    }

    pub(crate) fn open_or_create(&self) -> Result<(Arc<dyn Checkpointer>, bool), CheckpointError> {
        match *self {}
    }

    pub fn find(&self) -> Result<Option<Arc<dyn Checkpointer>>, CheckpointError> {
        match *self {}
    }

    pub fn items(&self) -> Result<Arc<dyn Store>, CheckpointError> {
        match *self {}
    }

    pub(crate) fn identity(&self) -> Result<Option<String>, CheckpointError> {
        match *self {}
    }
}
