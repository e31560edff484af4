//! The search for the ids of inputs.
//!
//! Start at [`has_input`].

use superstep_checkpoint::{CheckpointError, ThreadId, internal};

use crate::{
    database::{Database, repeated},
    query::Query,
    rows::{LOST_PARENT, META, StoredRow, name_of},
};

/// The condition of the index `checkpoints_inputs`.
const INDEXED: &str = r#"strpos(c.metadata, '"$input"') > 0"#;

/// The expression of the index: the hash of a list with one id.
const LIST: &str = r#"(CASE
    WHEN strpos(substr(c.metadata, strpos(c.metadata, '"$input"') + 8), '"$input"') = 0
    THEN hashtextextended(substring(c.metadata FROM '"\$input":(\["(?:[^"\\]|\\.)*"\])'), 0)
END)"#;

/// Returns whether a checkpoint of the thread has the id of an input.
pub(crate) async fn has_input(
    database: &Database,
    thread: &ThreadId,
    id: &str,
) -> Result<bool, CheckpointError> {
    let name = name_of(thread);
    let list = serde_json::to_string(&[id]).expect("a list of texts is JSON");
    let of_list = |is: &str| {
        format!(
            "SELECT {META}, {LOST_PARENT} FROM threads t JOIN checkpoints c ON c.thread = t.key
             WHERE sha256(t.name) = sha256($1) AND {INDEXED} AND {LIST} {is}"
        )
    };
    let sql = of_list("= hashtextextended($2, 0)") + " UNION ALL " + &of_list("IS NULL");
    let query = Query::of(sql, &[&name, &list]);
    repeated!(database, format!("look up an input of thread `{thread}`"), |_nth| async {
        let session = database.session().await?;
        for row in query.rows(session.client()).await? {
            if internal::has_input(
                &database.stored(thread).meta(&StoredRow::read(&row)?.meta(&row)?)?.metadata,
                id,
            ) {
                return Ok(true);
            }
        }
        Ok(false)
    })
}

#[cfg(test)]
mod tests {
    use super::{INDEXED, LIST};

    #[test]
    fn the_conditions_are_those_of_the_index() {
        let plain = |sql: &str| sql.replace("c.", "").split_whitespace().collect::<Vec<_>>().join(" ");
        let index = plain(include_str!("schema_3.sql"));
        assert!(index.ends_with(&format!("(thread, {}) WHERE {};", plain(LIST), plain(INDEXED))), "{index}");
    }
}
