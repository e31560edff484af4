//! The effects of a called graph in the task that called it: all those of a graph without storage, and those that a graph
//! with storage has not stored yet.
//!
//! Start at [`OuterEffects`].

use std::sync::Arc;

use superstep_checkpoint::internal::SEPARATOR;
use superstep_engine::TaskId;
use superstep_state::RawJson;

use crate::journal::effects::EffectLog;

/// The effects of a task that called a graph, directly or through other graphs.
#[derive(Clone)]
pub(crate) struct OuterEffects {
    log: Arc<EffectLog>,
    task: TaskId,
    /// The calls and tasks from that task to the called graph.
    path: String,
}

impl OuterEffects {
    /// Creates the effects for a graph that a task calls under this key.
    pub(crate) fn of(log: &Arc<EffectLog>, task: TaskId, key: &str) -> Self {
        Self { log: log.clone(), task, path: format!("{SEPARATOR}{key}") }
    }

    /// Creates the effects for a graph that a task of this graph calls. `task` is the name of that task.
    pub(crate) fn inside(&self, task: &str, key: &str) -> Self {
        Self { path: format!("{}{SEPARATOR}{key}", self.name(task, "")), ..self.clone() }
    }

    /// Returns the name of an effect of a task. Names of nodes and keys of calls cannot contain the separator.
    // With the node beside the superstep and the slot, so that a run that leads elsewhere gets no result of another
    // node. Without the item of a fan-out, which is not part of the key that a service receives either.
    fn name(&self, task: &str, effect: &str) -> String {
        format!("{}{SEPARATOR}{task}{SEPARATOR}{effect}", self.path)
    }

    pub(crate) fn result(&self, task: &str, effect: &str) -> Option<RawJson> {
        self.log.result(self.task, &self.name(task, effect))
    }

    pub(crate) fn put(&self, task: &str, effect: &str, json: RawJson) {
        self.log.put(self.task, &self.name(task, effect), json);
    }

    /// See [`EffectLog::lend`].
    pub(crate) fn lend(&self, task: &str, effect: &str, json: RawJson) {
        self.log.lend(self.task, &self.name(task, effect), json);
    }

    /// See [`EffectLog::take_back`].
    pub(crate) fn take_back(&self, task: &str, effect: &str) {
        self.log.take_back(self.task, &self.name(task, effect));
    }

    /// See [`EffectLog::store`].
    pub(crate) async fn store(&self, task: &str, effect: &str) -> Option<()> {
        self.log.store(self.task, &self.name(task, effect)).await
    }

    /// See [`EffectLog::sync`].
    pub(crate) async fn sync(&self) -> Option<()> {
        self.log.sync(self.task).await
    }
}
