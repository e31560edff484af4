//! The schedules that are stored in the database, for all workers.
//!
//! Start at [`Jobs::store_schedule`].

use serde::Serialize;
use superstep_graph::checkpoint::CheckpointError;

use crate::{Jobs, Schedule, queue::ScheduleRow};

impl Jobs {
    /// Stores a schedule, which begins now: every worker with its graph has it from then on. Returns `false`, and changes nothing, if
    /// one of its name is stored.
    ///
    /// A stored schedule and a [schedule of a worker](crate::Worker::schedule) of the same name are two.
    ///
    /// # Errors
    /// The error of the database.
    pub async fn store_schedule(&self, schedule: &Schedule) -> Result<bool, CheckpointError> {
        let Schedule { times, graph, thread, input, .. } = schedule;
        let texts = [&times.name, &times.pattern, &times.zone_name, graph, thread];
        self.queue.store_schedule(texts, input).await
    }

    /// Lists the stored schedules by name.
    ///
    /// # Errors
    /// The error of the database.
    pub async fn schedules(&self) -> Result<Vec<ScheduleInfo>, CheckpointError> {
        let now_ms = self.queue.now_ms().await?;
        let rows = self.queue.schedules(None).await?;
        Ok(rows.into_iter().map(|row| ScheduleInfo::of(row, now_ms)).collect())
    }

    /// Removes a stored schedule. Jobs that it has made remain. Returns `false` if there is none of this name.
    ///
    /// # Errors
    /// The error of the database.
    pub async fn remove_schedule(&self, name: &str) -> Result<bool, CheckpointError> {
        self.queue.remove_schedule(name).await
    }

    /// Pauses a stored schedule until it is [resumed](Self::resume_schedule). Returns `false` if there is none of this name.
    ///
    /// # Errors
    /// The error of the database.
    pub async fn pause_schedule(&self, name: &str) -> Result<bool, CheckpointError> {
        self.queue.pause_schedule(name, true).await
    }

    /// Resumes a paused schedule from now on: the times during the pause are skipped. Returns `false` if there is no schedule
    /// with this name.
    ///
    /// # Errors
    /// The error of the database.
    pub async fn resume_schedule(&self, name: &str) -> Result<bool, CheckpointError> {
        self.queue.pause_schedule(name, false).await
    }
}

/// A stored schedule, without its input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ScheduleInfo {
    /// The name of the schedule.
    pub name: String,
    /// The cron pattern of the schedule.
    pub times: String,
    /// The name of its time zone.
    pub zone: String,
    /// The graph.
    pub graph: String,
    /// The name of its threads.
    pub thread: String,
    /// `true` if it makes no jobs until it is resumed.
    pub paused: bool,
    /// The last time that made a job: UTC milliseconds.
    pub last_ms: Option<i64>,
    /// The next time: UTC milliseconds; `None` while it is paused or not valid.
    pub next_ms: Option<i64>,
    /// The reason why it is not valid, such as a time zone that this program does not know.
    pub problem: Option<String>,
}

impl ScheduleInfo {
    fn of(row: ScheduleRow, now_ms: i64) -> Self {
        let (paused, last_ms) = (row.is_paused, row.last_ms);
        let (name, times, zone) = (row.name.clone(), row.times.clone(), row.zone.clone());
        let (graph, thread) = (row.graph.clone(), row.thread.clone());
        let (next_ms, problem) = match Schedule::of_row(row) {
            Ok(schedule) => (schedule.next(now_ms).filter(|_| !paused), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self { name, times, zone, graph, thread, paused, last_ms, next_ms, problem }
    }
}
