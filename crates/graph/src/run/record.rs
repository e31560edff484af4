//! What is kept of tasks whose superstep is not over, so that they need not run again.

use superstep_engine::{NodeIndex, Report, Run, Target, Task, TaskId};

use super::Driver;
use crate::{RecordedTarget, RunError, State, TaskRecord, error::chain};

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
        // The record of a task that was answered has the answers, and says that it is to run again.
        let plain =
            |task: &&Task| !blamed.contains(&task.id.slot) && self.cx.desk.answers_of(task.id).is_empty();
        for task in dropped.iter().filter(plain) {
            self.store_record(task.id.slot, TaskRecord::Cancelled).await?;
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
        let answers = self.cx.desk.answers_of(task);
        if answers.is_empty() {
            return TaskRecord::Failed { attempts, error };
        }
        TaskRecord::Interrupted { questions: Vec::new(), answers, attempts, error: Some(error) }
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
