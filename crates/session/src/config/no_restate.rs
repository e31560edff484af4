//! A build without Restate: no cluster can be named.

use std::sync::Arc;

use superstep::{Checkpointer, checkpoint::CheckpointError};

use crate::{config::names::DbName, error::SessionError};

/// The threads of a cluster, of which this build opens none.
#[derive(Clone)]
pub enum Cluster {}

impl Cluster {
    pub fn new(_: &DbName) -> Result<Self, SessionError> {
        Err(SessionError::missing_feature("a Restate cluster", "restate"))
    }

    pub fn name(&self) -> &str {
        match *self {}
    }

    pub fn open(&self) -> Result<Arc<dyn Checkpointer>, CheckpointError> {
        match *self {}
    }
}
