//! Opening a database: checks first, changes after.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use superstep_graph::CheckpointError;

use crate::{SqliteOptions, database::Place, error, foreign};

/// The tables of a database, as SQL.
///
/// A promise: databases that this version wrote can be read by later ones.
pub const SCHEMA: &str = include_str!("schema.sql");

/// The number of [`SCHEMA`], stored as `PRAGMA user_version`.
const VERSION: i64 = 1;

/// What tells our databases from those of others, stored as `PRAGMA application_id`: "SSTP".
const APPLICATION: i64 = 0x5353_5450;

/// The length of the write-ahead log, in pages, at which a commit folds it, because nobody else did.
const LAST_RESORT: u32 = 8_000;

/// How often to ask for the write-ahead log while others open the same new file.
const TRIES: u32 = 20;

/// Opens or makes a database, and says where it really is.
pub(crate) fn for_writing(
    path: &Path,
    options: &SqliteOptions,
) -> Result<(Connection, PathBuf), CheckpointError> {
    create(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let (mut connection, file) = connect(path, flags, options)?;
    let place = Place::File(file.clone());
    let fail = |action: &str, cause| error::database(&place, action, cause);
    if connection.is_readonly("main").map_err(|cause| error::opening(&place, cause))? {
        let advice = "it is read-only; make the file and its folder writable, or use another file";
        return Err(error::cannot_open(&file, advice, None));
    }
    if check(&connection, &file)? == Content::Nothing {
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|cause| fail("make the tables", cause))?;
        // Someone else may have made them since.
        if check(&transaction, &file)? == Content::Nothing {
            make_tables(&transaction).map_err(|cause| fail("make the tables", cause))?;
        }
        transaction.commit().map_err(|cause| fail("make the tables", cause))?;
    }
    use_write_ahead_log(&connection).map_err(|cause| fail("use a write-ahead log", cause))?;
    connection
        .pragma_update(None, "synchronous", "NORMAL")
        .and_then(|()| connection.pragma_update(None, "wal_autocheckpoint", LAST_RESORT))
        .and_then(|()| limit(&connection, options.max_bytes))
        .map_err(|cause| error::opening(&place, cause))?;
    Ok((connection, file))
}

/// Opens a database that has to be there.
pub(crate) fn for_reading(
    path: &Path,
    options: &SqliteOptions,
) -> Result<(Connection, PathBuf), CheckpointError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let (connection, file) = connect(path, flags, options)?;
    match check(&connection, &file)? {
        Content::Tables => Ok((connection, file)),
        Content::Nothing => Err(error::not_ours(
            &file,
            "it is empty, so there is nothing to read yet; use another file".into(),
        )),
    }
}

/// Makes a database that no one else sees.
pub(crate) fn in_memory() -> Result<Connection, CheckpointError> {
    Connection::open_in_memory()
        .and_then(|connection| foreign::distrust(&connection).map(|()| connection))
        .and_then(|connection| make_tables(&connection).map(|()| connection))
        .map_err(|cause| error::database(&Place::Memory, "make the tables", cause))
}

/// Makes an empty file if there is none, so that no one but its owner ever reads it.
///
/// A file that is there is not touched: opening and closing it would take away the locks that other connections of this
/// process have on it.
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

/// Some file systems, `/proc` among them, say so of a folder that is there and takes no files.
fn no_folder(path: &Path, cause: std::io::Error) -> CheckpointError {
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let shown = folder.display();
    let advice = match folder.is_dir() {
        true => format!("the folder `{shown}` takes no files; use a folder that can be written"),
        false => format!("the folder `{shown}` does not exist; create it or use another file"),
    };
    error::cannot_open(path, &advice, Some(cause))
}

fn connect(
    path: &Path,
    flags: OpenFlags,
    options: &SqliteOptions,
) -> Result<(Connection, PathBuf), CheckpointError> {
    // Two names of one file must lead to the same locks. And a full path has no special meaning to SQLite.
    let file = fs::canonicalize(path).map_err(|cause| match cause.kind() {
        ErrorKind::NotFound => error::cannot_open(path, "there is no such file; use another one", None),
        _ => error::cannot_open(path, "check the permissions of the file and its folder", Some(cause)),
    })?;
    if file.is_dir() {
        return Err(error::cannot_open(&file, "it is a folder; use a file", None));
    }
    let place = Place::File(file.clone());
    let connection = Connection::open_with_flags(&file, flags)
        .and_then(|connection| connection.busy_timeout(options.busy_timeout).map(|()| connection))
        .and_then(|connection| foreign::distrust(&connection).map(|()| connection))
        .map_err(|cause| error::opening(&place, cause))?;
    Ok((connection, file))
}

#[derive(PartialEq, Eq)]
enum Content {
    Nothing,
    Tables,
}

/// Looks at what a file is without changing it.
fn check(connection: &Connection, file: &Path) -> Result<Content, CheckpointError> {
    let place = Place::File(file.to_path_buf());
    // One statement, so that it sees one state of a file that someone else may be making tables in.
    let look = connection.query_row(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
         FROM pragma_application_id, pragma_user_version",
        [],
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)),
    );
    match look.map_err(|cause| error::opening(&place, cause))? {
        (0, 0, 0) => Ok(Content::Nothing),
        (APPLICATION, VERSION, _) => foreign::check(connection, file).map(|()| Content::Tables),
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

fn make_tables(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(SCHEMA)?;
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
        // This change does not wait for others who are just opening the file; a transaction does.
        connection.execute_batch("BEGIN IMMEDIATE; COMMIT")?;
    }
}

fn limit(connection: &Connection, bytes: Option<u64>) -> rusqlite::Result<()> {
    let Some(bytes) = bytes else { return Ok(()) };
    let page: u32 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let pages = u32::try_from(bytes / u64::from(page)).unwrap_or(u32::MAX - 1).max(1);
    connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
}
