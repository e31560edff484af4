//! What one task asked, did and learned from outside, and what a replay makes of it.
//!
//! Start at [`recorder::Tape`].

pub(crate) mod divergence;
pub(crate) mod effects;
pub(crate) mod inbox;
pub(crate) mod interrupts;
pub(crate) mod memories;
pub(crate) mod packed;
pub(crate) mod recorder;
pub(crate) mod replay_cursor;
pub(crate) mod replay_script;
pub(crate) mod task_origin;
