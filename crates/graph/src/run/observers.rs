//! The choice of a run's observer.

use super::{
    observer::{Plain, RunObserver},
    recording::Recording,
    replaying::Replaying,
    rerecording::Rerecording,
};
use crate::{State, journal::recorder::Recorder, node::cx::RunScope};

/// Returns the observer for a run in this scope, and the recorder for its tasks.
pub(super) fn of<S: State>(scope: &RunScope) -> (Box<dyn RunObserver<S>>, Recorder) {
    let is_kept = scope.place.is_some() || scope.parent.is_some();
    let records = scope.config.recording && is_kept;
    let recorder = Recorder::new(records, scope.cursor.is_some() || scope.supply.is_some());
    let observer: Box<dyn RunObserver<S>> = match (&scope.cursor, &scope.supply) {
        (Some(cursor), _) => Box::new(Replaying::new(cursor.clone())),
        (None, Some(supply)) => Box::new(Rerecording(supply.clone())),
        (None, None) if records => Box::new(Recording),
        (None, None) => Box::new(Plain),
    };
    (observer, recorder)
}
