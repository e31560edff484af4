//! How the program ends: exit codes, and errors in words.

use std::{
    error::Error,
    io::{self, Write},
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
};

use superstep::{CheckpointError, RunError, chain};

use crate::output::printable;

/// The exit codes. A promise: they are listed in `docs/cli.md` and in `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It is done.
    Ok = 0,
    /// The run failed, its reply does not fit its schema, its output could not be written, or a replay that is to be whole is
    /// not.
    Failed = 1,
    /// The command line, the prompt or a setting makes no sense.
    Usage = 2,
    /// The model could not be asked.
    Model = 3,
    /// The database, or the memory, cannot be opened, read or written.
    Database = 4,
    /// The thread is unknown, busy or unfinished, or there is one of that name.
    Thread = 5,
    /// Calls wait for a decision.
    Waiting = 6,
    /// A replay came to something else than the thread.
    Diverged = 7,
    /// A bug.
    Internal = 70,
    /// Stopped by Ctrl-C, or because nobody reads the output any more.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error for the user: what happened, where, what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// An error with its causes.
    pub(crate) fn caused(exit: Exit, error: &(dyn Error + 'static)) -> Self {
        Self::new(exit, chain(error))
    }

    /// Tells it on stderr.
    pub(crate) fn report(self) -> Exit {
        let style = anstyle::AnsiColor::Red.on_default().bold();
        let text = printable(&self.message);
        // If stderr is gone too, the exit code has to do.
        let _ = writeln!(anstream::stderr(), "{style}error:{style:#} {text}");
        self.exit
    }
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        let exit = match error {
            CheckpointError::Busy { .. }
            | CheckpointError::Conflict { .. }
            | CheckpointError::NoThread { .. }
            | CheckpointError::ThreadExists { .. } => Exit::Thread,
            _ => Exit::Database,
        };
        Self::caused(exit, &error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Checkpoint(error) => error.into(),
            RunError::EmptyThread { .. }
            | RunError::UnknownCheckpoint { .. }
            | RunError::OtherGraph { .. }
            | RunError::Unfinished { .. } => Self::caused(Exit::Thread, &error),
            RunError::Decode { .. } | RunError::NewerChannel { .. } => Self::caused(Exit::Database, &error),
            error => Self::caused(Exit::Failed, &error),
        }
    }
}

/// The failure of a write to stdout; `None` if only nobody reads it any more.
pub(crate) fn unwritten(error: &io::Error) -> Option<Failure> {
    let message = format!("cannot write to stdout: {error}");
    (error.kind() != io::ErrorKind::BrokenPipe).then(|| Failure::new(Exit::Failed, message))
}

/// Runs the program; a panic ends it with [`Exit::Internal`].
pub(crate) fn guard(program: impl FnOnce() -> Exit) -> Exit {
    // Tasks that panic are caught and reported by the run; this says where it was.
    panic::set_hook(Box::new(|panic| {
        let text = printable(panic.payload_as_str().unwrap_or("without a message"));
        let place = panic.location().map(|place| format!(" at {}:{}", place.file(), place.line()));
        let place = place.unwrap_or_default();
        let _ = writeln!(anstream::stderr(), "internal error: {text}{place}; please report this");
    }));
    panic::catch_unwind(AssertUnwindSafe(program)).unwrap_or(Exit::Internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_has_an_exit_code_of_its_own() {
        let exit = guard(|| panic!("as the test wants it"));
        drop(panic::take_hook());
        assert_eq!(exit, Exit::Internal);
    }
}
