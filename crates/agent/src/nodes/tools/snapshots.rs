//! File snapshots around a round.

use std::path::Path;

use superstep_graph::{Cx, NodeError, ThreadId, node::Discarded};
use superstep_llm::snapshots::{FileChanges, Snapshots};

use super::{pending::Pending, round::Round};
use crate::{
    AgentEvent,
    deps::{AgentDeps, folder::snapshots_in},
    events::emit,
};

/// The key of the snapshot before a round.
const BEFORE: &str = "files";

/// The key of the changes since.
const CHANGES: &str = "files.after";

// Not in nodes of their own: the changes are committed with the results of the round or not at all, and a custom route cannot bypass
// them.
/// Takes a snapshot before anything runs, once: a resumed round is compared with the files at its beginning.
pub(super) async fn before(round: &Round, calls: &[Pending]) -> Result<Option<String>, NodeError> {
    let Some(snapshots) = &round.deps.snapshots else { return Ok(None) };
    // A hook may change a call to any other.
    let hooked = !round.deps.hooks.acting.is_empty();
    let concerns = |call: &Pending| {
        let declared = round.deps.tools.get(&call.name).and_then(|tool| tool.changes_files());
        matches!(call.checked, Some(Ok(_))) && declared.unwrap_or(true)
    };
    let may_change = |call: &Pending| call.refused.is_none() && (hooked || concerns(call));
    if !calls.iter().any(may_change) {
        return Ok(None);
    }
    let keep = async |_| {
        let thread = round.cx.thread().map(|thread| thread.as_str());
        let kept = snapshots.keep(thread).await;
        Ok::<_, NodeError>(kept.map_err(|error| failed(&round.cx, error)).ok())
    };
    round.cx.once(BEFORE, keep).await
}

/// Returns the snapshot before a discarded round.
pub(super) fn taken(round: &Discarded<'_>) -> Option<String> {
    round.did::<Option<String>>(BEFORE).flatten()
}

/// Returns the changes since `before`; `None` if unknown.
pub(super) async fn after(round: &Round, before: Option<String>) -> Option<FileChanges> {
    let (snapshots, before) = (round.deps.snapshots.as_ref()?, before?);
    let compare = async || changes(&**snapshots, &before, &round.cx).await;
    reported(round.cx.recorded(CHANGES, compare).await, &round.cx)
}

// In the next turn, because the update of a discarded round is computed from its records alone and cannot read files. A round of which no
// call ran has changed nothing, so that the user's own changes while it waited are left alone.
/// Returns the changes of a discarded round in the folder of the next turn, since the snapshot before it; `None` if unknown.
pub(crate) async fn of_discarded(
    deps: &AgentDeps,
    folder: Option<&Path>,
    before: &str,
    cx: &Cx,
) -> Option<FileChanges> {
    let compare = async || match snapshots_in(deps, folder, cx) {
        Some(snapshots) => changes(&*snapshots, before, cx).await,
        None => {
            Err("the changes of the discarded round are unknown, because this turn takes no snapshots"
                .to_owned())
        }
    };
    reported(cx.recorded(CHANGES, compare).await, cx)
}

async fn changes(snapshots: &dyn Snapshots, before: &str, cx: &Cx) -> Result<FileChanges, String> {
    let thread = cx.thread().map(ThreadId::as_str);
    let after = snapshots.keep(thread).await.map_err(|error| error.to_string())?;
    snapshots.compare(thread, before, &after).await.map_err(|error| error.to_string())
}

/// Emits the changes, or the reason why they are unknown.
fn reported(compared: Result<FileChanges, String>, cx: &Cx) -> Option<FileChanges> {
    match compared {
        Ok(changes) => {
            if !changes.changes.is_empty() {
                emit(cx, || AgentEvent::FilesChanged(changes.clone()));
            }
            Some(changes)
        }
        Err(error) => {
            failed(cx, error);
            None
        }
    }
}

fn failed(cx: &Cx, reason: impl ToString) {
    emit(cx, || AgentEvent::SnapshotFailed { reason: reason.to_string() });
}
