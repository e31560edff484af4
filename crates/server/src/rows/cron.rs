//! Rows of crons.
//!
//! Start at [`CronRow`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use superstep_graph::Store;
use superstep_worker::{Schedule, ScheduleError};
use tokio::sync::{Mutex, Notify};

use crate::{
    access::User,
    error::{ApiError, ServerError},
    rows::{table::Table, thread::ThreadKey},
    wire::time,
};

/// The crons of a server.
pub(crate) struct Crons {
    pub(crate) rows: Table<CronRow>,
    /// Orders what clients create and change. The clock changes [`next_us`](CronRow::next_us), `begins` and `problem` meanwhile.
    pub(crate) changing: Mutex<()>,
    /// Wakes what begins their runs, after a change.
    pub(crate) changed: Notify,
}

/// A run that begins at recurring times.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CronRow {
    pub(crate) id: String,
    /// The user for whom it runs: the owner of its thread, or who created it; `None` on a server without users.
    pub(crate) owner: Option<String>,
    /// The thread of its runs; `None` if each run has a thread of its own.
    pub(crate) thread: Option<String>,
    pub(crate) assistant: String,
    /// The pattern of its times.
    pub(crate) schedule: String,
    /// The time zone of the pattern; `None` is UTC.
    pub(crate) timezone: Option<String>,
    /// The last possible time: UTC microseconds, as all times of rows.
    pub(crate) end_us: Option<i64>,
    pub(crate) enabled: bool,
    /// `true` if the threads of its runs stay after them.
    pub(crate) keeps: bool,
    /// The body of the request for each run. Searches clone rows, and this may be long.
    pub(crate) payload: Arc<Map<String, Value>>,
    pub(crate) created_us: i64,
    pub(crate) updated_us: i64,
    /// The next time; `None` if there is none.
    pub(crate) next_us: Option<i64>,
    /// The id of the run of its last time, until that run is stored.
    pub(crate) begins: Option<String>,
    /// The reason why its last time began no run.
    pub(crate) problem: Option<String>,
}

impl Crons {
    /// # Errors
    /// The errors of the rows.
    pub(crate) async fn open(rows: Arc<dyn Store>) -> Result<Self, ServerError> {
        let rows = Table::open(rows, "crons").await?;
        Ok(Self { rows, changing: Mutex::default(), changed: Notify::new() })
    }

    /// Deletes the crons of a thread.
    ///
    /// # Errors
    /// The errors of the rows.
    pub(crate) async fn delete_of(&self, thread: &str) -> Result<(), ApiError> {
        for row in self.rows.list(|row| row.thread.as_deref() == Some(thread)) {
            self.rows.delete(&row.id).await?;
        }
        Ok(())
    }
}

impl CronRow {
    /// Returns the user for whom it runs.
    pub(crate) fn user(&self) -> User {
        self.owner.as_ref().map_or_else(User::everyone, User::new)
    }

    /// Returns the thread of its runs; `None` if each run has a thread of its own.
    pub(crate) fn thread_key(&self) -> Option<ThreadKey> {
        self.thread.clone().map(|thread| ThreadKey { thread, owner: self.owner.clone() })
    }

    /// Returns whether its next time has come.
    pub(crate) fn is_due(&self, now_us: i64) -> bool {
        self.next_us.is_some_and(|next_us| next_us <= now_us)
    }

    /// Returns the first time after this one; `None` if there is none, or if it is not enabled.
    ///
    /// # Errors
    /// 422 if its pattern or its time zone is not valid.
    pub(crate) fn next(&self, after_us: i64) -> Result<Option<i64>, ApiError> {
        let zone = self.timezone.as_deref().unwrap_or("UTC");
        let times = Schedule::new("cron", &self.schedule, zone).map_err(|error| invalid(&error))?;
        let next_us = times.next_ms(after_us.div_euclid(1_000)).map(|ms| ms.saturating_mul(1_000));
        Ok(next_us.filter(|next| self.enabled && self.end_us.is_none_or(|end| *next <= end)))
    }

    /// Returns the metadata of its runs.
    pub(crate) fn metadata(&self) -> Option<&Map<String, Value>> {
        self.payload.get("metadata").and_then(Value::as_object)
    }

    /// Returns its wire form.
    pub(crate) fn to_wire(&self) -> Value {
        let mut payload = Map::clone(&self.payload);
        payload.insert("schedule".to_owned(), self.schedule.as_str().into());
        json!({
            "cron_id": self.id,
            "assistant_id": self.assistant,
            "thread_id": self.thread,
            "on_run_completed": self.thread.is_none().then_some(if self.keeps { "keep" } else { "delete" }),
            "end_time": self.end_us.map(time::text),
            "schedule": self.schedule,
            "timezone": self.timezone,
            "created_at": time::text(self.created_us),
            "updated_at": time::text(self.updated_us),
            "payload": payload,
            "user_id": self.owner,
            "next_run_date": self.next_us.map(time::text),
            "metadata": self.metadata().cloned().unwrap_or_default(),
            "enabled": self.enabled,
            "problem": self.problem,
        })
    }
}

/// Names the field of the request that is not valid.
fn invalid(error: &ScheduleError) -> ApiError {
    ApiError::invalid(match error {
        ScheduleError::Times { times, reason, .. } => {
            format!("schedule: invalid times `{times}`: {reason}; write five fields, such as `0 9 * * 1-5`")
        }
        ScheduleError::Zone { zone, .. } => format!(
            "timezone: unknown time zone `{zone}`; use a name of the IANA database, such as `Europe/Berlin`"
        ),
        other => other.to_string(),
    })
}
