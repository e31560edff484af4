//! The journal of a task: its questions, effects and recorded inputs, as they are recorded and replayed.
//!
//! Start at [`recorder::Recorder`].

pub(crate) mod divergence;
pub(crate) mod effects;
pub(crate) mod inbox;
pub(crate) mod interrupts;
pub(crate) mod memories;
pub(crate) mod outer_effects;
pub(crate) mod packed;
pub(crate) mod parent_recorder;
pub(crate) mod recorder;
pub(crate) mod replay_script;
pub(crate) mod supply;
pub(crate) mod task_origin;
