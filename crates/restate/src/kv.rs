//! The entries of an object, and a view of them with the writes of one request.
//!
//! Start at [`View`].

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use futures::future::BoxFuture;
use superstep_checkpoint::{
    CheckpointError, CheckpointId,
    internal::{Cell, row_sum},
};

/// The entries of an object: a virtual object of Restate, or a map.
///
/// The requests that reach it depend on the requests to the [`View`] alone, because Restate compares them in a replay.
pub(crate) trait Kv: Send {
    /// Returns the values of some entries, in their order; `None` for those that do not exist.
    fn get_all(&mut self, keys: Vec<String>) -> BoxFuture<'_, Result<Vec<Option<Bytes>>, CheckpointError>>;

    /// Returns the names of all entries.
    fn keys(&mut self) -> BoxFuture<'_, Result<Vec<String>, CheckpointError>>;

    /// Returns the names of all entries of the object beside, if there is one.
    fn keys_beside(&mut self) -> BoxFuture<'_, Result<Vec<String>, CheckpointError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Sets an entry, or deletes it.
    fn set(&mut self, key: String, value: Option<Bytes>);
}

/// A text of an entry.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    text: Bytes,
    /// The checksum fits.
    pub(crate) is_intact: bool,
}

impl Entry {
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }
}

/// The length of a checksum.
const SUM: usize = 16;

/// Returns the value of an entry: the checksum of its name and text, then the text.
fn sealed(key: &str, text: &str) -> Bytes {
    format!("{:016x}{text}", sum(key, text.as_bytes())).into()
}

fn opened(key: &str, value: &Bytes) -> Entry {
    let (own, text) = value.split_at(value.len().min(SUM));
    let is_intact = own == format!("{:016x}", sum(key, text)).as_bytes();
    Entry { text: value.slice(own.len()..), is_intact }
}

fn sum(key: &str, text: &[u8]) -> i64 {
    row_sum(&[Cell::Text(key.as_bytes()), Cell::Text(text)])
}

/// The entries of an object that are known from one request to the next, so that a run reads the head of its thread once.
///
/// Updates and snapshots are not remembered.
#[derive(Debug, Default)]
pub(crate) struct Memory(HashMap<String, Option<Entry>>);

impl Memory {
    fn learn(&mut self, key: &str, entry: Option<Entry>) {
        if !key.starts_with(['u', 's']) {
            self.0.insert(key.to_owned(), entry);
        }
    }

    /// Forgets what only checkpoints before this one have.
    pub(crate) fn forget_before(&mut self, id: CheckpointId) {
        let is_old = |key: &str| {
            let number = key.get(1..).unwrap_or_default();
            let end = number.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(number.len());
            !key.starts_with('i') && number[..end].parse().is_ok_and(|number: u64| number < id.0)
        };
        self.0.retain(|key, _| !is_old(key));
    }
}

/// The entries of an object with the writes of one request, which reach the object together or not at all.
pub(crate) struct View<'a> {
    kv: &'a mut dyn Kv,
    pub(crate) memory: &'a mut Memory,
    /// In the order of their names, so that equal requests make equal writes.
    staged: BTreeMap<String, Option<String>>,
}

impl<'a> View<'a> {
    pub(crate) fn new(kv: &'a mut dyn Kv, memory: &'a mut Memory) -> Self {
        Self { kv, memory, staged: BTreeMap::new() }
    }

    pub(crate) async fn get(&mut self, key: String) -> Result<Option<Entry>, CheckpointError> {
        Ok(self.get_all(vec![key]).await?.pop().flatten())
    }

    pub(crate) async fn get_all(&mut self, keys: Vec<String>) -> Result<Vec<Option<Entry>>, CheckpointError> {
        let unknown: Vec<String> = keys.iter().filter(|key| self.here(key).is_none()).cloned().collect();
        let mut found = HashMap::new();
        if !unknown.is_empty() {
            let values = self.kv.get_all(unknown.clone()).await?;
            for (key, value) in unknown.into_iter().zip(values) {
                let entry = value.map(|value| opened(&key, &value));
                self.memory.learn(&key, entry.clone());
                found.insert(key, entry);
            }
        }
        Ok(keys.iter().map(|key| self.here(key).or_else(|| found.get(key).cloned()).flatten()).collect())
    }

    /// Returns an entry that needs no request: one that this request wrote, or that is remembered.
    fn here(&self, key: &str) -> Option<Option<Entry>> {
        let staged = self.staged.get(key).map(|text| {
            text.as_ref().map(|text| Entry { text: Bytes::copy_from_slice(text.as_bytes()), is_intact: true })
        });
        staged.or_else(|| self.memory.0.get(key).cloned())
    }

    /// Returns the names of all entries, in order.
    pub(crate) async fn keys(&mut self) -> Result<Vec<String>, CheckpointError> {
        let mut keys = self.kv.keys().await?;
        keys.retain(|key| !self.staged.contains_key(key));
        keys.extend(self.staged.iter().filter(|(_, text)| text.is_some()).map(|(key, _)| key.clone()));
        keys.sort_unstable();
        Ok(keys)
    }

    /// Returns the names of all entries of the object beside.
    pub(crate) async fn keys_beside(&mut self) -> Result<Vec<String>, CheckpointError> {
        self.kv.keys_beside().await
    }

    pub(crate) fn set(&mut self, key: String, text: String) {
        self.staged.insert(key, Some(text));
    }

    pub(crate) fn clear(&mut self, key: String) {
        self.staged.insert(key, None);
    }

    /// Writes what was set and cleared. The heads are last, so that a reader who sees one sees everything before it.
    pub(crate) fn write(self) {
        let (heads, others): (Vec<_>, Vec<_>) =
            self.staged.into_iter().partition(|(key, _)| key.starts_with('h'));
        for (key, text) in others.into_iter().chain(heads) {
            let value = text.map(|text| sealed(&key, &text));
            self.memory.learn(&key, value.as_ref().map(|value| opened(&key, value)));
            self.kv.set(key, value);
        }
    }
}
