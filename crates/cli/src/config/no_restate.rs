//! A build without Restate: no cluster can be named.

use std::sync::Arc;

use superstep::{Checkpointer, checkpoint::CheckpointError};

use crate::{config::names::DbName, output::exit::Failure};

/// The threads of a cluster, of which this build opens none.
#[derive(Clone)]
pub(crate) enum Cluster {}

impl Cluster {
    pub(crate) fn new(_: &DbName) -> Result<Self, Failure> {
        Err(Failure::missing_feature("a Restate cluster", "restate"))
    }

    pub(crate) fn name(&self) -> &str {
        match *self {}
    }

    pub(crate) fn open(&self) -> Result<Arc<dyn Checkpointer>, CheckpointError> {
        match *self {}
    }
}
