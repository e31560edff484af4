//! The end of the program: exit codes and error messages.

use std::{
    error::Error,
    fmt,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use superstep::{
    RunError,
    agent::AgentError,
    checkpoint::{CheckpointError, text::TextError},
    error::chain,
    replay::ReplayError,
};

use crate::output::text::{indented, printable};

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

/// An error for the user: the problem, its location, and the remedy.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    pub(crate) fn usage(message: impl AsRef<str>) -> Self {
        Self::new(Exit::Usage, indented(message.as_ref()))
    }

    /// Creates the failure of something that needs a feature which this build does not have.
    #[cfg_attr(feature = "full", allow(dead_code, reason = "a build with all features needs no other"))]
    pub(crate) fn missing_feature(what: &str, feature: &str) -> Self {
        Self::usage(format!("{what} needs a build with the feature `{feature}`; {}", how_to_add(feature)))
    }

    /// Creates the failure of a system without random numbers.
    pub(crate) fn no_randomness(cause: &dyn fmt::Display) -> Self {
        Self::new(Exit::Failed, format!("the system has no random numbers: {cause}"))
    }

    /// Creates the failure of a folder of tools that cannot be used.
    pub(crate) fn unusable_folder(folder: &Path, cause: &dyn fmt::Display) -> Self {
        Self::usage(format!("cannot work in `{}`: {cause}", folder.display()))
    }

    pub(crate) fn caused(exit: Exit, error: &(dyn Error + 'static)) -> Self {
        Self::new(exit, indented(&chain(error)))
    }

    /// Prints it on stderr.
    pub(crate) fn report(self) -> Exit {
        let style = anstyle::AnsiColor::Red.on_default().bold();
        let text = printable(&self.message);
        // If stderr is closed too, only the exit code remains.
        let _ = writeln!(anstream::stderr(), "{style}error:{style:#} {text}");
        self.exit
    }
}

/// Returns how the program gets a feature.
#[cfg_attr(feature = "full", allow(dead_code, reason = "a build with all features needs no other"))]
pub(crate) fn how_to_add(feature: &str) -> String {
    format!(
        "install it with `cargo install --path crates/cli --features {feature}`, or with `full`, which has all"
    )
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        let exit = match error {
            CheckpointError::Busy { .. }
            | CheckpointError::Conflict { .. }
            | CheckpointError::LeaseLost { .. }
            | CheckpointError::Leftovers { .. }
            | CheckpointError::NoThread { .. }
            | CheckpointError::ThreadExists { .. } => Exit::Thread,
            _ => Exit::Database,
        };
        Self::caused(exit, &error)
    }
}

impl From<TextError> for Failure {
    fn from(error: TextError) -> Self {
        match error {
            TextError::Checkpoint(error) => error.into(),
            TextError::Unexportable { .. } => Self::caused(Exit::Database, &error),
            error => Self::caused(Exit::Usage, &error),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Checkpoint(error) => error.into(),
            RunError::Text(error) => error.into(),
            RunError::EmptyThread { .. }
            | RunError::UnknownCheckpoint { .. }
            | RunError::OtherGraph { .. }
            | RunError::Unfinished { .. } => Self::caused(Exit::Thread, &error),
            RunError::UnknownNode { .. }
            | RunError::AmbiguousUpdate { .. }
            | RunError::UnclearUpdate { .. }
            | RunError::UnknownInterrupt { .. }
            | RunError::BadAnswer { .. }
            | RunError::MissingChannel { stored: None, .. } => Self::caused(Exit::Usage, &error),
            RunError::Decode { .. } | RunError::NewerChannel { .. } => Self::caused(Exit::Database, &error),
            error => Self::caused(Exit::Failed, &error),
        }
    }
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Run(error) => error.into(),
            error @ ReplayError::NoSuchNode { .. } => Self::caused(Exit::Usage, &error),
            other => Self::caused(Exit::Thread, &other),
        }
    }
}

/// Converts an error of a write to stdout; `None` if stdout was only closed.
pub(crate) fn unwritten(error: &io::Error) -> Option<Failure> {
    let message = format!("cannot write to stdout: {error}");
    (error.kind() != io::ErrorKind::BrokenPipe).then(|| Failure::new(Exit::Failed, message))
}

/// Returns the exit code of an agent's error: an invalid configuration, unless it is the program's own.
pub(crate) fn exit_of(error: &AgentError) -> Exit {
    match error {
        AgentError::Tools(_) | AgentError::Graph(_) => Exit::Failed,
        _ => Exit::Usage,
    }
}
