//! Opening a database for reading, at any location and with any journal left next to it.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, ErrorCode, OpenFlags};
use superstep_checkpoint::CheckpointError;

use super::{JOURNAL, find, prepare, sidecars};
use crate::{
    SqliteOptions, error,
    location::{Location, beside},
};

/// The modes of opening a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Shared with other programs. Leaves the files of a log behind, if it is the last to close the database.
    Shared,
    /// Shared with other programs, with the right to write to files, but not to tables: removes the files of a log at the end, and recovers
    /// from a killed process, of which a rollback journal or a log is left. Without a log it becomes [`Shared`](Self::Shared).
    Mended,
    /// On read-only media: without locks, and without new files.
    Alone {
        /// `true` if there is a log to read as well.
        log: bool,
    },
}

pub(super) fn connect(
    path: &Path,
    options: &SqliteOptions,
) -> Result<(Connection, PathBuf), CheckpointError> {
    let file = find(path)?;
    let has_log = fs::metadata(beside(&file, "-wal")).is_ok_and(|log| log.len() > 0);
    let mut refused = None;
    // A log that a killed process left remains as it is, so that reading destroys nothing.
    let together = if has_log { [Mode::Shared, Mode::Mended] } else { [Mode::Mended, Mode::Shared] };
    for mode in together.into_iter().chain([Mode::Alone { log: has_log }]) {
        if matches!(mode, Mode::Alone { .. }) && was_empty(&file) {
            return Ok((super::in_memory()?, file));
        }
        sidecars::check(&file)?;
        match open(&file, mode, options) {
            Ok(connection) => return Ok((connection, file)),
            Err(cause) if needs_another_mode(&cause) => refused = refused.or(Some(cause)),
            Err(cause) => return Err(error::opening(&Location::ReadOnly(file), refused.unwrap_or(cause))),
        }
    }
    let cause = refused.expect("a file that was not opened was refused");
    Err(error::opening(&Location::ReadOnly(file), cause))
}

/// Returns whether a rollback journal shows that the file was empty: a process was killed while it created
/// the first tables.
fn was_empty(file: &Path) -> bool {
    let mut header = [0; 20];
    let read =
        fs::File::open(beside(file, "-journal")).and_then(|mut journal| journal.read_exact(&mut header));
    // The original number of pages follows the magic number, the number of records and a nonce.
    read.is_ok() && header[..8] == JOURNAL && header[16..] == [0; 4]
}

/// Returns whether opening requires a write that is not possible, or not possible in this mode.
fn needs_another_mode(cause: &rusqlite::Error) -> bool {
    matches!(cause.sqlite_error_code(), Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen))
}

fn open(file: &Path, mode: Mode, options: &SqliteOptions) -> rusqlite::Result<Connection> {
    let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match mode {
        Mode::Shared => Connection::open_with_flags(file, read_only)?,
        Mode::Mended => {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(file, flags)?;
            connection.pragma_update(None, "query_only", true)?;
            connection
        }
        Mode::Alone { log: false } => {
            Connection::open_with_flags(immutable(file), read_only | OpenFlags::SQLITE_OPEN_URI)?
        }
        Mode::Alone { log: true } => {
            let connection = Connection::open_with_flags_and_vfs(file, read_only, c"unix-none")?;
            // The index of the log is then in memory, not in a file.
            connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
            connection
        }
    };
    prepare(&connection, options)?;
    // SQLite opens the file only at the first query.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    if mode == Mode::Mended {
        let journal: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
        // Without a log, each read would roll back a journal that has appeared meanwhile, and that was not checked.
        if journal != "wal" {
            drop(connection);
            return open(file, Mode::Shared, options);
        }
    }
    Ok(connection)
}

/// Returns the URI of an immutable file.
fn immutable(file: &Path) -> String {
    let mut address = "file:".to_owned();
    for byte in file.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => address.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => address.push(char::from(*byte)),
            byte => address.push_str(&format!("%{byte:02X}")),
        }
    }
    address + "?immutable=1"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::for_writing;

    #[test]
    fn on_a_medium_that_cannot_be_written_no_file_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        let (connection, source) = for_writing(&source, &SqliteOptions::default()).unwrap();
        connection.execute_batch("INSERT INTO task_sums VALUES (7, 1)").unwrap();
        let copy = folder.path().join("100% a?b#c");
        for log in [true, false] {
            fs::create_dir(&copy).unwrap();
            let file = copy.join("db");
            if !log {
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
            }
            fs::copy(&source, &file).unwrap();
            if log {
                fs::copy(beside(&source, "-wal"), beside(&file, "-wal")).unwrap();
            }
            let before = names(&copy);
            let alone = open(&file, Mode::Alone { log }, &SqliteOptions::default()).unwrap();
            let sum: i64 = alone.query_row("SELECT checkpoint FROM task_sums", [], |row| row.get(0)).unwrap();
            assert_eq!((sum, names(&copy)), (7, before.clone()));
            drop(alone);
            assert_eq!(names(&copy), before);
            fs::remove_dir_all(&copy).unwrap();
        }
    }

    fn names(folder: &Path) -> Vec<std::ffi::OsString> {
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    }
}
