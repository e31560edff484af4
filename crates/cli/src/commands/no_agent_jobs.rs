//! A build without PostgreSQL has no jobs.

use crate::{
    args::jobs::AgentJobsCommand,
    commands::worker::absent,
    output::exit::{Exit, Failure},
};

pub(crate) async fn jobs(_: AgentJobsCommand) -> Result<Exit, Failure> {
    Err(absent())
}
