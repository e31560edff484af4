//! A run on an input of a stored thread, with the recorded inputs of its tasks.
//!
//! Start at [`rerecord`].

use std::sync::Arc;

use superstep_checkpoint::ThreadId;

use super::{
    driver::{Driver, RunInput, limits},
    stop::Stop,
};
use crate::{
    RunError, RunOptions, State,
    compiled::graph::{Backends, Inner},
    journal::supply::RecordedSupply,
    node::cx::RunScope,
};

/// Runs a graph on an input, and stores the run. Returns what a task needed and was not recorded, if the run ended there.
///
/// # Errors
/// The error that ended the run.
pub(crate) async fn rerecord<S: State>(
    graph: Arc<Inner<S>>,
    backends: Backends,
    thread: ThreadId,
    input: S::Update,
    config: RunOptions,
    supply: Arc<RecordedSupply>,
) -> Result<Option<String>, RunError> {
    let (limits, config) = (limits(&graph, &config)?, Arc::new(config));
    let Backends { checkpointer, store, .. } = backends;
    let checkpointer = checkpointer.expect("a thread that is recorded has a store");
    let place = Some((checkpointer.clone(), thread.clone()));
    let scope = RunScope { supply: Some(supply.clone()), ..RunScope::root(config.clone(), place, store) };
    let mut driver = Driver::new(graph, scope, None);
    let lease = checkpointer.lease(&thread).await?;
    let run_input = RunInput::Stored(input);
    let begin = driver.begin_leased(checkpointer, thread, Some(lease), run_input, &config).await;
    match driver.drive(begin.map_err(Stop::into_error)?, limits, &config).await {
        Ok(_) => Ok(None),
        Err(Stop::Halted) => Ok(supply.missing()),
        Err(Stop::Refused(refused)) => Err(refused.error),
    }
}
