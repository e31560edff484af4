//! A build without PostgreSQL has no jobs.

use superstep_session::error::SessionError;

use crate::{args::jobs::AgentJobsCommand, commands::worker::absent, output::exit::Exit};

pub(crate) async fn jobs(_: AgentJobsCommand) -> Result<Exit, SessionError> {
    Err(absent())
}
