//! Opening a database: checks first, changes later.

mod reading;
mod sidecars;

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, backup::Backup};
use superstep_checkpoint::CheckpointError;

use crate::{
    SCHEMA, SqliteOptions, Synchronous, checksum, error, foreign, location::Location, schema::INPUTS, upgrade,
};

/// The number of [`SCHEMA`], stored as `PRAGMA user_version`. Any two numbers of schemas differ in more than
/// one bit.
pub(crate) const VERSION: i64 = 4;

/// The number of [`SCHEMA_1`](crate::schema::SCHEMA_1).
const OLD: i64 = 1;

/// The number of the schema without [`INPUTS`].
const UNINDEXED: i64 = 2;

/// The id of this program's databases, stored as `PRAGMA application_id`: "SSTP".
const APPLICATION: i64 = 0x5353_5450;

/// The first bytes of a rollback journal of SQLite, and the last ones if it names a super-journal.
const JOURNAL: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// The length of the write-ahead log, in pages, at which a commit folds it if no other request has.
const LAST_RESORT: u32 = 8_000;

/// The number of attempts to enable the write-ahead log while other processes open the same new file.
const TRIES: u32 = 20;

/// Opens or creates a database, and returns its canonical location.
pub(crate) fn for_writing(
    path: &Path,
    options: &SqliteOptions,
) -> Result<(Connection, PathBuf), CheckpointError> {
    create(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let (mut connection, file) = connect(path, flags, options)?;
    let place = Location::File(file.clone());
    let fail = |action: &str, cause| error::database(&place, action, cause);
    if options.exclusive {
        // Before the file is read, so that the write-ahead log needs no memory shared with others.
        connection
            .pragma_update_and_check(None, "locking_mode", "EXCLUSIVE", |_| Ok(()))
            .and_then(|()| connection.execute_batch("BEGIN IMMEDIATE; COMMIT"))
            .map_err(|cause| fail("lock", cause))?;
    }
    if connection.is_readonly("main").map_err(|cause| error::opening(&place, cause))? {
        let advice = "it is read-only; make the file and its folder writable, or use another file";
        return Err(error::cannot_open(&file, advice, None));
    }
    if check(&connection, &file)? != Content::Tables {
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|cause| fail("make the tables", cause))?;
        // Another process may have created them since.
        make_tables(&transaction, check(&transaction, &file)?)
            .map_err(|cause| fail("make the tables", cause))?;
        transaction.commit().map_err(|cause| fail("make the tables", cause))?;
    }
    use_write_ahead_log(&connection).map_err(|cause| fail("use a write-ahead log", cause))?;
    connection
        .pragma_update(
            None,
            "synchronous",
            match options.synchronous {
                Synchronous::Effects => "NORMAL",
                Synchronous::Commits => "FULL",
            },
        )
        .and_then(|()| connection.pragma_update(None, "wal_autocheckpoint", LAST_RESORT))
        .and_then(|()| limit(&connection, options.max_bytes))
        .map_err(|cause| error::opening(&place, cause))?;
    Ok((connection, file))
}

/// Opens an existing database without changes. Exception: an unfinished write of a killed process is undone
/// or applied if the file is writable.
pub(crate) fn for_reading(
    path: &Path,
    options: &SqliteOptions,
) -> Result<(Connection, PathBuf), CheckpointError> {
    let (connection, file) = reading::connect(path, options)?;
    match check(&connection, &file)? {
        Content::Tables | Content::Unindexed => Ok((connection, file)),
        // A process was killed before it created the tables.
        Content::Nothing => Ok((in_memory()?, file)),
        Content::Old => {
            let place = Location::ReadOnly(file.clone());
            let copy = copy(&connection, &place, options)?;
            make_tables(&copy, Content::Old)
                .map_err(|cause| error::database(&place, "read the tables of an older superstep", cause))?;
            Ok((copy, file))
        }
    }
}

/// Copies a database into memory, where it can be migrated.
pub(crate) fn copy(
    connection: &Connection,
    place: &Location,
    options: &SqliteOptions,
) -> Result<Connection, CheckpointError> {
    let mut copy = Connection::open_in_memory().map_err(|cause| error::opening(place, cause))?;
    Backup::new(connection, &mut copy)
        .and_then(|backup| backup.run_to_completion(i32::MAX, options.busy_timeout, None))
        .and_then(|()| prepare(&copy, options))
        .map_err(|cause| error::database(place, "read the tables of an older superstep", cause))?;
    Ok(copy)
}

/// Creates a private database in memory.
pub(crate) fn in_memory() -> Result<Connection, CheckpointError> {
    Connection::open_in_memory()
        .and_then(|connection| {
            prepare(&connection, &SqliteOptions::default())?;
            make_tables(&connection, Content::Nothing)?;
            Ok(connection)
        })
        .map_err(|cause| error::database(&Location::Memory, "make the tables", cause))
}

/// Sets the options common to all connections.
fn prepare(connection: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    connection.busy_timeout(options.busy_timeout)?;
    foreign::distrust(connection)?;
    checksum::register(connection)
}

/// Returns whether a path means a database in memory, by SQLite's convention.
pub(crate) fn is_memory(path: &Path) -> bool {
    path == Path::new(":memory:")
}

/// Creates an empty file if it does not exist, readable by its owner only.
///
/// An existing file is not opened: closing it would release the locks of this process's other connections.
fn create(path: &Path) -> Result<(), CheckpointError> {
    let mut file = fs::OpenOptions::new();
    file.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut file, 0o600);
    match file.open(path) {
        Ok(_) => Ok(()),
        Err(cause) if cause.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(cause) if cause.kind() == ErrorKind::NotFound => Err(no_folder(path, cause)),
        Err(cause) => Err(error::cannot_open(
            path,
            "it cannot be created; use a folder that can be written",
            Some(cause),
        )),
    }
}

/// Some file systems, such as `/proc`, return this error for an existing folder that does not accept files.
fn no_folder(path: &Path, cause: std::io::Error) -> CheckpointError {
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let shown = folder.display();
    let advice = if folder.is_dir() {
        format!("the folder `{shown}` takes no files; use a folder that can be written")
    } else {
        format!("the folder `{shown}` does not exist; create it or use another file")
    };
    error::cannot_open(path, &advice, Some(cause))
}

fn connect(
    path: &Path,
    flags: OpenFlags,
    options: &SqliteOptions,
) -> Result<(Connection, PathBuf), CheckpointError> {
    let file = find(path)?;
    sidecars::check(&file)?;
    let connection = Connection::open_with_flags(&file, flags)
        .and_then(|connection| prepare(&connection, options).map(|()| connection))
        .map_err(|cause| error::opening(&Location::File(file.clone()), cause))?;
    Ok((connection, file))
}

/// Returns the real name of a file. Two names of one must lead to the same locks, and a full path has no
/// special meaning to SQLite.
fn find(path: &Path) -> Result<PathBuf, CheckpointError> {
    let file = fs::canonicalize(path).map_err(|cause| match cause.kind() {
        ErrorKind::NotFound => error::cannot_open(path, "the file does not exist; check its path", None),
        _ => error::cannot_open(path, "check the permissions of the file and its folder", Some(cause)),
    })?;
    if file.is_dir() { Err(error::cannot_open(&file, "it is a folder; use a file", None)) } else { Ok(file) }
}

#[derive(PartialEq, Eq)]
enum Content {
    Nothing,
    /// The tables of schema [`OLD`].
    Old,
    /// The tables of schema [`UNINDEXED`].
    Unindexed,
    Tables,
}

/// Inspects a file without changing it.
fn check(connection: &Connection, file: &Path) -> Result<Content, CheckpointError> {
    let place = Location::File(file.to_path_buf());
    // One statement, so that it sees one state of a file in which another process may be creating tables.
    let look = connection.query_row(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
         FROM pragma_application_id, pragma_user_version",
        [],
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)),
    );
    match look.map_err(|cause| error::opening(&place, cause))? {
        (0, 0, 0) => Ok(Content::Nothing),
        (APPLICATION, VERSION, _) => foreign::check(connection, file).map(|()| Content::Tables),
        (APPLICATION, OLD, _) => foreign::check(connection, file).map(|()| Content::Old),
        (APPLICATION, UNINDEXED, _) => foreign::check(connection, file).map(|()| Content::Unindexed),
        (APPLICATION, newer, _) if newer > VERSION => Err(error::not_ours(
            file,
            format!(
                "it was written by a newer superstep (schema {newer}, this program knows {VERSION}); \
                 update superstep or use another file"
            ),
        )),
        (APPLICATION, unknown, _) => Err(error::not_ours(
            file,
            format!("superstep never wrote schema {unknown}; restore it from a backup or use another file"),
        )),
        _ => Err(error::not_ours(file, "it is the database of another program; use another file".into())),
    }
}

/// Creates or migrates the tables of the current schema.
fn make_tables(connection: &Connection, found: Content) -> rusqlite::Result<()> {
    match found {
        Content::Nothing => connection.execute_batch(SCHEMA)?,
        Content::Old => upgrade::from_1(connection)?,
        Content::Unindexed => connection.execute_batch(INPUTS)?,
        Content::Tables => return Ok(()),
    }
    connection.pragma_update(None, "application_id", APPLICATION)?;
    connection.pragma_update(None, "user_version", VERSION)
}

fn use_write_ahead_log(connection: &Connection) -> rusqlite::Result<()> {
    let mut tries = 0;
    loop {
        let mode = connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))
            .and_then(|mode| {
                if mode == "wal" {
                    Ok(())
                } else {
                    let full = format!("the file system only has journal mode `{mode}`");
                    Err(rusqlite::Error::ToSqlConversionFailure(full.into()))
                }
            });
        match mode {
            Err(cause) if cause.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && tries < TRIES => {
                tries += 1
            }
            done => return done,
        }
        // This change does not wait for other processes that are opening the file; a transaction does.
        connection.execute_batch("BEGIN IMMEDIATE; COMMIT")?;
    }
}

fn limit(connection: &Connection, bytes: Option<u64>) -> rusqlite::Result<()> {
    let Some(bytes) = bytes else { return Ok(()) };
    let page: u32 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let pages = u32::try_from(bytes / u64::from(page)).unwrap_or(u32::MAX - 1).max(1);
    connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
}

#[cfg(test)]
mod tests {
    use rusqlite::config::DbConfig;

    use super::*;

    #[test]
    fn the_option_synchronous_is_that_of_the_connection() {
        for (synchronous, number) in [(Synchronous::Effects, 1), (Synchronous::Commits, 2)] {
            let folder = tempfile::tempdir().unwrap();
            let options = SqliteOptions { synchronous, ..SqliteOptions::default() };
            let (connection, _) = for_writing(&folder.path().join("db"), &options).unwrap();
            let found: i64 = connection.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap();
            assert_eq!(found, number, "{synchronous:?}");
        }
    }

    #[test]
    fn no_code_in_a_file_is_executed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, options) = (folder.path().join("db"), SqliteOptions::default());
        let (writing, _) = for_writing(&file, &options).unwrap();
        let (reading, _) = for_reading(&file, &options).unwrap();
        for connection in [writing, reading] {
            for (option, is_on) in [
                (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
                (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
                (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
                (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
            ] {
                assert_eq!(connection.db_config(option).unwrap(), is_on, "{option:?}");
            }
        }
    }
}
