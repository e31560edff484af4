//! Jobs and workers: runs of threads by the processes of a team, on its PostgreSQL.
//!
//! A job names a thread and what to do with it. The truth stays in the thread: a job that is delivered twice, or lost after its run, does no
//! harm. Start at [`Jobs`] and [`Worker`].

mod attempt;
mod error;
mod graph;
mod jobs;
mod names;
mod new_job;
mod payload;
mod queue;
mod running;
mod schedule;
mod stored_schedules;
mod worker;

pub use error::ScheduleError;
pub use jobs::{Cancelled, JobId, JobInfo, JobState, Jobs, Listed};
pub use names::GraphName;
pub use new_job::NewJob;
pub use schedule::{Schedule, Times};
pub use stored_schedules::ScheduleInfo;
pub use worker::Worker;
