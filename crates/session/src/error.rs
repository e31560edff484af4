//! Errors for the user.

use std::{error::Error, fmt, path::Path};

use superstep::{
    RunError,
    agent::AgentError,
    checkpoint::{CheckpointError, text::TextError},
    error::chain,
    replay::ReplayError,
};

use crate::text::indented;

/// The kind of an error, by which a program chooses its exit code or an answer its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The run failed, or a failed tool or hook ended its turn.
    Failed,
    /// The input or a setting is not valid.
    Invalid,
    Model,
    /// The database, or the memory, cannot be opened, read or written.
    Database,
    /// The thread is busy or unfinished, or the name is taken.
    Thread,
    /// There is no such thread.
    Unknown,
    /// A replay diverged from the stored thread.
    Diverged,
    /// The caller stopped it.
    Interrupted,
    /// A fault of the program.
    Internal,
}

/// An error for the user: the problem, its location, and the remedy.
#[derive(Clone, thiserror::Error)]
#[error("{message}")]
pub struct SessionError {
    pub kind: ErrorKind,
    pub message: String,
}

impl SessionError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub fn usage(message: impl AsRef<str>) -> Self {
        Self::new(ErrorKind::Invalid, indented(message.as_ref()))
    }

    /// Creates the failure of something that needs a feature which this build does not have.
    #[cfg_attr(feature = "full", allow(dead_code, reason = "a build with all features needs no other"))]
    pub fn missing_feature(what: &str, feature: &str) -> Self {
        Self::usage(format!("{what} needs a build with the feature `{feature}`; {}", how_to_add(feature)))
    }

    /// Creates the failure of a system without random numbers.
    pub fn no_randomness(cause: &dyn fmt::Display) -> Self {
        Self::new(ErrorKind::Failed, format!("the system has no random numbers: {cause}"))
    }

    /// Creates the failure of a folder of tools that cannot be used.
    pub(crate) fn unusable_folder(folder: &Path, cause: &dyn fmt::Display) -> Self {
        Self::usage(format!("cannot work in `{}`: {cause}", folder.display()))
    }

    pub fn caused(kind: ErrorKind, error: &(dyn Error + 'static)) -> Self {
        Self::new(kind, indented(&chain(error)))
    }
}

superstep::__private::debug_by_chain!(SessionError);

/// Returns how the program gets a feature.
#[cfg_attr(feature = "full", allow(dead_code, reason = "a build with all features needs no other"))]
pub fn how_to_add(feature: &str) -> String {
    format!(
        "install it with `cargo install --path crates/cli --features {feature}`, or with `full`, which has all"
    )
}

impl From<CheckpointError> for SessionError {
    fn from(error: CheckpointError) -> Self {
        let kind = match error {
            CheckpointError::Busy { .. }
            | CheckpointError::Conflict { .. }
            | CheckpointError::LeaseLost { .. }
            | CheckpointError::Leftovers { .. }
            | CheckpointError::NoThread { .. }
            | CheckpointError::ThreadExists { .. } => ErrorKind::Thread,
            _ => ErrorKind::Database,
        };
        Self::caused(kind, &error)
    }
}

impl From<TextError> for SessionError {
    fn from(error: TextError) -> Self {
        match error {
            TextError::Checkpoint(error) => error.into(),
            TextError::Unexportable { .. } => Self::caused(ErrorKind::Database, &error),
            error => Self::caused(ErrorKind::Invalid, &error),
        }
    }
}

impl From<RunError> for SessionError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Checkpoint(error) => error.into(),
            RunError::Text(error) => error.into(),
            RunError::EmptyThread { .. }
            | RunError::UnknownCheckpoint { .. }
            | RunError::OtherGraph { .. }
            | RunError::Unfinished { .. } => Self::caused(ErrorKind::Thread, &error),
            RunError::UnknownNode { .. }
            | RunError::AmbiguousUpdate { .. }
            | RunError::UnclearUpdate { .. }
            | RunError::UnknownInterrupt { .. }
            | RunError::BadAnswer { .. }
            | RunError::MissingChannel { stored: None, .. } => Self::caused(ErrorKind::Invalid, &error),
            RunError::Decode { .. } | RunError::NewerChannel { .. } => {
                Self::caused(ErrorKind::Database, &error)
            }
            error => Self::caused(ErrorKind::Failed, &error),
        }
    }
}

impl From<ReplayError> for SessionError {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Run(error) => error.into(),
            error @ ReplayError::NoSuchNode { .. } => Self::caused(ErrorKind::Invalid, &error),
            other => Self::caused(ErrorKind::Thread, &other),
        }
    }
}

/// Returns the kind of an agent's error: an invalid configuration, unless it is the program's own.
pub(crate) fn kind_of(error: &AgentError) -> ErrorKind {
    match error {
        AgentError::Tools(_) | AgentError::Graph(_) => ErrorKind::Failed,
        _ => ErrorKind::Invalid,
    }
}
