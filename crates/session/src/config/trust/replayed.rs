//! The decisions for a live replay.
//!
//! Start at [`Replayed`].

use std::sync::Arc;

use superstep::{
    ThreadId,
    agent::{
        approval::{StoredDecision, Trust},
        config::PermissionRule,
    },
};

use super::{Decided, REPLAYED, hash_of_answer};

/// The decisions for a live replay. A call that the user approved runs again, in a task of the replay's fork and as often as it is
/// replayed.
pub(crate) struct Replayed(pub Arc<Decided>);

impl Trust for Replayed {
    fn is_granted(&self, thread: Option<&ThreadId>, rule: &PermissionRule) -> bool {
        self.0.is_granted(thread, rule)
    }

    fn is_decided(&self, stored: &StoredDecision<'_>) -> bool {
        let StoredDecision { thread, interrupt: Some(_), request, is_current: true, decision, .. } = *stored
        else {
            return false;
        };
        let answer = hash_of_answer(thread.map_or("", ThreadId::as_str), REPLAYED, request, decision);
        self.0.record().answers.contains(&answer)
    }
}
