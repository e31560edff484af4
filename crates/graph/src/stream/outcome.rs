//! The end of a run.
//!
//! Start at [`Outcome`].

use std::fmt;

use crate::{CheckpointId, Interrupt, State, View};

/// The result of a run that did not fail.
#[derive(Clone, Debug)]
pub struct Outcome<S> {
    /// The state after the last superstep. If the run stopped in the middle of one, it includes the writes of
    /// finished tasks, like [`StateSnapshot::values`](crate::thread::StateSnapshot::values).
    pub state: S,
    /// The status of the run.
    pub status: Status,
    /// The last checkpoint; `None` without a checkpointer.
    pub checkpoint: Option<CheckpointId>,
    /// The pending interrupts, if it was interrupted, or cancelled with some pending.
    pub interrupts: Vec<Interrupt>,
    /// The reason of the drain, if it was drained.
    pub drained: Option<String>,
}

/// The status at the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// No tasks are pending.
    Completed,
    /// The run waits for external input: for answers to [`Outcome::interrupts`], or, if there are none, at a
    /// breakpoint.
    Interrupted,
    /// The run was drained after a superstep, with the reason in [`Outcome::drained`]; resume it to continue.
    Drained,
    /// The run was cancelled with pending tasks; resume it to continue. [`Outcome::interrupts`] has the pending
    /// interrupts.
    Cancelled,
}

impl Status {
    /// Returns the name of the status, in lowercase.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Interrupted => "interrupted",
            Self::Drained => "drained",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<S: State> Outcome<S> {
    /// Converts the outcome to one with a part of the state.
    pub fn view<V: View<S>>(self) -> Outcome<V> {
        let Self { state, status, checkpoint, interrupts, drained } = self;
        Outcome { state: V::view(&state), status, checkpoint, interrupts, drained }
    }
}
