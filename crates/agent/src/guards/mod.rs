//! Guards: checks of a turn's input, its answer and its tool calls.
//!
//! Start at [`Guard`].

pub(crate) mod chain;
pub(crate) mod guard;

pub use self::{
    chain::Guards,
    guard::{Guard, GuardError, View, built_in::OnSecret},
};
pub use crate::state::guarding::{GuardAt, Verdict};
