//! The list of jobs.
//!
//! The thread and the work of a job are read from its JSON here, and not by the database: PostgreSQL stores JSON that its own
//! functions reject, such as a text with `\u0000`, and one such job would then be an error of the whole list.
//!
//! Start at [`Queue::list`].

use std::collections::BTreeMap;

use graphile_worker::{DbRow, DbValue};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;
use superstep_graph::checkpoint::CheckpointError;

use super::Queue;

/// The number of jobs whose JSON is read at a time: it has their inputs.
const PAGE: usize = 100;

/// A listed job.
pub(crate) struct Row {
    pub(crate) id: i64,
    pub(crate) graph: String,
    pub(crate) thread: Option<String>,
    pub(crate) own_id: Option<String>,
    pub(crate) work: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) priority: i16,
    pub(crate) run_at_ms: i64,
    pub(crate) created_at_ms: i64,
    pub(crate) attempts: i16,
    pub(crate) max_attempts: i16,
    pub(crate) last_error: Option<String>,
    pub(crate) worker: Option<String>,
    pub(crate) state: String,
}

impl Queue {
    /// Lists jobs, in the order in which they are due: all, or one, or those of a thread.
    pub(crate) async fn list(
        &self,
        id: Option<i64>,
        thread: Option<&str>,
        state: Option<&str>,
    ) -> Result<Vec<Row>, CheckpointError> {
        let (jobs, tasks, queues) = (self.table("jobs"), self.table("tasks"), self.table("job_queues"));
        let ms = |column: &str| format!("(extract(epoch from jobs.{column}) * 1000)::bigint");
        // A text with escapes may have the name of the thread in another form.
        let sql = format!(
            "select * from (
                select jobs.id, tasks.identifier as graph, jobs.key as own_id,
                    queues.queue_name as key, jobs.priority, {} as run_at, {} as created_at, jobs.attempts, jobs.max_attempts,
                    jobs.last_error, jobs.locked_by, case when jobs.locked_at is not null then 'running'
                    when jobs.attempts >= jobs.max_attempts then 'dead' else 'queued' end as state
                from {jobs} as jobs join {tasks} as tasks on tasks.id = jobs.task_id
                left join {queues} as queues on queues.id = jobs.job_queue_id
                where ($1::bigint is null or jobs.id = $1)
                    and ($2::text is null or strpos(jobs.payload::text, $2) > 0 or strpos(jobs.payload::text, E'\\\\') > 0)
             ) as listed
             where $3::text is null or state = $3
             order by priority, run_at, id",
            ms("run_at"),
            ms("created_at"),
        );
        let name = thread.map(|thread| serde_json::Value::from(thread).to_string());
        let state = state.map(str::to_owned);
        let values = vec![DbValue::I64Opt(id), DbValue::TextOpt(name), DbValue::TextOpt(state)];
        let rows = self.rows("list the jobs", &sql, values).await?;
        let mut listed = Vec::new();
        for page in rows.chunks(PAGE) {
            let page = page.iter().map(|row| self.row(row)).collect::<Result<Vec<_>, _>>()?;
            let mut about = self.about(page.iter().map(|row| row.id).collect()).await?;
            listed.extend(page.into_iter().filter_map(|row| {
                // One that is not found is done since.
                let About { thread: of, work } = about.remove(&row.id)?;
                (thread.is_none() || thread == of.as_deref()).then_some(Row { thread: of, work, ..row })
            }));
        }
        Ok(listed)
    }

    /// Returns what jobs are about, by their numbers.
    pub(super) async fn about(&self, ids: Vec<i64>) -> Result<BTreeMap<i64, About>, CheckpointError> {
        let sql = format!(
            "select id, payload::text as payload from {} where id = any($1::bigint[])",
            self.table("jobs")
        );
        let rows = self.rows("list the jobs", &sql, vec![DbValue::I64Array(ids)]).await?;
        let about = |row| Ok((self.get(row, "id")?, About::of(&self.get::<String>(row, "payload")?)));
        rows.iter().map(about).collect()
    }

    fn row(&self, row: &DbRow) -> Result<Row, CheckpointError> {
        Ok(Row {
            id: self.get(row, "id")?,
            graph: self.get(row, "graph")?,
            thread: None,
            own_id: self.get(row, "own_id")?,
            work: None,
            key: self.get(row, "key")?,
            priority: self.get(row, "priority")?,
            run_at_ms: self.get(row, "run_at")?,
            created_at_ms: self.get(row, "created_at")?,
            attempts: self.get(row, "attempts")?,
            max_attempts: self.get(row, "max_attempts")?,
            last_error: self.get(row, "last_error")?,
            worker: self.get(row, "locked_by")?,
            state: self.get(row, "state")?,
        })
    }
}

/// The thread of a job, and the kind of its work; see `Payload`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct About {
    pub(super) thread: Option<String>,
    pub(super) work: Option<String>,
}

/// The parts of a payload that are read. Those of other programs may have any form.
#[derive(Default, Deserialize)]
struct Parts<'a> {
    #[serde(borrow, default)]
    thread: Option<&'a RawValue>,
    #[serde(borrow, default)]
    work: Option<&'a RawValue>,
}

impl About {
    fn of(payload: &str) -> Self {
        let Parts { thread, work } = serde_json::from_str(payload).unwrap_or_default();
        let work =
            work.and_then(|work| serde_json::from_str::<BTreeMap<String, IgnoredAny>>(work.get()).ok());
        Self {
            thread: thread.and_then(|thread| serde_json::from_str(thread.get()).ok()),
            work: work.and_then(|work| work.into_keys().next()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_other_programs_have_what_can_be_read_of_them() {
        let about = |thread: Option<&str>, work: Option<&str>| About {
            thread: thread.map(str::to_owned),
            work: work.map(str::to_owned),
        };
        let deep = format!(r#"{{"thread":"t","input":{}1{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
        for (payload, wanted) in [
            (
                r#"{"v":1,"thread":"t","work":{"run":{"input":"a\u0000\ud800"}}}"#,
                about(Some("t"), Some("run")),
            ),
            (r#"{"thread":"a\u0000b","work":5}"#, about(Some("a\0b"), None)),
            (r#"{"thread":7,"work":{}}"#, about(None, None)),
            (r#"{"thread":"\ud800","work":{"resume":{}}}"#, about(None, Some("resume"))),
            (&deep, about(Some("t"), None)),
            ("[1]", about(None, None)),
            ("null", about(None, None)),
        ] {
            assert_eq!(About::of(payload), wanted, "{payload:.100}");
        }
    }
}
