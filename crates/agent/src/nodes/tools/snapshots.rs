//! File snapshots around a round.

use superstep_graph::NodeError;
use superstep_llm::snapshots::FileChanges;

use super::{executor::Executor, pending::Pending};
use crate::{AgentEvent, events::emit};

/// Takes a snapshot before anything runs, once: a resumed round is compared with the files at its beginning.
pub(super) async fn before(run: &Executor, calls: &[Pending]) -> Result<Option<String>, NodeError> {
    let Some(snapshots) = &run.deps.snapshots else { return Ok(None) };
    // A hook may change a call to any other.
    let hooked = !run.deps.hooks.acting.is_empty();
    let concerns = |call: &Pending| {
        let declared = run.deps.tools.get(&call.name).and_then(|tool| tool.changes_files());
        matches!(call.checked, Some(Ok(_))) && declared.unwrap_or(true)
    };
    let may_change = |call: &Pending| call.refused.is_none() && (hooked || concerns(call));
    if !calls.iter().any(may_change) {
        return Ok(None);
    }
    let keep = async |_| {
        let thread = run.cx.thread().map(|thread| thread.as_str());
        let kept = snapshots.keep(thread).await;
        Ok::<_, NodeError>(kept.map_err(|error| failed(run, error)).ok())
    };
    run.cx.once("files", keep).await
}

/// Returns the changes since `before`; `None` if unknown.
pub(super) async fn after(run: &Executor, before: Option<String>) -> Option<FileChanges> {
    let (snapshots, before) = (run.deps.snapshots.as_ref()?, before?);
    let thread = run.cx.thread().map(|thread| thread.as_str());
    let compare = async || {
        let after = snapshots.keep(thread).await.map_err(|error| error.to_string())?;
        snapshots.compare(thread, &before, &after).await.map_err(|error| error.to_string())
    };
    let compared: Result<FileChanges, String> = run.cx.recorded("files.after", compare).await;
    match compared {
        Ok(changes) => {
            if !changes.changes.is_empty() {
                emit(&run.cx, || AgentEvent::FilesChanged(changes.clone()));
            }
            Some(changes)
        }
        Err(error) => {
            failed(run, error);
            None
        }
    }
}

fn failed(run: &Executor, reason: impl ToString) {
    emit(&run.cx, || AgentEvent::SnapshotFailed { reason: reason.to_string() });
}
