//! A run along a stored thread.
//!
//! Start at [`replay`].

use std::sync::Arc;

use super::{
    driver::{Driver, RunInput, limits},
    stop::Stop,
};
use crate::{
    RunError, RunOptions, State,
    compiled::graph::{Backends, Inner},
    journal::replay_script::ReplayCursor,
    node::cx::RunScope,
};

/// Runs a graph along a thread, from an input or from the place of the cursor, to the end of the script's line. Returns
/// whether it is stuck: it cannot continue, although it did not diverge.
///
/// # Errors
/// The error that ended the run, unless the script has it as a divergence.
pub(crate) async fn replay<S: State>(
    graph: Arc<Inner<S>>,
    backends: Backends,
    run_input: RunInput<S>,
    config: RunOptions,
    cursor: ReplayCursor,
) -> Result<bool, RunError> {
    let script = cursor.script.clone();
    match run(graph, backends, run_input, config, cursor).await {
        Ok(()) => Ok(false),
        Err(Stop::Halted) => Ok(!script.is_over()),
        // It was noted as a difference.
        Err(Stop::Refused(_)) if script.found().is_some() => Ok(false),
        Err(Stop::Refused(refused)) => Err(refused.error),
    }
}

async fn run<S: State>(
    graph: Arc<Inner<S>>,
    backends: Backends,
    run_input: RunInput<S>,
    config: RunOptions,
    cursor: ReplayCursor,
) -> Result<(), Stop> {
    let (limits, config) = (limits(&graph, &config)?, Arc::new(config));
    let Backends { checkpointer, store, .. } = backends;
    let checkpointer = checkpointer.expect("a replay has a store");
    let place = Some((checkpointer.clone(), cursor.thread.clone()));
    let scope = RunScope { cursor: Some(cursor.clone()), ..RunScope::root(config.clone(), place, store) };
    let mut driver = Driver::new(graph, scope, None);
    // The caller has the lease of a live replay; any other one writes nothing.
    let begin = driver.begin_leased(checkpointer, cursor.thread.clone(), None, run_input, &config).await?;
    if cursor.script.place(&cursor.thread).1.is_some() {
        driver.drive(begin, limits, &config).await?;
    }
    Ok(())
}
