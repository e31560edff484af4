//! The place of a replay in its script.
//!
//! Start at [`ReplayCursor`].

use std::sync::Arc;

use crate::{ThreadId, journal::replay_script::Script};

/// The thread that a replay follows.
#[derive(Clone)]
pub(crate) struct ReplayCursor {
    pub(crate) script: Arc<Script>,
    /// The thread whose records are replayed; it differs from the run's if that is a fork.
    pub(crate) thread: ThreadId,
}
