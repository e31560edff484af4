//! Requests for approval of tool calls, and trust in stored decisions. `nodes/tools/decision.rs` decides.
//!
//! Start at [`approver::Approvals`].

pub(crate) mod approver;
pub(crate) mod form;
pub(crate) mod trust;

pub use self::{
    approver::{ApprovalFuture, ApprovalRequest, Approvals, Approver},
    trust::{StoredDecision, Trust},
};
