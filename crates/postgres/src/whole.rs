//! The tables as a whole: their size and their free space.

use std::time::Duration;

use superstep_checkpoint::{CheckpointError, Storage};

use crate::{
    database::{Database, repeated},
    error,
    error::Failed,
    query::Query,
    schema,
};

/// The maximum time to rewrite one table.
const REWRITE: Duration = Duration::from_hours(1);

/// Rewrites a table only if no other transaction has it for longer than this: meanwhile all others would wait too.
const LOCK: &str = "SET lock_timeout TO '5s'";

/// Returns the size of the tables with their indexes.
pub(crate) async fn storage(database: &Database) -> Result<Storage, CheckpointError> {
    let bytes = repeated!(database, "read the size of the tables", |_nth| async {
        let session = database.session().await?;
        let sql = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
            WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::text::regnamespace";
        Ok::<i64, Failed>(Query::of(sql, &[]).only(session.client()).await?.try_get(0)?)
    })?;
    Ok(Storage::new("PostgreSQL", schema::VERSION, u64::try_from(bytes).unwrap_or(0), None))
}

/// Rewrites the tables without the space of deleted rows.
pub(crate) async fn vacuum(database: &Database) -> Result<(), CheckpointError> {
    database.check_writable()?;
    let place = &database.place;
    let options = database.options.clone().statement_timeout(REWRITE).connections(1);
    let patient = Database::connect(options).await?;
    let patient = patient.ok_or_else(|| error::not_ours(place, "it has no tables of superstep"))?;
    let rewritten = async {
        let mut session = patient.session().await?;
        // The settings of this connection are not those of others.
        session.enter();
        session.client().batch_execute(LOCK).await?;
        for table in schema::TABLES {
            session.client().batch_execute(&format!("VACUUM (FULL, ANALYZE) {table}")).await?;
        }
        Ok::<_, Failed>(())
    };
    rewritten.await.map_err(|failed| failed.into_error(place, "rewrite the tables"))
}
