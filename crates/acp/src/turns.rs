//! The order of the turns of each session: one runs, later ones wait.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::wire::SessionId;

/// The turns of all sessions. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Turns(Arc<Mutex<BTreeMap<SessionId, VecDeque<Entry>>>>);

/// A turn. The first one of a session runs.
struct Entry {
    cancel: CancellationToken,
    start: Arc<Notify>,
}

/// A turn that runs or waits. The value is dropped when it is answered, and the next turn runs.
pub(crate) struct Turn {
    turns: Turns,
    session: SessionId,
    start: Arc<Notify>,
}

impl Turns {
    /// Adds a turn and cancels those before it.
    pub(crate) fn begin(&self, session: &SessionId, cancel: CancellationToken) -> Turn {
        let mut all = self.all();
        let turns = all.entry(session.clone()).or_default();
        turns.iter().for_each(|turn| turn.cancel.cancel());
        let start = Arc::new(Notify::new());
        if turns.is_empty() {
            start.notify_one();
        }
        turns.push_back(Entry { cancel, start: start.clone() });
        Turn { turns: self.clone(), session: session.clone(), start }
    }

    /// Cancels the running turn of a session. A turn that waits for the end of a cancelled one is not meant.
    pub(crate) fn cancel(&self, session: &SessionId) {
        if let Some(turn) = self.all().get(session).and_then(VecDeque::front) {
            turn.cancel.cancel();
        }
    }

    /// Cancels all turns of all sessions.
    pub(crate) fn cancel_all(&self) {
        self.all().values().flatten().for_each(|turn| turn.cancel.cancel());
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<SessionId, VecDeque<Entry>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Waits until the turns before this one are answered.
    pub(crate) async fn is_first(&self) {
        self.start.notified().await;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut all = self.turns.all();
        let Some(turns) = all.get_mut(&self.session) else { return };
        let was_first = turns.front().is_some_and(|turn| Arc::ptr_eq(&turn.start, &self.start));
        turns.retain(|turn| !Arc::ptr_eq(&turn.start, &self.start));
        match turns.front() {
            None => drop(all.remove(&self.session)),
            Some(next) if was_first => next.start.notify_one(),
            Some(_) => {}
        }
    }
}
