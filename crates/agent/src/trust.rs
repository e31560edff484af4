//! Which of the decisions that a thread has stored count.

use superstep_graph::ThreadId;

use crate::{Approval, ApprovalRequest, PermissionRule};

/// Decides which stored decisions of a thread are taken.
///
/// A thread stores the rules that were granted on it, and the answers to questions of calls that have not run yet. Its database
/// may come from another person, who could have written both. An implementation knows from elsewhere what its user granted and
/// approved; whatever it does not know is asked again. Without one, all that a thread has stored counts.
///
/// Decisions that let nothing run, and rules that ask or deny, always count.
pub trait Trust: Send + Sync {
    /// Returns whether this rule was granted on the thread.
    fn is_granted(&self, thread: Option<&ThreadId>, rule: &PermissionRule) -> bool;

    /// Returns whether this decision was made about this call on the thread.
    fn is_decided(&self, thread: Option<&ThreadId>, request: &ApprovalRequest, decision: &Approval) -> bool;
}
