//! A session as its client has it.
//!
//! Start at [`Open`].

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use superstep_acp::wire::{ConfigOption, SessionId};
use superstep_session::live::Session;

use crate::acp::{calls::Calls, options::options};

/// A session that the client has opened.
pub(super) struct Open {
    pub(super) id: SessionId,
    pub(super) session: Session,
    /// The models to choose from, the present one first.
    pub(super) models: Vec<String>,
    calls: Mutex<Calls>,
    /// The texts that this client sent into turns.
    steered: Mutex<Vec<String>>,
    number: AtomicU64,
    /// The first prompt has sent the commands.
    has_commands: AtomicBool,
}

impl Open {
    pub(super) fn new(id: SessionId, session: Session, models: Vec<String>) -> Self {
        Self {
            id,
            session,
            models,
            calls: Mutex::default(),
            steered: Mutex::default(),
            number: AtomicU64::default(),
            has_commands: AtomicBool::default(),
        }
    }

    /// Returns whether no prompt has sent the commands yet, once.
    pub(super) fn needs_commands(&self) -> bool {
        !self.has_commands.swap(true, Ordering::Relaxed)
    }

    /// Remembers a text that this client sent into a turn.
    pub(super) fn steered(&self, text: String) {
        self.steered.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    pub(super) fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a number that no other update of the session has.
    pub(super) fn next_number(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns whether this client sent a text into a turn, once.
    pub(super) fn has_steered(&self, text: &str) -> bool {
        let mut steered = self.steered.lock().unwrap_or_else(PoisonError::into_inner);
        let at = steered.iter().position(|known| known == text);
        at.map(|at| steered.remove(at)).is_some()
    }

    pub(super) fn options(&self) -> Vec<ConfigOption> {
        options(&self.session, &self.models)
    }
}
