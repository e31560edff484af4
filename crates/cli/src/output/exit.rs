//! The end of the program: exit codes.

use std::{io, process::ExitCode};

use superstep_session::error::{ErrorKind, SessionError};

/// The exit codes. A promise: they are listed in `docs/cli.md` and in `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok = 0,
    /// The run failed, a failed tool or hook ended its turn, its reply does not match its schema, the output could not
    /// be written, or a strict replay is incomplete.
    Failed = 1,
    /// The command line, the prompt or a setting is not valid.
    Usage = 2,
    Model = 3,
    /// The database, or the memory, cannot be opened, read or written.
    Database = 4,
    /// The thread is unknown, busy or unfinished, or the name is taken.
    Thread = 5,
    /// Calls wait for a decision.
    Waiting = 6,
    /// A replay diverged from the stored thread.
    Diverged = 7,
    Internal = 70,
    /// Stopped by Ctrl-C, or because the output was closed.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<ErrorKind> for Exit {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Invalid => Self::Usage,
            ErrorKind::Model => Self::Model,
            ErrorKind::Database => Self::Database,
            ErrorKind::Thread | ErrorKind::Unknown => Self::Thread,
            ErrorKind::Diverged => Self::Diverged,
            ErrorKind::Interrupted => Self::Interrupted,
            ErrorKind::Internal => Self::Internal,
            _ => Self::Failed,
        }
    }
}

/// Converts an error of a write to stdout; `None` if stdout was only closed.
pub(crate) fn unwritten(error: &io::Error) -> Option<SessionError> {
    let message = format!("cannot write to stdout: {error}");
    (error.kind() != io::ErrorKind::BrokenPipe).then(|| SessionError::new(ErrorKind::Failed, message))
}
