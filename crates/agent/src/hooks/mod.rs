//! Hooks: code of the program before, after and in place of the agent's steps.
//!
//! Start at [`around::Hooks`].

pub(crate) mod after_turn;
pub(crate) mod around;
pub(crate) mod tool_check;

pub use self::{
    after_turn::AfterTurn,
    around::{Acting, Around, HookError, Hooked, Hooks, Printed, Steps, ToolFailure},
    tool_check::{OnToolCheck, OnToolError, ToolCheck},
};
pub use crate::repair::msg::Msg;
