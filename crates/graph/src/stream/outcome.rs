//! The end of a run.
//!
//! Start at [`Outcome`].

use crate::{CheckpointId, Interrupt, State, View};

/// How a run ended that did not fail.
#[derive(Clone, Debug)]
pub struct Outcome<S> {
    /// The state after the last superstep. If the run stopped in the middle of one, it has what tasks wrote that were over, as
    /// [`StateSnapshot::values`](crate::StateSnapshot::values) has it.
    pub state: S,
    /// Whether the graph came to its end.
    pub status: Status,
    /// The last checkpoint; `None` without a checkpointer.
    pub checkpoint: Option<CheckpointId>,
    /// What waits for an answer, if it was interrupted, or cancelled beside that.
    pub interrupts: Vec<Interrupt>,
    /// Why it was drained, if it was.
    pub drained: Option<String>,
}

/// Whether a run came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Nothing is left to run.
    Completed,
    /// It waits for someone outside: for answers to [`Outcome::interrupts`], or, if there are none, at a breakpoint.
    Interrupted,
    /// It ended after a superstep because it was asked to, [`Outcome::drained`] says why; resume it to go on.
    Drained,
    /// It was cancelled with tasks left to run; resume it to go on. [`Outcome::interrupts`] has what waits for an answer.
    Cancelled,
}

impl<S: State> Outcome<S> {
    /// The same outcome, with a part of the state only.
    pub fn view<V: View<S>>(self) -> Outcome<V> {
        let Self { state, status, checkpoint, interrupts, drained } = self;
        Outcome { state: V::view(&state), status, checkpoint, interrupts, drained }
    }
}
