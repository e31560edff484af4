//! The recorded inputs of a thread that is recorded again.
//!
//! Start at [`RecordedSupply`].

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use superstep_engine::{NodeName, TaskId};

use super::{divergence::Deviation, recorder::ReplayInputs};

/// The recorded inputs of tasks, by node and in the order of the thread. A run that differs from the recorded one takes them in its
/// own order.
#[derive(Default)]
pub(crate) struct RecordedSupply(Mutex<SupplyState>);

#[derive(Default)]
struct SupplyState {
    tasks: BTreeMap<NodeName, VecDeque<SuppliedTask>>,
    /// The tasks of the present superstep, by slot.
    current: BTreeMap<u32, SuppliedTask>,
    step: i64,
    now_ms: i64,
    /// The time of the superstep that folds the present input.
    input_folded_ms: i64,
    missing: Option<(NodeName, Deviation)>,
}

/// The recorded inputs of a task, and the time of the checkpoint that folded it.
#[derive(Clone, Default)]
pub(crate) struct SuppliedTask {
    pub(crate) recorded: Arc<ReplayInputs>,
    pub(crate) folded_ms: i64,
}

impl RecordedSupply {
    fn lock(&self) -> MutexGuard<'_, SupplyState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the next task of a node.
    pub(crate) fn add(&self, node: NodeName, task: SuppliedTask) {
        self.lock().tasks.entry(node).or_default().push_back(task);
    }

    /// Sets the times of the next checkpoint, which is that of an input, and of the superstep that folds the input.
    pub(crate) fn set_times(&self, input_ms: i64, folded_ms: i64) {
        let mut supplies = self.lock();
        (supplies.now_ms, supplies.input_folded_ms) = (input_ms, folded_ms);
    }

    /// Returns the time of the checkpoint that is stored next: that of the recorded one with the same tasks.
    pub(crate) fn time(&self) -> i64 {
        let mut supplies = self.lock();
        let now_ms = supplies.now_ms;
        supplies.now_ms = now_ms.max(supplies.input_folded_ms);
        now_ms
    }

    /// Takes the recorded inputs for the first attempt of a task; empty ones if the node did not run so often.
    pub(crate) fn take(&self, node: &NodeName, task: TaskId) -> Arc<ReplayInputs> {
        let mut supplies = self.lock();
        if supplies.step != task.step {
            supplies.step = task.step;
            supplies.current.clear();
        }
        let next = supplies.tasks.get_mut(node).and_then(VecDeque::pop_front).unwrap_or_default();
        supplies.now_ms = supplies.now_ms.max(next.folded_ms);
        supplies.current.insert(task.slot, next.clone());
        next.recorded
    }

    /// Returns the recorded inputs of a task that has begun, for another attempt or its error handler.
    pub(crate) fn current(&self, task: TaskId) -> Arc<ReplayInputs> {
        self.lock().current.get(&task.slot).cloned().unwrap_or_default().recorded
    }

    /// Notes the first input that a task needs and that was not recorded.
    pub(crate) fn miss(&self, node: NodeName, deviation: Deviation) {
        self.lock().missing.get_or_insert((node, deviation));
    }

    /// Returns the input that was missing, in words.
    pub(crate) fn missing(&self) -> Option<String> {
        let (node, deviation) = self.lock().missing.clone()?;
        Some(match deviation {
            Deviation::New { effect, .. } | Deviation::Other { effect, .. } => {
                format!("the result of the effect `{effect}` of node `{node}`")
            }
            Deviation::Unfit { effect, .. } => {
                format!("a result of the present type for the effect `{effect}` of node `{node}`")
            }
            Deviation::Question { key, .. } => format!("the answer to the question `{key}` of node `{node}`"),
            Deviation::Call { .. } => {
                format!("the inputs of a graph that node `{node}` calls, which is not recorded again")
            }
            Deviation::Steps => format!("the number of supersteps that node `{node}` had left"),
            Deviation::Unknown => format!("an input of node `{node}`"),
        })
    }
}
