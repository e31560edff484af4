//! The protocol AG-UI 1.0: the input of a run, and its events.
//!
//! Start at [`Projection`].

mod events;
mod input;

pub(crate) use events::{End, Projection};
pub(crate) use input::{Question, RunAgentInput};
