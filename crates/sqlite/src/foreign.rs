//! The allowed contents of a file: the tables that this program creates, and no others.
//!
//! A database may come from another person. Its triggers, views and expressions would run when it is used.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::OnceLock,
};

use rusqlite::{Connection, config::DbConfig};
use superstep_checkpoint::CheckpointError;

use crate::{
    SCHEMA, checksum, error,
    location::Location,
    schema::{SCHEMA_1, SCHEMAS},
};

/// An object of a schema: its kind, its table and its definition, without comments and layout.
type Object = (String, String, Option<String>);

/// The definitions that each name may have.
type Known = BTreeMap<String, BTreeSet<Object>>;

/// Disables code in the file: triggers, views and functions in its schema.
///
/// The program's own view is for people, and its own triggers are for programs of older versions.
pub(crate) fn distrust(connection: &Connection) -> rusqlite::Result<()> {
    for (option, is_on) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
    ] {
        connection.set_db_config(option, is_on)?;
    }
    connection.pragma_update(None, "cell_size_check", true)
}

/// Rejects a database with objects that no version of this program created.
pub(crate) fn check(connection: &Connection, file: &Path) -> Result<(), CheckpointError> {
    let place = Location::File(file.to_owned());
    let found = objects(connection).map_err(|cause| error::opening(&place, cause))?;
    let known = known();
    let foreign = found.iter().find_map(|(name, object)| match known.get(name) {
        Some(definitions) if definitions.contains(object) => None,
        Some(_) => Some(format!("its {} `{name}` is not defined as superstep defines it", object.0)),
        None => Some(format!("it has the {} `{name}`, which superstep did not make", object.0)),
    });
    match foreign {
        None => Ok(()),
        Some(what) => Err(error::not_ours(
            file,
            format!(
                "{what}; do not use it if it came from another person, or remove what is foreign with `sqlite3`"
            ),
        )),
    }
}

fn objects(connection: &Connection) -> rusqlite::Result<Vec<(String, Object)>> {
    let mut rows = connection.prepare("SELECT name, type, tbl_name, sql FROM sqlite_schema ORDER BY name")?;
    let rows = rows.query_map([], |row| {
        let sql: Option<String> = row.get(3)?;
        Ok((row.get(0)?, (row.get(1)?, row.get(2)?, sql.map(|sql| plain(&sql)))))
    })?;
    rows.collect()
}

/// Returns the objects of all databases that versions of this program created.
fn known() -> &'static Known {
    static KNOWN: OnceLock<Known> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let mut known = Known::new();
        // The first databases had a table with another layout.
        let first = SCHEMA_1.replacen(
            "PRIMARY KEY (checkpoint, slot)\n) STRICT;",
            "PRIMARY KEY (checkpoint, slot)\n) STRICT, WITHOUT ROWID;",
            1,
        );
        for schema in [SCHEMA, SCHEMA_1, &first] {
            let made = Connection::open_in_memory().and_then(|fresh| {
                checksum::register(&fresh)?;
                let mut made = Vec::new();
                for step in [schema].iter().chain(&SCHEMAS) {
                    fresh.execute_batch(step)?;
                    made.extend(objects(&fresh)?);
                }
                Ok(made)
            });
            for (name, object) in made.expect("the program's own tables can be made in memory") {
                known.entry(name).or_default().insert(object);
            }
        }
        known
    })
}

/// Returns SQL without its comments, and with one space between words.
fn plain(sql: &str) -> String {
    let lines = sql.lines().map(|line| line.split_once("--").map_or(line, |(code, _)| code));
    lines.flat_map(str::split_ascii_whitespace).collect::<Vec<_>>().join(" ")
}
