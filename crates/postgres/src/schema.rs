//! The tables of a schema, in each of their versions, and their creation.
//!
//! Start at [`SCHEMA`].

use std::time::Duration;

use crate::{error, error::Failed, location::Location, query::Query, session::Client};

/// The tables of a schema, as SQL.
///
/// Stable format: databases that this version wrote can be read by later ones.
pub const SCHEMA: &str = concat!(
    include_str!("schema_1.sql"),
    "\n",
    include_str!("schema_2.sql"),
    "\n",
    include_str!("schema_3.sql")
);

// A migration only adds. Processes of the older version run while the newer one migrates, and their statements are prepared. A
// table, a column or an index more does not disturb them; a removed or changed one would. A process checks the version when it
// opens the tables and not in each write, which would cost a lock. So an older program that runs continues, and one that is
// started is refused, because it may not know what the newer one stores.

/// The statements that create each version from the one before. They are never changed; a new version is a new entry.
const VERSIONS: [&str; 3] =
    [include_str!("schema_1.sql"), include_str!("schema_2.sql"), include_str!("schema_3.sql")];

pub(crate) const VERSION: u32 = 3;

const _: () = assert!(VERSIONS.len() == VERSION as usize);

/// The tables whose rows are deleted.
pub(crate) const TABLES: [&str; 6] =
    ["checkpoints", "tasks", "task_sums", "threads", "store_items", "store_words"];

/// The key of the lock of those who create or migrate tables: "superstep" as a number.
const LOCK: i64 = 0x7375_7065_7273_7465;

/// The maximum wait of a migration for a table that others use: meanwhile their new requests wait too.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(5);

/// The error of a process that waits for the migration of another one.
const MIGRATES: &str = "another process creates or migrates its tables; open it again when that is done";

/// Returns whether the tables are current; `None` if there are none.
///
/// # Errors
/// The tables are of a newer version or of another program.
pub(crate) async fn is_current(client: Client<'_>, place: &Location) -> Result<Option<bool>, Failed> {
    Ok(version(client, place).await?.map(|version| version == VERSIONS.len()))
}

/// Returns the random number that distinguishes the schema from others.
///
/// # Errors
/// It was removed.
pub(crate) async fn identity(client: Client<'_>, place: &Location) -> Result<String, Failed> {
    let row = Query::of("SELECT id FROM identity", &[]).row(client).await?;
    let lost = "the table `identity` has no row; restore it from a backup, or insert a random text";
    Ok(row.ok_or_else(|| error::not_ours(place, lost))?.try_get(0)?)
}

/// Returns the SQL that ends the server's work for a process that has ended, which servers before version 14 notice at the end of a
/// statement only; until the end of the transaction if `is_local`.
pub(crate) fn notices_ends(is_local: bool) -> String {
    format!(
        "SELECT set_config('client_connection_check_interval', '10s', {is_local})
         WHERE current_setting('server_version_num')::int >= 140000"
    )
}

/// Creates or migrates the tables, one process at a time. Returns whether it has created them.
///
/// The statements of a migration have no limit of time, which an index on a large table may exceed; only their waits for locks have one.
///
/// # Errors
/// See [`is_current`]. Another process migrates the tables, or uses them, for too long.
pub(crate) async fn make(client: Client<'_>, place: &Location, wait: Duration) -> Result<bool, Failed> {
    client.batch_execute("BEGIN").await?;
    let wait = wait.as_millis();
    client
        .batch_execute(&format!(
            "SET LOCAL statement_timeout TO 0; SET LOCAL lock_timeout TO {wait}; {}",
            notices_ends(true)
        ))
        .await?;
    // Until the end of the transaction.
    let lock = Query::of("SELECT pg_advisory_xact_lock($1)", &[&LOCK]);
    lock.rows(client)
        .await
        .map_err(|failed| if failed.is_lock() { error::not_ours(place, MIGRATES).into() } else { failed })?;
    let short = LOCK_WAIT.as_millis();
    client.batch_execute(&format!("SET LOCAL lock_timeout TO {short}")).await?;
    let found = match version(client, place).await? {
        Some(found) => found,
        None => {
            let schema = place.schema();
            // Not every user may create a schema, and one that exists needs no right to create it.
            let known = Query::of("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1", &[&schema]);
            if known.row(client).await?.is_none() {
                client.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
            }
            let versions = "CREATE TABLE versions (part text PRIMARY KEY, version bigint NOT NULL);
                INSERT INTO versions VALUES ('superstep', 0)";
            client.batch_execute(versions).await?;
            0
        }
    };
    for statements in &VERSIONS[found..] {
        client.batch_execute(statements).await?;
    }
    let now = i64::try_from(VERSIONS.len()).expect("there are few versions");
    Query::of("UPDATE versions SET version = $1 WHERE part = 'superstep'", &[&now]).rows(client).await?;
    client.batch_execute("COMMIT").await?;
    Ok(found == 0)
}

/// Returns the version of the tables; `None` if there are none.
async fn version(client: Client<'_>, place: &Location) -> Result<Option<usize>, Failed> {
    let encoding = Query::of("SELECT current_setting('server_encoding')", &[]);
    if encoding.only(client).await?.try_get::<_, &str>(0)? != "UTF8" {
        return Err(
            error::not_ours(place, "its encoding is not UTF8; create a database with that encoding").into()
        );
    }
    let schema = place.schema();
    let tables = "SELECT relname = 'versions' FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace
        WHERE nspname = $1 AND relkind IN ('r', 'v', 'm', 'p', 'f') ORDER BY 1 DESC LIMIT 1";
    match Query::of(tables, &[&schema]).row(client).await? {
        None => return Ok(None),
        Some(row) if row.try_get(0)? => {}
        Some(_) => {
            return Err(
                error::not_ours(place, "the schema has tables of another program; use another one").into()
            );
        }
    }
    let found = Query::of("SELECT version FROM versions WHERE part = 'superstep'", &[]);
    let found: i64 = found.row(client).await?.map_or(Ok(-1), |row| row.try_get(0))?;
    match usize::try_from(found) {
        Ok(version) if version <= VERSIONS.len() => Ok(Some(version)),
        _ => {
            let known = VERSIONS.len();
            let why = format!(
                "its tables were written by a newer superstep (version {found}, this program knows {known}); update superstep \
                 or use another schema"
            );
            Err(error::not_ours(place, &why).into())
        }
    }
}
