//! The runs of a server by thread.
//!
//! Start at [`Lanes`].

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use crate::runs::live::LiveRun;

/// The runs that are queued or under way, and those whose logs are retained.
#[derive(Default)]
pub(super) struct Lanes {
    /// By thread. A thread without runs has no lane.
    pub(super) lanes: BTreeMap<String, Lane>,
    /// By run.
    pub(super) live: BTreeMap<String, Arc<LiveRun>>,
    /// The ended runs with logs, in memory or stored, oldest first, and the size of those.
    pub(super) retained: VecDeque<Retained>,
    pub(super) retained_bytes: usize,
    /// The threads that are being deleted, and take no runs.
    pub(super) closed: BTreeSet<String>,
}

#[derive(Default)]
pub(super) struct Lane {
    pub(super) active: Option<Arc<LiveRun>>,
    pub(super) waiting: VecDeque<Arc<LiveRun>>,
}

impl Lane {
    /// Returns whether a run waits or is under way. Clients see the end of a run before the lane is free.
    pub(super) fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || self.active.as_ref().is_some_and(|run| !run.log.has_ended())
    }
}

/// The log of an ended run.
pub(super) struct Retained {
    pub(super) thread: String,
    pub(super) run: String,
    pub(super) bytes: usize,
}
