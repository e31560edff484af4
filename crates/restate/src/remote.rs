//! Reads of the entries of an object elsewhere, which others may write meanwhile.
//!
//! Start at [`read`].

use std::{fmt, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use superstep_checkpoint::CheckpointError;

use crate::{
    keys::GENERATION,
    kv::{Kv, Memory},
    request::{Reply, Request},
    storage::serve,
};

/// The entries of an object elsewhere.
pub(crate) trait Remote: Send {
    /// Returns the values of the first of these entries, at least of one.
    fn get_some<'a>(
        &'a mut self,
        keys: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Option<Bytes>>, CheckpointError>>;

    /// Returns the names of all entries.
    fn all_keys(&mut self) -> BoxFuture<'_, Result<Vec<String>, CheckpointError>>;

    /// Waits before a read is repeated.
    fn pause(&mut self, time: Duration) -> BoxFuture<'_, ()>;
}

/// The number of repetitions of a read, and the first pause before one; each is twice as long as the one before. They are longer than
/// another worker takes to continue the writes of one that died between them.
const REPETITIONS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(4);

/// Serves a read of a thread. It is repeated if the thread was deleted meanwhile, or if an entry is missing: the writes of a request
/// become visible one after the other, the head last.
pub(crate) async fn read(
    remote: &mut dyn Remote,
    place: &(dyn fmt::Display + Sync),
    request: &Request,
) -> Result<Reply, CheckpointError> {
    for nth in 0.. {
        let mut watched = Watched { remote: &mut *remote, generation: None, is_changed: false };
        let reply = serve(&mut watched, &mut Memory::default(), place, request.clone()).await;
        let is_damaged = matches!(reply, Err(CheckpointError::Corrupt { .. }));
        if nth == REPETITIONS || !(is_damaged || watched.is_changed) {
            return reply;
        }
        remote.pause(PAUSE * 2u32.pow(nth)).await;
    }
    unreachable!("the last repetition returns")
}

/// Returns the values of some entries, in their order.
pub(crate) async fn get_all(
    remote: &mut dyn Remote,
    keys: &[String],
) -> Result<Vec<Option<Bytes>>, CheckpointError> {
    let mut values = Vec::with_capacity(keys.len());
    while values.len() < keys.len() {
        values.extend(remote.get_some(&keys[values.len()..]).await?);
    }
    Ok(values)
}

/// The entries of an object, of which each reading notices a deletion of the thread.
struct Watched<'a> {
    remote: &'a mut dyn Remote,
    generation: Option<Option<Bytes>>,
    is_changed: bool,
}

impl Kv for Watched<'_> {
    fn get_all(
        &mut self,
        mut keys: Vec<String>,
    ) -> BoxFuture<'_, Result<Vec<Option<Bytes>>, CheckpointError>> {
        Box::pin(async move {
            keys.push(GENERATION.to_owned());
            let mut values = get_all(self.remote, &keys).await?;
            let generation = values.pop().flatten();
            self.is_changed |=
                self.generation.replace(generation.clone()).is_some_and(|old| old != generation);
            Ok(values)
        })
    }

    fn keys(&mut self) -> BoxFuture<'_, Result<Vec<String>, CheckpointError>> {
        self.remote.all_keys()
    }

    fn set(&mut self, key: String, _: Option<Bytes>) {
        unreachable!("a read sets no entry, such as `{key}`")
    }
}
