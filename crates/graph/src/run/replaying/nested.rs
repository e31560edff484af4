//! Replaying the graphs that a task calls.

use std::sync::atomic::Ordering;

use futures::{FutureExt as _, future::BoxFuture};
use serde_json::Value;
use superstep_checkpoint::Segment;

use crate::{
    CheckpointId, Cx, NodeError,
    journal::{
        divergence::Deviation,
        parent_recorder::ParentRecorder,
        recorder::{ReplayMode, in_effect},
        replay_script::{self, ReplayCursor},
    },
    node::cx::RunScope,
};

/// Returns the thread of a called graph that is replayed, and the recorder of its tasks if it has no thread.
pub(in crate::run) fn recorded_of(
    cx: &Cx,
    segment: &Segment,
    key: &str,
    nowhere: bool,
) -> (Option<ReplayCursor>, Option<ParentRecorder>) {
    let run = &cx.0.run;
    if in_effect() {
        return (None, None);
    }
    let cursor = run.scope.cursor.as_ref().map(|cursor| {
        let at = cursor.script.place(&cursor.thread).0.map(|at| at.id);
        let task = segment.task.map(|(slot, checkpoint)| (slot, at.unwrap_or(checkpoint)));
        let thread = cursor.thread.child(&Segment { task, ..segment.clone() });
        ReplayCursor { script: cursor.script.clone(), thread }
    });
    let parent = || match &run.scope.parent {
        Some(parent) => parent.inside(cx.0.task, key),
        None => ParentRecorder {
            recorder: run.recorder.clone(),
            since_ms: run.since_ms.load(Ordering::Relaxed),
            task: cx.0.task,
            path: Vec::new(),
            key: key.to_owned(),
        },
    };
    (cursor, (nowhere && (run.recorder.records || run.recorder.replays)).then(parent))
}

/// Moves a replay to the place where a graph was called. Resolves to the reason if that is not possible; `None` if the call is
/// not replayed on its own thread.
pub(in crate::run) fn seek<'a>(
    cx: &'a Cx,
    key: &'a str,
    scope: &RunScope,
    is_own: bool,
) -> Option<BoxFuture<'a, Result<Option<Deviation>, NodeError>>> {
    if matches!(cx.0.run.recorder.mode(cx.0.task), ReplayMode::Adopted(_)) {
        // The effects of its nodes would be live.
        return Some(async { Ok(Some(Deviation::Call { key: key.to_owned() })) }.boxed());
    }
    let cursor = scope.cursor.clone()?;
    scope.place.as_ref()?;
    Some(deviation_of(cx, key, cursor, is_own).boxed())
}

async fn deviation_of(
    cx: &Cx,
    key: &str,
    cursor: ReplayCursor,
    is_own: bool,
) -> Result<Option<Deviation>, NodeError> {
    if is_own && cursor.script.is_any_live() {
        cursor.script.refuse(cx.node());
        return Ok(Some(Deviation::Unknown));
    }
    if cx.0.origin.is_some() {
        // Before the update, it ran with another state.
        return Ok(Some(Deviation::Unknown));
    }
    let caller = cx.0.run.scope.cursor.as_ref();
    let at = caller.and_then(|caller| caller.script.place(&caller.thread).0);
    let task = Some((cx.0.task.slot, at.map_or(CheckpointId(0), |at| at.id)));
    let task = Segment { node: cx.node_at_begin().clone(), task, key: key.to_owned() };
    let called = cursor.script.seek(&cursor.thread, &Value::String(task.to_string())).await?;
    Ok(match called {
        replay_script::CallReplay::Yes => None,
        replay_script::CallReplay::Otherwise => Some(Deviation::Unknown),
        replay_script::CallReplay::Never => Some(Deviation::Call { key: key.to_owned() }),
    })
}
