//! The search for the ids of inputs.

use rusqlite::params;
use superstep_checkpoint::{CheckpointError, ThreadId, internal::has_input};

use crate::{
    database::{Database, ThreadRow},
    error,
    read::{meta, metas},
};

/// Returns the checkpoints that may have the id of an input: as the only one, or among several. The conditions are those of
/// the index `inputs`.
// An index over an expression and not a column of its own: a process of an older version that still runs maintains it
// too.
fn inputs() -> String {
    let of_list = |is: &str| {
        format!(
            r#"{} WHERE thread = (?1 >> 32) AND instr(metadata, '"$input"') > 0 AND CASE
                 WHEN NOT json_valid(metadata) THEN NULL
                 WHEN json_array_length(metadata, '$."$input"') = 1 THEN metadata -> '$."$input"'
             END {is}"#,
            metas()
        )
    };
    format!("{} UNION ALL {}", of_list("= ?2"), of_list("IS NULL"))
}

impl Database {
    /// Returns whether a checkpoint of the thread has the id of an input, by the index of those.
    pub(crate) fn has_input(&self, thread: &ThreadId, id: &str) -> Result<bool, CheckpointError> {
        let (place, action) = (&self.place, || format!("look up an input of thread `{thread}`"));
        let refused = |cause| error::database(place, &action(), cause);
        let Some(row) = ThreadRow::find(&self.connection, place, &self.names, thread)? else {
            return Ok(false);
        };
        let mut inputs = self.connection.prepare_cached(&inputs()).map_err(refused)?;
        let list = serde_json::to_string(&[id]).expect("a list of texts is JSON");
        let mut rows = inputs.query(params![row.key.first(), list]).map_err(refused)?;
        while let Some(row) = rows.next().map_err(refused)? {
            let meta = error::stored(place, thread).meta(&meta(row).map_err(refused)?)?;
            if has_input(&meta.metadata, id) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::in_memory;

    #[test]
    fn the_index_is_used() {
        let connection = in_memory().unwrap();
        let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {}", inputs())).unwrap();
        let steps =
            plan.query_map(params![1_i64 << 32, "[\"1\"]"], |row| row.get::<_, String>("detail")).unwrap();
        let steps: Vec<String> = steps.map(Result::unwrap).filter(|step| step.contains("SEARCH")).collect();
        let by_list = "SEARCH checkpoints USING INDEX inputs (thread=? AND <expr>=?)";
        assert_eq!(steps.iter().filter(|step| *step == by_list).count(), 2, "{steps:?}");
    }
}
