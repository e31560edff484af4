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
/// With an implementation, an interrupt has the text that the tool has for the call now, never a stored one, and of
/// several stored decisions about a call the last one applies, or a denial. Denials and cancellations, and rules that ask or deny,
/// always apply: see [`Approval::needs_trust`].
pub trait Trust: Send + Sync {
    /// Returns whether this rule was granted on the thread.
    fn is_granted(&self, thread: Option<&ThreadId>, rule: &PermissionRule) -> bool;

    /// Returns whether the user made this decision, and it may be used by this task.
    ///
    /// Called each time before the decision is used, also after a crash. Use a decision for one task only, the first that
    /// needs it, and begin with it only if it [is current](StoredDecision::is_current).
    fn is_decided(&self, stored: &StoredDecision<'_>) -> bool;

    /// Returns whether a call may begin with the decision on an interrupt.
    ///
    /// Called once for each `start` of a call that is not [idempotent](superstep_llm::Behaviour::idempotent), after the thread has
    /// stored it. A second time means that the database was restored to a state before it: return `false`, and the call does not
    /// run again. By default it does.
    fn begins(&self, _thread: Option<&ThreadId>, _interrupt: &str, _start: &str) -> bool {
        true
    }

    /// Returns whether the tools may work in the folder that a turn of the thread has
    /// [stored](crate::AgentState::cwd). The folder that the context of the run has as `cwd` needs no check.
    fn is_folder(&self, thread: Option<&ThreadId>, folder: &Path) -> bool {
        let _ = (thread, folder);
        false
    }
}

/// A decision that is stored with a thread.
#[derive(Clone, Copy, Debug)]
pub struct StoredDecision<'a> {
    /// The thread, if there is one.
    pub thread: Option<&'a ThreadId>,
    /// The [id](superstep_graph::Interrupt::id) of the interrupt that the decision answers, computed from the running task; `None` for the decision
    /// of an [`Approver`](super::Approver).
    pub interrupt: Option<&'a str>,
    /// The [position](superstep_graph::Cx::position) of the task that needs the decision.
    pub position: &'a str,
    /// The request that the decision answers.
    pub request: &'a ApprovalRequest,
    /// `true` if the text of the request equals the tool's current text for the call. Otherwise the text was changed in the
    /// database, or its subject has changed since, such as a file.
    pub is_current: bool,
    /// The decision.
    pub decision: &'a Approval,
}

impl<T: Trust + ?Sized> Trust for Arc<T> {
    fn is_granted(&self, thread: Option<&ThreadId>, rule: &PermissionRule) -> bool {
        (**self).is_granted(thread, rule)
    }

    fn is_decided(&self, stored: &StoredDecision<'_>) -> bool {
        (**self).is_decided(stored)
    }

    fn begins(&self, thread: Option<&ThreadId>, interrupt: &str, start: &str) -> bool {
        (**self).begins(thread, interrupt, start)
    }

    fn is_folder(&self, thread: Option<&ThreadId>, folder: &Path) -> bool {
        (**self).is_folder(thread, folder)
    }
}
