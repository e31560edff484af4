//! A build without PostgreSQL has no workers.

use crate::{
    args::jobs::AgentWorkerArgs,
    output::exit::{Exit, Failure},
};

pub(crate) async fn worker(_: AgentWorkerArgs) -> Result<Exit, Failure> {
    Err(absent())
}

/// Returns the failure of a command about jobs.
pub(crate) fn absent() -> Failure {
    Failure::missing_feature("a worker, or a job for one,", "postgres")
}
