//! The order of one response's calls within a sequence, such as those to one server.

use superstep_llm::calls::Sequence;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::pending::Pending;
use crate::deps::AgentDeps;

/// The positions of a response's calls in the sequences of their tools.
#[derive(Default)]
pub(super) struct Order {
    places: Vec<Option<QueuePosition>>,
}

/// The position of one call.
struct QueuePosition {
    sequence: String,
    overlaps: bool,
    /// Fires when the call was sent.
    sent: CancellationToken,
    /// Fires when the call is answered.
    answered: CancellationToken,
}

impl Order {
    /// Returns the order of all calls of a response.
    pub(super) fn of(deps: &AgentDeps, calls: &[(usize, Pending)]) -> Self {
        let place = |(_, call): &(usize, Pending)| {
            let Sequence { name, overlaps } = deps.tools.get(&call.name)?.sequence()?;
            let (sent, answered) = (CancellationToken::new(), CancellationToken::new());
            Some(QueuePosition { sequence: name.to_owned(), overlaps, sent, answered })
        };
        Self { places: calls.iter().map(place).collect() }
    }

    /// Marks the call as answered when the guard is dropped.
    pub(super) fn until_answered(&self, position: usize) -> Option<DropGuard> {
        Some(self.places[position].as_ref()?.answered.clone().drop_guard())
    }

    /// Returns the token to cancel when the call was sent.
    pub(super) fn sent(&self, position: usize) -> Option<CancellationToken> {
        Some(self.places[position].as_ref()?.sent.clone())
    }

    /// Waits until the call may be sent.
    pub(super) async fn turn(&self, position: usize) {
        let Some(place) = &self.places[position] else { return };
        for before in self.before(position) {
            if place.overlaps && before.overlaps {
                tokio::select! {
                    () = before.sent.cancelled() => {}
                    () = before.answered.cancelled() => {}
                }
            } else {
                before.answered.cancelled().await;
            }
        }
    }

    /// Returns whether a call has to wait for one of the calls at these positions.
    pub(super) fn is_behind(&self, position: usize, mut others: impl Iterator<Item = usize>) -> bool {
        let Some(place) = &self.places[position] else { return false };
        others.any(|other| {
            let other = self.places[other].as_ref().filter(|_| other < position);
            other.is_some_and(|other| other.sequence == place.sequence)
        })
    }

    /// Returns the earlier calls of its sequence.
    fn before(&self, position: usize) -> impl Iterator<Item = &QueuePosition> {
        let of = self.places[position].as_ref().map(|place| &place.sequence);
        self.places[..position].iter().flatten().filter(move |place| Some(&place.sequence) == of)
    }
}
