//! Runs that no graph called: of a program, of a replay, and of a thread that is recorded again.
//!
//! Start at [`run`].

use std::sync::Arc;

use futures::future::BoxFuture;

use super::{
    begin::{RunInput, begin_leased, begin_with_store, begin_without_store},
    breakpoints::limits,
    driver::{drive, new_execution},
    execution::Execution,
    prune::retain,
    stop::fold_early,
    superstep::Stop,
};
use crate::{
    Outcome, RunError, RunOptions, State, Status, ThreadId,
    compiled::graph::{Backends, Inner},
    journal::{replay_script::ReplayCursor, supply::RecordedSupply},
    node::cx::RunScope,
    run::{restore::head_state, thread_writer::ThreadWriter},
    stream::emitter::Events,
};

/// Runs a graph on a thread: from an input, or from the thread's current state.
///
/// The future is boxed, because it is large and callers move it several times before they poll it.
pub(crate) fn run<S: State>(
    graph: Arc<Inner<S>>,
    backends: Backends,
    input: RunInput<S>,
    config: RunOptions,
    events: Option<Events<S>>,
) -> BoxFuture<'static, Result<Outcome<S>, RunError>> {
    Box::pin(run_to_end(graph, backends, input, Arc::new(config), events))
}

async fn run_to_end<S: State>(
    graph: Arc<Inner<S>>,
    backends: Backends,
    input: RunInput<S>,
    config: Arc<RunOptions>,
    events: Option<Events<S>>,
) -> Result<Outcome<S>, RunError> {
    config.check_metadata()?;
    let limits = limits(&graph, &config)?;
    if let Some(thread) = config.thread.clone().filter(ThreadId::is_child) {
        return Err(RunError::ChildThread { thread });
    }
    let Backends { checkpointer, store, retention } = backends;
    let place = checkpointer.clone().zip(config.thread.clone());
    let scope = RunScope::root(config.clone(), place, store);
    let mut exec = new_execution(graph, scope, events);
    if let Some(events) = &exec.emit.events {
        events.check(&exec.state)?;
    }
    let begin = match checkpointer {
        None => begin_without_store(&mut exec, input, &config)?,
        Some(checkpointer) => {
            let begin = begin_with_store(&mut exec, checkpointer, input, &config);
            begin.await.map_err(Stop::into_error)?
        }
    };
    let status = drive(&mut exec, begin, limits, &config).await.map_err(Stop::into_error)?;
    if let (Some(keep), Some(writer)) = (&retention, &exec.writer) {
        retain(&exec.graph, writer, keep).await;
    }
    Ok(outcome(exec, status, &config))
}

fn outcome<S: State>(mut exec: Execution<S>, status: Status, config: &RunOptions) -> Outcome<S> {
    if let (Some(writer), true) = (&exec.writer, exec.is_head) {
        writer.remember(|nonce, since| head_state(&exec.graph, nonce, &exec.state, since));
    }
    if status != Status::Completed {
        fold_early(&mut exec);
    }
    let checkpoint = exec.writer.as_ref().and_then(ThreadWriter::at);
    let waiting = exec.superstep.waiting.into_values().flatten();
    let interrupts = waiting.map(|question| question.interrupt).collect();
    let drained = config.drain.requested().filter(|_| status == Status::Drained).map(str::to_owned);
    Outcome { state: exec.state, status, checkpoint, interrupts, drained }
}

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
    match replay_to_end(graph, backends, run_input, config, cursor).await {
        Ok(()) => Ok(false),
        Err(Stop::Halted) => Ok(!script.is_over()),
        // It was noted as a difference.
        Err(Stop::Refused(_)) if script.found().is_some() => Ok(false),
        Err(Stop::Refused(refused)) => Err(refused.error),
    }
}

async fn replay_to_end<S: State>(
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
    let mut exec = new_execution(graph, scope, None);
    // The caller has the lease of a live replay; any other one writes nothing.
    let begin =
        begin_leased(&mut exec, checkpointer, cursor.thread.clone(), None, run_input, &config).await?;
    if cursor.script.place(&cursor.thread).1.is_some() {
        drive(&mut exec, begin, limits, &config).await?;
    }
    Ok(())
}

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
    let mut exec = new_execution(graph, scope, None);
    let lease = checkpointer.lease(&thread).await?;
    let run_input = RunInput::Stored(input);
    let begin = begin_leased(&mut exec, checkpointer, thread, Some(lease), run_input, &config).await;
    match drive(&mut exec, begin.map_err(Stop::into_error)?, limits, &config).await {
        Ok(_) => Ok(None),
        Err(Stop::Halted) => Ok(supply.missing()),
        Err(Stop::Refused(refused)) => Err(refused.error),
    }
}
