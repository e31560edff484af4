//! The origins of tasks that an external update left pending: a checkpoint other than the one that planned
//! them.
//!
//! Start at [`Origins`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use superstep_checkpoint::{CheckpointMeta, internal::own::ORIGINS};
use superstep_engine::{Control, NodeIndex, NodeName, Topology};

use crate::{CheckpointId, ThreadId};

/// The first place of a task, which its key, its questions and the threads of its called graphs are named
/// after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The checkpoint that planned it, and its time.
    pub(crate) checkpoint: CheckpointId,
    pub(crate) since_ms: i64,
    /// The task's original superstep and slot.
    pub(crate) step: i64,
    pub(crate) slot: u32,
}

/// The occasion on which a task asks: its first place, and the thread.
#[derive(Clone, Copy)]
pub(crate) struct QuestionContext<'a> {
    pub(crate) origin: Origin,
    /// Distinguishes the thread from others, and from deleted threads of the same name.
    pub(crate) nonce: Option<&'a str>,
    /// Distinguishes it from others if it has no nonce. `None` in a graph without storage.
    pub(crate) thread: Option<&'a ThreadId>,
}

/// The origins of tasks that started at an earlier checkpoint, by slot.
pub(crate) type CarriedOrigins = BTreeMap<u32, Origin>;

/// The origins of a checkpoint's tasks: usually that checkpoint.
#[derive(Clone)]
pub(crate) struct Origins {
    here: Origin,
    pub(crate) carried: CarriedOrigins,
    /// The nonce of the thread.
    pub(crate) nonce: Option<String>,
}

impl Origins {
    pub(crate) fn of(meta: &CheckpointMeta) -> Self {
        let stored = meta.metadata.get(ORIGINS).map(CarriedOrigins::deserialize);
        // Unreadable data was not written by this program.
        let carried = stored.and_then(Result::ok).unwrap_or_default();
        let nonce = meta.nonce().map(str::to_owned);
        Self::new(meta.id, meta.created_ms, meta.control.step, carried).with_nonce(nonce)
    }

    /// Creates the origins of a checkpoint that is about to be stored, after superstep `step`.
    pub(crate) fn new(checkpoint: CheckpointId, since_ms: i64, step: i64, carried: CarriedOrigins) -> Self {
        Self { here: Origin { checkpoint, since_ms, step: step + 1, slot: 0 }, carried, nonce: None }
    }

    pub(crate) fn with_nonce(self, nonce: Option<String>) -> Self {
        Self { nonce, ..self }
    }

    pub(crate) fn get(&self, slot: u32) -> Origin {
        self.carried.get(&slot).copied().unwrap_or(Origin { slot, ..self.here })
    }

    /// Returns the occasion of the questions of a task.
    pub(crate) fn occasion<'a>(&'a self, slot: u32, thread: &'a ThreadId) -> QuestionContext<'a> {
        QuestionContext { origin: self.get(slot), nonce: self.nonce.as_deref(), thread: Some(thread) }
    }

    /// Returns the place of the calling task in a thread's name.
    pub(crate) fn caller(&self, slot: u32) -> (u32, CheckpointId) {
        let Origin { slot, checkpoint, .. } = self.get(slot);
        (slot, checkpoint)
    }
}

/// Returns the names under which tasks of renamed nodes were planned, by slot.
pub(crate) fn planned_names(topology: &Topology, control: &Control) -> BTreeMap<u32, NodeName> {
    let planned = (0..).zip(&control.next);
    let renamed = planned.filter(|(_, name)| topology.present_name(name) != *name);
    renamed.map(|(slot, name)| (slot, name.clone())).collect()
}

/// Returns the name that the node of a task had when the task began: that of the checkpoint which planned it. No checkpoint names
/// the error handler that runs as a task, so that is its first name.
pub(crate) fn name_at_begin<'a>(
    topology: &'a Topology,
    planned: Option<&'a NodeName>,
    node: NodeIndex,
) -> &'a NodeName {
    match planned.filter(|planned| topology.find(planned.as_str()) == Some(node)) {
        Some(planned) => planned,
        None if topology.is_handler(node) => topology.first_name(node),
        None => topology.name(node),
    }
}

/// Adds the origins of tasks to the metadata.
pub(crate) fn with_origins(mut metadata: Map<String, Value>, carried: &CarriedOrigins) -> Map<String, Value> {
    if !carried.is_empty() {
        let carried = serde_json::to_value(carried).expect("numbers have a JSON form");
        metadata.insert(ORIGINS.to_owned(), carried);
    }
    metadata
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn where_tasks_began_is_stored_by_slot() {
        let origin = Origin { checkpoint: CheckpointId(3), since_ms: 1_700, step: 2, slot: 1 };
        let stored = with_origins(Map::new(), &CarriedOrigins::from([(0, origin)]));
        let json = json!({"$origins": {"0": {"checkpoint": 3, "since_ms": 1_700, "step": 2, "slot": 1}}});
        assert_eq!(Value::Object(stored.clone()), json);
        let read = CarriedOrigins::deserialize(&stored[ORIGINS]).unwrap();
        assert_eq!(read, CarriedOrigins::from([(0, origin)]));
    }
}
