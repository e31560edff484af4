//! The tables of a store, and those that a database has.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use superstep_checkpoint::{CheckpointError, store::StoreError};

use crate::{error, location::Location, schema::SCHEMAS};

/// The name of the schema in `parts`.
const PART: &str = "store";

/// Returns whether the tables are current. Rejects databases of a newer schema.
pub(super) fn are_made(connection: &Connection, place: &Location) -> Result<bool, StoreError> {
    missing(connection, place).map(<[_]>::is_empty)
}

/// Creates or migrates the tables. Rejects databases of a newer schema.
pub(super) fn make(connection: &mut Connection, place: &Location) -> Result<(), StoreError> {
    if missing(connection, place)?.is_empty() {
        return Ok(());
    }
    let refused = |cause| StoreError::from(error::database(place, "make the tables of the store", cause));
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(refused)?;
    // Another process may have created them since.
    for schema in missing(&transaction, place)? {
        transaction.execute_batch(schema).map_err(refused)?;
    }
    transaction
        .execute("INSERT OR REPLACE INTO parts (name, schema) VALUES (?1, ?2)", (PART, SCHEMAS.len() as i64))
        .map_err(refused)?;
    transaction.commit().map_err(refused)
}

/// Returns the migrations that the database still needs.
fn missing(connection: &Connection, place: &Location) -> Result<&'static [&'static str], StoreError> {
    let look = || {
        let known: bool =
            connection
                .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'parts'", [], |row| row.get(0))?;
        if !known {
            return Ok(None);
        }
        let find = "SELECT schema FROM parts WHERE name = ?1";
        connection.query_row(find, [PART], |row| row.get::<_, i64>(0)).optional()
    };
    let found = look().map_err(|cause| StoreError::from(error::opening(place, cause)))?.unwrap_or(0);
    usize::try_from(found).ok().and_then(|found| SCHEMAS.get(found..)).ok_or_else(|| {
        let what = format!(
            "cannot open {place}: its store was written by a newer superstep (schema {found}, this program knows {}); \
             update superstep or use another file",
            SCHEMAS.len()
        );
        CheckpointError::Storage { what, source: None }.into()
    })
}
