//! The record of a called graph, in that of its caller.
//!
//! Start at [`Above`].

use std::sync::Arc;

use superstep_checkpoint::internal::SEPARATOR;
use superstep_engine::TaskId;

use crate::{
    journal::recorder::{Given, Recorded},
    node::cx::RunCx,
};

/// Where what the tasks of a graph learn goes that is kept nowhere: to the task that called it, or, if that is kept nowhere
/// either, to the innermost one outside that is.
#[derive(Clone)]
pub(crate) struct Above {
    pub(crate) run: Arc<RunCx>,
    pub(crate) task: TaskId,
    /// The tasks between that one and the call, outermost first.
    pub(crate) way: Vec<String>,
    pub(crate) key: String,
}

impl Above {
    /// The same for a graph that `task` of this one calls.
    pub(crate) fn inside(&self, task: TaskId, key: &str) -> Self {
        let way = self.way.iter().cloned().chain([self.name(task)]).collect();
        Self { run: self.run.clone(), task: self.task, way, key: key.to_owned() }
    }

    fn name(&self, task: TaskId) -> String {
        format!("{}/{}.{}", self.key, task.step, task.slot)
    }

    /// The name of a task and the way to it. The separator stands in no key of a call.
    fn whole_name(&self, task: TaskId) -> String {
        let mut names = self.way.clone();
        names.push(self.name(task));
        names.join(&SEPARATOR.to_string())
    }

    /// What a task learned, as it is recorded.
    fn find(&self, recorded: &Recorded, task: TaskId) -> Option<Recorded> {
        if let Some(found) = recorded.inner(&self.whole_name(task)) {
            return Some(found);
        }
        // Older programs recorded it with the task that called its graph.
        let caller = self.way.iter().try_fold(recorded, |recorded, name| recorded.inner.get(name));
        caller?.inner.get(&self.name(task)).cloned()
    }

    pub(crate) fn given(&self, task: TaskId, live: bool) -> Given {
        match self.run.tape.given(self.task) {
            Given::Recorded(recorded) | Given::Live(recorded) => {
                match self.find(&recorded, task).map(Arc::new) {
                    Some(recorded) if live => Given::Live(recorded),
                    Some(recorded) => Given::Recorded(recorded),
                    // It did not come to its end, or an older program recorded it.
                    None => Given::Unknown,
                }
            }
            other => other,
        }
    }

    /// Keeps what a task learned, also if that is nothing: then it is known.
    pub(crate) fn learn(&self, task: TaskId, learned: Recorded) {
        let name = self.whole_name(task);
        self.run.tape.learn(self.task, |above| {
            above.add_inner(&name, learned);
        });
    }
}
