//! The values of checkpoints and records, sealed and opened.
//!
//! The names of nodes and effects, numbers and times remain readable, because a checkpointer and its indexes need them. Those of a
//! checkpoint are bound to its sealed metadata, so that a change of them is an error.
//!
//! Start at [`Sealer`] and [`Opener`].

mod opener;
mod sealer;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use superstep_checkpoint::{
    CheckpointId, CheckpointMeta, NodeFailure, Question, RecordedTarget, Source, ThreadId,
};
use superstep_engine::{Control, NodeName};
use superstep_state::RawJson;

pub(crate) use self::{
    opener::{Located, Opener, Read},
    sealer::Sealer,
};
use crate::{
    form::{Fault, Position},
    path::PathDigest,
};

/// The readable columns of a checkpoint, as they are bound to its metadata.
#[derive(Serialize)]
struct Columns<'a> {
    id: CheckpointId,
    parent: Option<CheckpointId>,
    source: Source,
    created_ms: i64,
    control: &'a Control,
}

impl Columns<'_> {
    fn text(&self) -> String {
        serde_json::to_string(self).expect("names and numbers become JSON")
    }
}

/// The sealed metadata of a checkpoint.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    metadata: Map<String, Value>,
    /// The tasks that it applied, in fold order.
    applied: Vec<(u32, NodeName)>,
    /// The path to it; `None` if a checkpoint on it is readable, or of a version without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<PathDigest>,
}

/// The sealed part of a finished task, beside its update.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Finished {
    targets: Vec<RecordedTarget>,
    failure: Option<Box<NodeFailure>>,
}

/// The sealed part of an interrupted task.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Interrupted {
    questions: Vec<Question>,
    answers: BTreeMap<String, RawJson>,
    asked: BTreeMap<String, Question>,
    error: Option<String>,
}

/// Returns the path of a thread below its root.
fn path(thread: &ThreadId) -> &str {
    thread.as_str().split_once(superstep_checkpoint::internal::SEPARATOR).map_or("", |(_, path)| path)
}

fn position(at: Option<u64>, of: Option<u64>, slot: Option<u32>) -> Position {
    Position { at, of, slot }
}

fn json(value: &impl Serialize) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(Fault::NotJson)
}

fn parse<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(Fault::malformed)
}

fn columns_of(meta: &CheckpointMeta) -> Columns<'_> {
    let CheckpointMeta { id, parent, source, control, created_ms, .. } = meta;
    Columns { id: *id, parent: *parent, source: *source, created_ms: *created_ms, control }
}
