//! A build without PostgreSQL has no workers.

use superstep_session::error::SessionError;

use crate::{args::jobs::AgentWorkerArgs, output::exit::Exit};

pub(crate) async fn worker(_: AgentWorkerArgs) -> Result<Exit, SessionError> {
    Err(absent())
}

/// Returns the failure of a command about jobs.
pub(crate) fn absent() -> SessionError {
    SessionError::missing_feature("a worker, or a job for one,", "postgres")
}
