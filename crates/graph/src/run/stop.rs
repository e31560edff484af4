//! The reasons why a run does not continue.
//!
//! Start at [`Stop`].

use superstep_checkpoint::CheckpointError;

use crate::RunError;

/// A superstep that cannot be committed, and the tasks at fault, by slot.
pub(super) struct Refused {
    pub(super) error: RunError,
    pub(super) blamed: Vec<u32>,
}

/// The reason why a run does not continue.
pub(super) enum Stop {
    /// An error. Boxed, because each step of the driver can return one, and few do.
    Refused(Box<Refused>),
    /// The observer of the run ends it.
    Halted,
}

impl Stop {
    /// The error of a run whose observer ends none.
    pub(super) fn into_error(self) -> RunError {
        match self {
            Self::Refused(refused) => refused.error,
            Self::Halted => unreachable!("an observer that records does not end the run"),
        }
    }
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        Self::Refused(Box::new(refused))
    }
}

impl From<RunError> for Stop {
    fn from(error: RunError) -> Self {
        Refused::from(error).into()
    }
}

impl From<CheckpointError> for Stop {
    fn from(error: CheckpointError) -> Self {
        RunError::from(error).into()
    }
}

impl From<RunError> for Refused {
    fn from(error: RunError) -> Self {
        Self { error, blamed: Vec::new() }
    }
}
