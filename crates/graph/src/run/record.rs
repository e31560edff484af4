//! What is kept of tasks whose superstep is not over, so that they need not run again.

use std::collections::BTreeMap;

use superstep_engine::{NodeIndex, Report, Run, Target, Task, TaskId};

use super::Driver;
use crate::{RecordedTarget, RunError, State, TaskRecord, error::chain, once::Request};

impl<S: State> Driver<S> {
    /// Stores that a task failed and is about to run again, so that a crash in between does not forget it.
    pub(super) async fn record_failed_attempt(&mut self, task: Task) -> Result<(), RunError> {
        let Some((failed, source)) = self.failure.take_if(|(failed, _)| failed.id == task.id) else {
            return Ok(());
        };
        let record = self.failed_record(failed.id, failed.attempt, chain(&*source));
        self.store_record(failed.id.slot, record).await
    }

    /// Stores how the tasks of a superstep ended that will not be committed.
    pub(super) async fn record_stop(
        &mut self,
        run: &Run,
        blamed: &[u32],
        error: &str,
        dropped: &[Task],
    ) -> Result<(), RunError> {
        for &slot in blamed {
            let record = self.failed_record(run.task(slot), 0, error.to_owned());
            self.store_record(slot, record).await?;
        }
        for task in dropped.iter().filter(|task| !blamed.contains(&task.id.slot)) {
            self.record_stopped(*task).await?;
        }
        for slot in 0..self.done.len() {
            let slot = u32::try_from(slot).expect("slots are counted in 32 bits");
            let fresh = self.done[slot as usize].as_ref().is_some_and(|done| !done.recorded);
            if fresh && !blamed.contains(&slot) {
                self.record(run, slot).await?;
            }
        }
        Ok(())
    }

    /// Stores that a task stopped where it stood.
    pub(super) async fn record_stopped(&self, task: Task) -> Result<(), RunError> {
        let once = self.cx.ledger.results(task.id);
        if self.cx.desk.answers_of(task.id).is_empty() {
            self.store_record(task.id.slot, TaskRecord::Cancelled { once }).await?;
        } else if self.cx.ledger.is_ahead(task.id) {
            // Without anything new: its record has the answers, and says that it is to run again.
            let record = self.started_record(task.id, task.attempt - 1, once);
            self.store_record(task.id.slot, record).await?;
        }
        Ok(())
    }

    /// Stores what a finished task wrote before its superstep is over; should that fail or crash, the task is not to run
    /// again.
    pub(super) async fn record(&mut self, run: &Run, slot: u32) -> Result<(), RunError> {
        if let Some(report) = run.report(slot) {
            self.store_record(slot, self.record_of(slot, report)).await?;
            self.mark_recorded(slot);
        }
        Ok(())
    }

    /// The record of a failure, with the answers that the task had been given.
    fn failed_record(&self, task: TaskId, attempts: u32, error: String) -> TaskRecord {
        let (answers, once) = (self.cx.desk.answers_of(task), self.cx.ledger.results(task));
        if answers.is_empty() {
            return TaskRecord::Failed { attempts, error, once };
        }
        TaskRecord::Interrupted { questions: Vec::new(), answers, attempts, error: Some(error), once }
    }

    /// The record of a task that is at work, with the answers that it had been given.
    fn started_record(&self, task: TaskId, attempts: u32, once: BTreeMap<String, String>) -> TaskRecord {
        let answers = self.cx.desk.answers_of(task);
        if answers.is_empty() {
            return TaskRecord::Started { attempts, once };
        }
        TaskRecord::Interrupted { questions: Vec::new(), answers, attempts, error: None, once }
    }

    /// Stores what tasks did once, before they go on.
    pub(super) async fn record_started(&mut self, run: &Run, requests: Vec<Request>) -> Result<(), RunError> {
        for Request { task, stored } in requests {
            // The record of a task that is over, or that asks, is not to be replaced. Work that it left behind is told so by
            // the end of `stored`.
            let Some(failed) = run.failures(task).filter(|_| !self.waiting.contains_key(&task.slot)) else {
                continue;
            };
            if self.cx.ledger.is_ahead(task) {
                let once = self.cx.ledger.results(task);
                let record = self.started_record(task, failed, once.clone());
                self.store_record(task.slot, record).await?;
                self.cx.ledger.is_stored(task, &once);
            }
            // Nobody waits any more if the node was dropped meanwhile.
            let _ = stored.send(());
        }
        Ok(())
    }

    pub(super) async fn store_record(&self, slot: u32, record: TaskRecord) -> Result<(), RunError> {
        if let Some(hold) = &self.hold {
            hold.record(slot, record).await?;
        }
        Ok(())
    }

    pub(super) fn record_of(&self, slot: u32, report: &Report) -> TaskRecord {
        let done = self.done[slot as usize].as_ref().expect("only finished tasks are recorded");
        let update = String::from_utf8(done.json.clone()).expect("JSON is UTF-8");
        let mut items = done.items.iter();
        let name = |node: &NodeIndex| self.graph.topology.name(*node).clone();
        let target = |target: &Target| match target {
            Target::End => superstep_engine::END.into(),
            Target::Node(node) => RecordedTarget::Node(name(node)),
            Target::Send(node) => {
                let item = items.next().expect("an item goes along with each send").clone();
                RecordedTarget::Send { node: name(node), item }
            }
        };
        TaskRecord::Finished { update, targets: report.targets.iter().map(target).collect() }
    }

    pub(super) fn mark_recorded(&mut self, slot: u32) {
        if let Some(done) = &mut self.done[slot as usize] {
            done.recorded = self.hold.is_some();
        }
    }
}
