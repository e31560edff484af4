//! The errors of a database, with remedies.

use std::{error::Error, io, path::Path};

use rusqlite::ErrorCode;
use superstep_checkpoint::{CheckpointError, ThreadId};

use crate::{location::Location, stored::StoredThread};

/// The failure of a request: an error of SQLite that does not name the request yet, or any other.
#[derive(Debug)]
pub(crate) enum Failed {
    Sqlite(rusqlite::Error),
    Refused(CheckpointError),
}

impl From<rusqlite::Error> for Failed {
    fn from(cause: rusqlite::Error) -> Self {
        Self::Sqlite(cause)
    }
}

impl From<CheckpointError> for Failed {
    fn from(error: CheckpointError) -> Self {
        Self::Refused(error)
    }
}

impl Failed {
    /// Converts the failure of `action`.
    pub(crate) fn into_error(self, place: &Location, action: &str) -> CheckpointError {
        match self {
            Self::Sqlite(cause) => database(place, action, cause),
            Self::Refused(error) => error,
        }
    }
}

/// Converts an error of SQLite while opening a database.
pub(crate) fn opening(place: &Location, cause: rusqlite::Error) -> CheckpointError {
    explained(place, format!("cannot open {place}"), cause)
}

/// Converts an error of SQLite during `action`.
pub(crate) fn database(place: &Location, action: &str, cause: rusqlite::Error) -> CheckpointError {
    explained(place, format!("cannot {action} in {place}"), cause)
}

fn explained(place: &Location, failed: String, cause: rusqlite::Error) -> CheckpointError {
    let advice = match cause.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another program has locked it; wait until it is done, or end it"
        }
        Some(ErrorCode::DiskFull) => "it cannot grow; free some space and resume from the last checkpoint",
        Some(ErrorCode::ReadOnly) => {
            "it is open for reading only; make the file and its folder writable, or use another file"
        }
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            "access is denied; check the permissions of the file and its folder"
        }
        Some(ErrorCode::CannotOpen) => {
            "it cannot be opened; check the permissions of the file and its folder"
        }
        Some(ErrorCode::SystemIoFailure) => "reading or writing failed; check the disk and its free space",
        Some(ErrorCode::NotADatabase) => "it is not an SQLite database; use another file",
        Some(ErrorCode::DatabaseCorrupt) => {
            let what = format!(
                "{failed}: {place} is damaged; restore it from a backup, or save what is left with \
                 the `.recover` command of `sqlite3`"
            );
            return corrupt(what, in_short(cause));
        }
        _ => "SQLite refused",
    };
    storage(format!("{failed}: {advice}"), in_short(cause))
}

/// The message of SQLite without duplicates: its errors repeat their own causes.
#[derive(Debug, thiserror::Error)]
#[error("{message} (SQLite code {code})")]
struct Refusal {
    message: String,
    code: i32,
    busy: bool,
}

fn in_short(cause: rusqlite::Error) -> Box<dyn Error + Send + Sync> {
    match cause {
        rusqlite::Error::SqliteFailure(error, message) => {
            let message = message.unwrap_or_else(|| error.to_string());
            let busy = is_busy_code(error.code);
            Box::new(Refusal { message, code: error.extended_code, busy })
        }
        other => other.into(),
    }
}

/// Returns whether SQLite could not begin because another program has the database locked.
pub(crate) fn is_refused_as_busy(cause: &rusqlite::Error) -> bool {
    cause.sqlite_error_code().is_some_and(is_busy_code)
}

fn is_busy_code(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
}

/// Returns whether another program has the database locked, so that waiting may help.
pub(crate) fn is_busy(error: &CheckpointError) -> bool {
    match error {
        CheckpointError::Storage { source: Some(cause), .. } => is_busy_cause(&**cause),
        _ => false,
    }
}

/// Returns the same for the cause of an error.
pub(crate) fn is_busy_cause(cause: &(dyn Error + Send + Sync + 'static)) -> bool {
    cause.downcast_ref::<Refusal>().is_some_and(|refusal| refusal.busy)
}

/// Creates the error of the operating system while opening the database at `path`.
pub(crate) fn cannot_open(path: &Path, advice: &str, cause: Option<io::Error>) -> CheckpointError {
    CheckpointError::Storage {
        what: format!("cannot open database `{}`: {advice}", path.display()),
        source: cause.map(|cause| Box::new(cause) as Box<dyn Error + Send + Sync>),
    }
}

/// Creates the error of a database of another program.
pub(crate) fn not_ours(path: &Path, advice: String) -> CheckpointError {
    cannot_open(path, &advice, None)
}

/// Returns a thread with the words for its damages.
pub(crate) fn stored<'a>(place: &'a Location, thread: &'a ThreadId) -> StoredThread<'a> {
    StoredThread { name: thread, place, backup: "file" }
}

/// Creates the error of a thread whose own row is damaged.
pub(crate) fn damaged_thread(
    place: &Location,
    thread: &ThreadId,
    cause: impl Into<Box<dyn Error + Send + Sync>>,
) -> CheckpointError {
    let what = format!(
        "the row of thread `{thread}` in the table `threads` in {place} is damaged; restore the file from a backup, or \
         delete the thread"
    );
    corrupt(what, cause)
}

/// Creates the error of a damaged row in the table of threads, whose thread is unknown.
pub(crate) fn damaged_thread_row(
    place: &Location,
    key: i64,
    cause: impl Into<Box<dyn Error + Send + Sync>>,
) -> CheckpointError {
    corrupt(
        format!("row {key} of the table `threads` in {place} is damaged; restore the file from a backup"),
        cause,
    )
}

/// Creates the error of a table of threads that lost rows, or whose index did.
pub(crate) fn damaged_threads(place: &Location) -> CheckpointError {
    let what = format!(
        "the table `threads` in {place} is damaged: it has not as many rows as the index of names; restore the file from \
         a backup"
    );
    CheckpointError::Corrupt { what, source: None }
}

pub(crate) fn cannot_sync(place: &Location, cause: io::Error) -> CheckpointError {
    storage(format!("cannot write {place} to the disk; check the disk"), cause)
}

/// Creates the error of a write to a database that was opened for reading.
pub(crate) fn read_only(place: &Location) -> CheckpointError {
    CheckpointError::Storage {
        what: format!("{place} was opened for reading only; open it for writing"),
        source: None,
    }
}

pub(crate) fn cannot_lock(path: &Path, cause: io::Error) -> CheckpointError {
    storage(
        format!(
            "cannot lock `{}`, the file that makes a run the only writer of its thread; check that the folder can be \
             written and that its file system has locks",
            path.display()
        ),
        cause,
    )
}

pub(crate) fn no_worker(place: &Location, cause: io::Error) -> CheckpointError {
    storage(format!("cannot start the OS thread that serves {place}"), cause)
}

pub(crate) fn worker_ended(place: &Location) -> CheckpointError {
    CheckpointError::Storage {
        what: format!("the OS thread that served {place} has panicked; open it again"),
        source: None,
    }
}

fn storage(what: String, cause: impl Into<Box<dyn Error + Send + Sync>>) -> CheckpointError {
    CheckpointError::Storage { what, source: Some(cause.into()) }
}

fn corrupt(what: String, cause: impl Into<Box<dyn Error + Send + Sync>>) -> CheckpointError {
    CheckpointError::Corrupt { what, source: Some(cause.into()) }
}

/// Creates the error of a file whose pages or indexes are damaged.
pub(crate) fn damaged_file(place: &Location, damages: &str) -> CheckpointError {
    let what = format!("{place} is damaged: {damages}; restore the database from a backup");
    CheckpointError::Corrupt { what, source: None }
}
