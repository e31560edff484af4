//! The spans and events of runs, for `tracing`. No field has a value of the state.
//!
//! | span or event | level | fields |
//! |---|---|---|
//! | `run` | info | `graph`, `thread`, `subgraph`; at its end `status` or `error.type` |
//! | `node`, one for each attempt | info | `node`, `superstep`, `slot`, `attempt`; at its end `status` or `error.type` |
//! | a stored checkpoint | debug | `checkpoint`, `superstep`, `tasks`, `bytes` |
//! | a failed automatic prune | warn | `error` |
//! | a failed attempt that is repeated | warn | `node`, `superstep`, `attempt`, `delay_ms`, `error` |
//!
//! The fields `otel.name` and `otel.status_code` are those that `tracing-opentelemetry` reads.

use std::{error::Error, future::poll_fn, pin::Pin};

use superstep_checkpoint::{AppliedTask, CheckpointId};
use superstep_engine::{NodeName, Task};
use superstep_state::{Panicked, chain};
use tracing::{Level, Span, field::Empty};

use super::superstep::{Stop, TaskResult};
use crate::{
    RunError, State, Status,
    node::{cx::RunScope, timeout::TimedOut},
};

/// Returns the span of a run. Its fields are computed only if something listens.
pub(super) fn run(graph: &str, scope: &RunScope) -> Span {
    let path = &scope.path;
    tracing::info_span!(
        "run",
        graph,
        thread = scope.config.thread.as_ref().map(|thread| thread.root().to_string()),
        subgraph = (!path.is_root()).then(|| path.to_string()),
        status = Empty,
        "error.type" = Empty,
        otel.name = %format_args!("run {graph}"),
        otel.status_code = Empty,
    )
}

/// Polls a future inside of a span. `Instrument` would take the future, which doubles its size in that of its caller.
pub(super) async fn inside<F: Future>(span: &Span, mut future: Pin<&mut F>) -> F::Output {
    poll_fn(|cx| span.in_scope(|| future.as_mut().poll(cx))).await
}

/// Records the end of a run.
pub(super) fn ended(span: &Span, ended: &Result<Status, Stop>) {
    if span.is_disabled() {
        return;
    }
    match ended {
        Ok(status) => _ = span.record("status", format!("{status:?}").to_lowercase()),
        Err(Stop::Refused(refused)) => {
            let text = refused.error.to_string();
            failed(span, text.split(':').next().unwrap_or_default());
        }
        // A replay found a difference.
        Err(Stop::Halted) => _ = span.record("status", "halted"),
    }
}

/// Emits the event of a prune at the end of a run that failed.
pub(super) fn not_pruned(error: &RunError) {
    tracing::warn!(error = chain(error), "older checkpoints were not deleted; the next run tries again");
}

/// Emits that the results of effects of a dropped run could not be stored.
pub(super) fn effects_lost(error: &RunError) {
    tracing::warn!(error = chain(error), "results of effects of a dropped run were not stored");
}

fn failed(span: &Span, kind: &str) {
    span.record("error.type", kind).record("otel.status_code", "ERROR");
}

/// Returns the span of an attempt of a task; `None` if nothing listens.
pub(super) fn attempt(node: &NodeName, task: Task, attempt: u32) -> Option<Box<Span>> {
    let span = tracing::info_span!(
        "node",
        %node,
        superstep = task.id.step,
        slot = task.id.slot,
        attempt,
        status = Empty,
        "error.type" = Empty,
        otel.name = node.as_str(),
        otel.status_code = Empty,
    );
    (!span.is_disabled()).then(|| Box::new(span))
}

/// Records the end of an attempt.
pub(super) fn attempted<S: State>(span: &Span, result: &TaskResult<S>) {
    match result {
        TaskResult::Finished(..) => _ = span.record("status", "finished"),
        TaskResult::Interrupted(_) => _ = span.record("status", "interrupted"),
        TaskResult::Failed(error) if error.cause().is::<Panicked>() => failed(span, "panic"),
        TaskResult::Failed(error) if error.cause().is::<TimedOut>() => failed(span, "timeout"),
        TaskResult::Failed(_) => failed(span, "error"),
    }
}

/// Emits that a failed attempt is repeated.
pub(super) fn repeated(node: &NodeName, failed: Task, error: &(dyn Error + 'static), again: Task) {
    tracing::warn!(
        %node,
        superstep = failed.id.step,
        attempt = failed.attempt,
        delay_ms = u64::try_from(again.delay.as_millis()).unwrap_or(u64::MAX),
        error = chain(error),
        "a failed attempt is repeated",
    );
}

/// Returns about how many bytes the updates of a checkpoint have; 0 if nothing listens.
pub(super) fn bytes(applied: &[AppliedTask]) -> usize {
    if tracing::enabled!(Level::DEBUG) { applied.iter().map(|task| task.update.bytes()).sum() } else { 0 }
}

/// Emits that a checkpoint was stored, or is about to be with another durability than `Sync`.
pub(super) fn stored(checkpoint: CheckpointId, superstep: i64, tasks: usize, bytes: usize) {
    tracing::debug!(checkpoint = checkpoint.0, superstep, tasks, bytes, "a checkpoint is stored");
}
