//! Which of the decisions that a thread has stored count.

use std::path::Path;

use superstep_graph::ThreadId;

use crate::{Approval, ApprovalRequest, PermissionRule};

/// Decides which stored decisions of a thread are taken.
///
/// A thread stores the rules that were granted on it, the answers to questions of calls that have not run yet, and the folder of its turn. Its database
/// may come from another person, who could have written both. An implementation knows from elsewhere what its user granted and
/// approved; whatever it does not know is asked again. Without one, all that a thread has stored counts.
///
/// Decisions that let nothing run, and rules that ask or deny, always count.
pub trait Trust: Send + Sync {
    /// Returns whether this rule was granted on the thread.
    fn is_granted(&self, thread: Option<&ThreadId>, rule: &PermissionRule) -> bool;

    /// Returns whether this decision was made about this call on the thread.
    fn is_decided(&self, thread: Option<&ThreadId>, request: &ApprovalRequest, decision: &Approval) -> bool;

    /// Returns whether the tools may work in the folder that a turn of the thread has [stored](crate::AgentState::cwd). A folder that
    /// the context of the run names as `cwd` may be worked in without it.
    fn is_folder(&self, thread: Option<&ThreadId>, folder: &Path) -> bool {
        let _ = (thread, folder);
        false
    }
}
