//! Reads of the entries of an object elsewhere, which others may write meanwhile.
//!
//! Start at [`read`].

use std::{collections::BTreeMap, fmt, time::Duration};

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
    /// Returns the entries that a read needs, as far as the object knows.
    fn entries_of<'a>(&'a mut self, request: &'a Request) -> BoxFuture<'a, Result<Entries, CheckpointError>>;

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
        let entries = remote.entries_of(request).await?;
        let mut watched = Watched { remote: &mut *remote, entries, is_changed: false };
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

/// The entries of an object that a read needs.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    /// The values of entries, `None` for those that do not exist.
    pub(crate) values: BTreeMap<String, Option<Bytes>>,
    /// The names of all entries, if the read needs them.
    pub(crate) keys: Option<Vec<String>>,
}

impl Entries {
    /// Adds entries, the last of which is the generation. Returns whether the thread was deleted since earlier ones.
    fn learn(&mut self, keys: Vec<String>, values: &[Option<Bytes>]) -> bool {
        let before = self.values.get(GENERATION).cloned();
        self.values.extend(keys.into_iter().zip(values.iter().cloned()));
        before.is_some_and(|before| before != self.values[GENERATION])
    }
}

/// The entries of an object that a read has needed, of which each further reading notices a deletion of the thread.
struct Watched<'a> {
    remote: &'a mut dyn Remote,
    entries: Entries,
    is_changed: bool,
}

impl Kv for Watched<'_> {
    fn get_all(&mut self, keys: Vec<String>) -> BoxFuture<'_, Result<Vec<Option<Bytes>>, CheckpointError>> {
        Box::pin(async move {
            let known = &self.entries.values;
            let mut unknown: Vec<String> =
                keys.iter().filter(|key| !known.contains_key(*key)).cloned().collect();
            if !unknown.is_empty() {
                unknown.push(GENERATION.to_owned());
                let values = get_all(self.remote, &unknown).await?;
                self.is_changed |= self.entries.learn(unknown, &values);
            }
            Ok(keys.iter().map(|key| self.entries.values[key].clone()).collect())
        })
    }

    fn keys(&mut self) -> BoxFuture<'_, Result<Vec<String>, CheckpointError>> {
        match self.entries.keys.clone() {
            Some(keys) => Box::pin(std::future::ready(Ok(keys))),
            None => self.remote.all_keys(),
        }
    }

    fn set(&mut self, key: String, _: Option<Bytes>) {
        unreachable!("a read sets no entry, such as `{key}`")
    }
}

/// Records the entries that a read needs.
struct Recorder<'a> {
    kv: &'a mut dyn Kv,
    entries: Entries,
    is_changed: bool,
}

/// Returns the entries that a read needs, all of the same generation.
pub(crate) async fn recorded(
    kv: &mut dyn Kv,
    place: &(dyn fmt::Display + Sync),
    request: Request,
) -> Result<Entries, CheckpointError> {
    loop {
        let mut recorder = Recorder { kv: &mut *kv, entries: Entries::default(), is_changed: false };
        // The caller finds the reply, and what is wrong.
        let _ = serve(&mut recorder, &mut Memory::default(), place, request.clone()).await;
        if !recorder.is_changed {
            return Ok(recorder.entries);
        }
    }
}

impl Kv for Recorder<'_> {
    fn get_all(
        &mut self,
        mut keys: Vec<String>,
    ) -> BoxFuture<'_, Result<Vec<Option<Bytes>>, CheckpointError>> {
        Box::pin(async move {
            keys.push(GENERATION.to_owned());
            let mut values = self.kv.get_all(keys.clone()).await?;
            self.is_changed |= self.entries.learn(keys, &values);
            values.pop();
            Ok(values)
        })
    }

    fn keys(&mut self) -> BoxFuture<'_, Result<Vec<String>, CheckpointError>> {
        Box::pin(async move {
            let keys = self.kv.keys().await?;
            self.entries.keys = Some(keys.clone());
            Ok(keys)
        })
    }

    fn set(&mut self, key: String, _: Option<Bytes>) {
        unreachable!("a read sets no entry, such as `{key}`")
    }
}
