//! Trust in the stored decisions of a thread.

use std::{path::Path, sync::Arc};

use superstep_graph::ThreadId;

use super::approver::{Approval, ApprovalRequest};
use crate::config::PermissionRule;

/// Decides which stored decisions of a thread are valid.
///
/// A thread stores the rules granted on it, the answers to questions of calls that have not run yet, and the
/// folder of its turn. Its database may come from another person, who could have written them. An
/// implementation knows from another source what its user granted and approved; unknown decisions are
/// requested again. Without an implementation, all stored decisions are valid.
///
/// Denials and cancellations, and rules that ask or deny, always apply: see [`Approval::needs_trust`].
pub trait Trust: Send + Sync {
    /// Returns whether this rule was granted on the thread.
    fn is_granted(&self, thread: Option<&ThreadId>, rule: &PermissionRule) -> bool;

    /// Returns whether this decision was made about this call on the thread.
    fn is_decided(&self, thread: Option<&ThreadId>, request: &ApprovalRequest, decision: &Approval) -> bool;

    /// Returns whether the tools may work in the folder that a turn of the thread has
    /// [stored](crate::AgentState::cwd). The folder that the context of the run has as `cwd` needs no check.
    fn is_folder(&self, thread: Option<&ThreadId>, folder: &Path) -> bool {
        let _ = (thread, folder);
        false
    }
}

impl<T: Trust + ?Sized> Trust for Arc<T> {
    fn is_granted(&self, thread: Option<&ThreadId>, rule: &PermissionRule) -> bool {
        (**self).is_granted(thread, rule)
    }

    fn is_decided(&self, thread: Option<&ThreadId>, request: &ApprovalRequest, decision: &Approval) -> bool {
        (**self).is_decided(thread, request, decision)
    }

    fn is_folder(&self, thread: Option<&ThreadId>, folder: &Path) -> bool {
        (**self).is_folder(thread, folder)
    }
}
