//! The schedules that are stored in the database.
//!
//! Start at [`Queue::schedules`].

use graphile_worker::DbValue;
use superstep_graph::checkpoint::CheckpointError;

use super::Queue;

/// The table of the stored schedules, beside those of Graphile Worker. A promise.
const TABLE: &str = "superstep_schedules";

/// The maximum length of an input in bytes of JSON.
pub(crate) const MAX_INPUT_BYTES: usize = 1 << 20;

/// The maximum length of each other text in characters. One more is read, so that a longer text is noticed.
pub(crate) const MAX_TEXT_LENGTH: usize = 1_024;

/// The maximum number of schedules that are read.
const MAX_SCHEDULES: usize = 10_000;

/// A stored schedule, as its row has it.
pub(crate) struct ScheduleRow {
    /// The name of the schedule among the schedules that the database knows; another one if it is removed and stored again.
    pub(crate) identifier: String,
    pub(crate) name: String,
    pub(crate) times: String,
    pub(crate) zone: String,
    pub(crate) graph: String,
    pub(crate) thread: String,
    /// `None` if it was not read.
    pub(crate) input: Option<serde_json::Value>,
    /// `true` if the input is longer than [`MAX_INPUT_BYTES`], so that it is not read.
    pub(crate) is_long: bool,
    pub(crate) is_paused: bool,
    /// The time of its last job: UTC milliseconds.
    pub(crate) last_ms: Option<i64>,
}

impl Queue {
    /// Returns the SQL that creates the table.
    pub(super) fn schedule_table(&self) -> String {
        format!(
            "create table if not exists {} (
                id bigint generated always as identity primary key,
                name text not null unique,
                times text not null,
                zone text not null,
                graph text not null,
                thread text not null,
                input json not null
            )",
            self.own_table()
        )
    }

    pub(super) fn own_table(&self) -> String {
        self.schema.identifier(TABLE)
    }

    /// Stores a schedule, which begins now: its name, times, zone, graph and thread. Returns `false` if there is one of its name.
    pub(crate) async fn store_schedule(
        &self,
        texts: [&String; 5],
        input: &serde_json::Value,
    ) -> Result<bool, CheckpointError> {
        let (own, known) = (self.own_table(), self.table("known_crontabs"));
        let sql = format!(
            "with stored as (
                insert into {own} (name, times, zone, graph, thread, input)
                values ($1::text, $2::text, $3::text, $4::text, $5::text, $6::json) on conflict do nothing returning id
             ) insert into {known} (identifier, known_since) select {IDENTIFIER}, now() from stored returning identifier"
        );
        let mut values: Vec<_> = texts.into_iter().map(|text| DbValue::Text(text.clone())).collect();
        values.push(DbValue::Json(input.clone()));
        let is_new = !self.rows("store a schedule", &sql, values).await?.is_empty();
        self.report_schedules().await?;
        Ok(is_new)
    }

    /// Removes a schedule. Returns `false` if there is none.
    pub(crate) async fn remove_schedule(&self, name: &str) -> Result<bool, CheckpointError> {
        let (own, known) = (self.own_table(), self.table("known_crontabs"));
        let sql = format!(
            "with gone as (delete from {own} where name = $1::text returning id)
             delete from {known} where identifier in (select {IDENTIFIER} from gone) returning identifier"
        );
        let gone = self.rows("remove a schedule", &sql, vec![DbValue::Text(name.to_owned())]).await?;
        self.report_schedules().await?;
        Ok(!gone.is_empty())
    }

    /// Pauses a schedule by setting its last time to infinity, or resumes it from now. Returns `false` if there is none.
    pub(crate) async fn pause_schedule(&self, name: &str, paused: bool) -> Result<bool, CheckpointError> {
        let (own, known) = (self.own_table(), self.table("known_crontabs"));
        // One that is not paused does not begin again: it may have a time to make up for.
        let (last, affected) =
            if paused { ("'infinity'", "true") } else { ("now()", "last_execution = 'infinity'") };
        let sql = format!(
            "with found as (select id from {own} where name = $1::text), changed as (
                update {known} set last_execution = {last}
                where {affected} and identifier in (select {IDENTIFIER} from found)
             ) select id from found"
        );
        let found = self.rows("pause a schedule", &sql, vec![DbValue::Text(name.to_owned())]).await?;
        self.report_schedules().await?;
        Ok(!found.is_empty())
    }

    /// Lists the stored schedules by name: all of them without their inputs, or those of some graphs.
    pub(crate) async fn schedules(
        &self,
        graphs: Option<Vec<String>>,
    ) -> Result<Vec<ScheduleRow>, CheckpointError> {
        let (own, known) = (self.own_table(), self.table("known_crontabs"));
        let texts = ["name", "times", "zone", "graph", "thread"];
        let texts = texts.map(|text| format!("left({text}, {MAX_TEXT_LENGTH} + 1) as {text}")).join(", ");
        let sql = format!(
            "select {texts}, octet_length(input::text) > {MAX_INPUT_BYTES} as is_long,
                case when $1::boolean or octet_length(input::text) > {MAX_INPUT_BYTES} then null else input end as input,
                identifier, coalesce(last_execution = 'infinity', false) as paused,
                case when isfinite(last_execution) then (extract(epoch from last_execution) * 1000)::bigint end as last
             from {own} as schedules join {known} on identifier = {IDENTIFIER}
             where $1::boolean or schedules.graph = any($2::text[]) order by schedules.name limit {MAX_SCHEDULES} + 1"
        );
        let values = vec![DbValue::Bool(graphs.is_none()), DbValue::TextArray(graphs.unwrap_or_default())];
        let mut rows = self.rows("read the schedules", &sql, values).await?;
        if rows.len() > MAX_SCHEDULES {
            tracing::warn!(
                "there are more than {MAX_SCHEDULES} stored schedules; the others by name are ignored"
            );
            rows.truncate(MAX_SCHEDULES);
        }
        let read = |row| {
            Ok(ScheduleRow {
                identifier: self.get(row, "identifier")?,
                name: self.get(row, "name")?,
                times: self.get(row, "times")?,
                zone: self.get(row, "zone")?,
                graph: self.get(row, "graph")?,
                thread: self.get(row, "thread")?,
                input: self.get(row, "input")?,
                is_long: self.get(row, "is_long")?,
                is_paused: self.get(row, "paused")?,
                last_ms: self.get(row, "last")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Notifies the workers that schedules have changed.
    async fn report_schedules(&self) -> Result<(), CheckpointError> {
        let sql = "select pg_notify($1::text, '') is null as done";
        self.rows("wake the workers", sql, vec![DbValue::Text(self.schedules.clone())]).await.map(drop)
    }
}

/// The name of a stored schedule among those that the database knows. No job of another schedule of its name has the same.
const IDENTIFIER: &str = "'stored #' || id";
