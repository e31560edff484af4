//! Failed tasks, and supersteps that cannot end.

use std::{collections::BTreeSet, error::Error, sync::Arc};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::Value;
use superstep_engine::{Failure, Input, NodeIndex, NodeName, RestoreError, Run, Task, TaskId};
use superstep_state::{Panicked, chain};

use super::{
    execution::Execution,
    record::store_failed,
    superstep::{FinishedTask, Refused},
};
use crate::{
    FailureKind, NodeError, NodeFailure, RunError, RunOptions, State, journal::interrupts::answer_key,
    node::timeout::TimedOut, run::task::Tasks,
};

/// Creates the failure of a node for its error handler.
pub(super) fn node_failure(
    node: NodeName,
    attempts: u32,
    source: &(dyn Error + 'static),
    data: Option<Value>,
    item: Option<&str>,
) -> NodeFailure {
    let kind = if source.is::<Panicked>() {
        FailureKind::Panic
    } else if source.is::<TimedOut>() {
        FailureKind::Timeout
    } else {
        FailureKind::Error
    };
    let mut failure = NodeFailure::new(node, attempts, kind, source.to_string());
    let mut next = source.source();
    while let Some(cause) = next {
        failure.causes.push(cause.to_string());
        next = cause.source();
    }
    failure.data = data;
    failure.item = item.and_then(|item| serde_json::from_str(item).ok());
    failure
}

/// Creates the error of a task whose update was written by a handler that the graph no longer has.
pub(crate) fn lost_handler(failure: &NodeFailure, graph: &str, step: i64, slot: u32) -> RunError {
    let detail = format!(
        "the error handler of node `{}` wrote it, and the graph has none for that node any more; add it again",
        failure.node
    );
    RunError::Restore { graph: graph.to_owned(), error: RestoreError::BadRecord { step, slot, detail } }
}

/// Passes a failure to the engine, which decides about it.
pub(super) async fn fail_task<S: State>(
    exec: &mut Execution<S>,
    plan: &mut Run,
    task: Task,
    error: NodeError,
) -> Result<(), RunError> {
    let retry = exec.graph.nodes[task.node.position()].retry.policy(&error);
    let refusal = error.is_refusal();
    if let Some(nested) = &mut exec.nested {
        (nested.fatal, nested.refusal) = (error.is_fatal(), refusal);
    }
    let (source, data) = error.into_parts();
    exec.emit.failure(task, &*source);
    let jitter_share = jitter_share(exec, task);
    plan.handle(Input::Failed { task: task.id, retry, jitter_share }).expect("the task was running");
    if plan.node(task.id.slot) != Some(task.node) {
        return hand_over(exec, task, source, data).await;
    }
    if refusal {
        withdraw_answers(exec, task.id);
    }
    if plan.is_stopped(task.id.slot) {
        return store_failed(exec, task.id, task.attempt, chain(&*source)).await;
    }
    exec.superstep.failure = Some((task, source));
    Ok(())
}

/// Stores the failure of a node for the error handler that now runs its task.
pub(super) async fn hand_over<S: State>(
    exec: &mut Execution<S>,
    task: Task,
    source: Box<dyn Error + Send + Sync>,
    data: Option<Value>,
) -> Result<(), RunError> {
    // An error is a Rust value of its process, and the handler may run in another one: the failure is recorded
    // before the handler begins, and a crash in between must not run the node again. So the handler always
    // receives the same `NodeFailure`.
    let slot = task.id.slot;
    let node = exec.graph.topology.name(task.node).clone();
    let item = exec.superstep.items.get(&slot).map(String::as_str);
    let recorded = exec.cx.recorder.failure(task.id, &exec.graph.topology, task.node);
    let failure = recorded.unwrap_or_else(|| node_failure(node, task.attempt, &*source, data, item));
    exec.superstep.failures.insert(slot, Arc::new(failure));
    exec.superstep.open_questions.remove(&slot);
    exec.cx.interrupts.drop_answers(task.id);
    exec.cx.effects.forget(task.id);
    store_failed(exec, task.id, 0, chain(&*source)).await
}

/// Drops the answers of this run to the questions of a task, which refuses it.
pub(super) fn withdraw_answers<S: State>(exec: &Execution<S>, task: TaskId) {
    let keys = exec.superstep.open_questions.get(&task.slot).into_iter().flatten().map(answer_key);
    exec.cx.interrupts.withdraw(task, keys);
}

pub(super) fn failed<S: State>(exec: &mut Execution<S>, failure: Failure, config: &RunOptions) -> Refused {
    match failure {
        Failure::Task(id) => {
            let (task, source) =
                exec.superstep.failure.take().expect("the engine gives up only after a failure");
            let node = exec.graph.topology.name(task.node).clone();
            let error = RunError::Node { node, step: id.step, attempts: task.attempt, source };
            Refused { error, blamed: vec![id.slot] }
        }
        Failure::Conflict { channel, first, second } => {
            let node = |task: TaskId| {
                let done = exec.superstep.done[task.slot as usize].as_ref().expect("both tasks are finished");
                exec.graph.topology.name(done.node).clone()
            };
            let wrote = |done: &FinishedTask<S>| {
                done.update.as_ref().is_some_and(|update| exec.state.written(update).contains(channel))
            };
            // All conflicts are reported, because the next run would find the others, although their
            // nodes may write other values now.
            let slots = (0..).zip(&exec.superstep.done);
            let blamed = slots.filter(|(_, done)| done.as_ref().is_some_and(wrote));
            let blamed = blamed.map(|(slot, _)| slot).collect();
            let error = RunError::Conflict {
                channel: exec.state.channels()[channel].name.clone(),
                step: first.step,
                first: node(first),
                second: node(second),
            };
            Refused { error, blamed }
        }
        Failure::StepLimit { next } => {
            Refused { error: RunError::StepLimit { limit: config.step_limit, next }, blamed: Vec::new() }
        }
    }
}

pub(super) fn too_long<S: State>(
    exec: &Execution<S>,
    plan: &Run,
    tasks: &Tasks<S>,
    config: &RunOptions,
) -> RunError {
    let unfinished: BTreeSet<NodeIndex> = tasks.at_work().map(|task| task.node).collect();
    let name = |node| exec.graph.topology.name(node).clone();
    RunError::StepTimeout {
        step: plan.task(0).step,
        limit: config.step_timeout.unwrap_or_default(),
        unfinished: unfinished.into_iter().map(name).collect(),
    }
}

/// Returns the share of the jitter for a failed attempt: drawn from the seed, so that a replay waits
/// equally.
pub(super) fn jitter_share<S: State>(exec: &Execution<S>, task: Task) -> f64 {
    let attempt = (task.id.step as u64) << 32 ^ u64::from(task.id.slot) << 16 ^ u64::from(task.attempt);
    // Spread over all bits, so that similar seeds and attempts do not collide.
    StdRng::seed_from_u64(exec.cx.seed ^ attempt.wrapping_mul(0xD1B5_4A32_D192_ED03)).random()
}
