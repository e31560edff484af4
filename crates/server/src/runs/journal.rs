//! The stored logs of resumable runs, which survive the process.
//!
//! Start at [`Journal`].

use std::{collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};
use superstep_graph::{
    CheckpointId, Store, ThreadId,
    store::{Index, Namespace, Operation, PutOptions, Search, StoreError},
    thread::PendingWrite,
};

use crate::{error::ServerError, rows::table::LABEL, runs::log::Entry};

/// The table of logs; below it each run has a namespace.
const TABLE: &str = "events";

/// The number of batches that are read at once.
const PAGE: usize = 500;

/// The logs of runs, in the store of the rows.
#[derive(Clone)]
pub(crate) struct Journals {
    store: Arc<dyn Store>,
}

/// The stored log of one run, to write. At most about so many bytes are stored: older batches are deleted.
pub(crate) struct Journal {
    journals: Journals,
    run: String,
    batches: VecDeque<(String, usize)>,
    bytes: usize,
    max_bytes: usize,
}

/// Events that were stored together, before a client saw one of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Batch {
    pub(crate) entries: Vec<Entry>,
    /// The checkpoint that was about to be stored: all events of its superstep are in this batch and those before.
    pub(crate) write: Option<Mark>,
}

/// A checkpoint of a thread or of a thread of a subgraph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) thread: String,
    pub(crate) checkpoint: CheckpointId,
}

impl Mark {
    pub(crate) fn of(write: &PendingWrite) -> Option<Self> {
        let PendingWrite { thread, checkpoint, .. } = write;
        checkpoint.map(|checkpoint| Self { thread: thread.as_str().to_owned(), checkpoint })
    }

    pub(crate) fn is_of_root(&self) -> bool {
        !ThreadId::from(self.thread.as_str()).is_child()
    }
}

impl Journals {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    fn namespace(run: &str) -> Result<Namespace, StoreError> {
        Namespace::new([LABEL, TABLE, run])
    }

    /// Opens the log of a run, and returns it with the batches that it has, oldest first.
    ///
    /// # Errors
    /// [`ServerError::Rows`] and [`ServerError::InvalidRow`].
    pub(crate) async fn open(
        &self,
        run: &str,
        max_bytes: usize,
    ) -> Result<(Journal, Vec<Batch>), ServerError> {
        let unread = |source| ServerError::Rows { source };
        let within = Self::namespace(run).map_err(unread)?;
        let (journals, run) = (self.clone(), run.to_owned());
        let mut journal = Journal { journals, run, batches: VecDeque::new(), bytes: 0, max_bytes };
        let mut read = Vec::new();
        loop {
            let search = Search { limit: PAGE, offset: read.len(), ..Search::within(&within) };
            let found = self.store.search(search).await.map_err(unread)?;
            let is_last = found.len() < PAGE;
            for found in found {
                let key = found.item.key;
                let batch: Batch = serde_json::from_value(found.item.value).map_err(|source| {
                    ServerError::InvalidRow { table: TABLE, key: format!("{}/{key}", journal.run), source }
                })?;
                journal.count(key, batch.bytes());
                read.push(batch);
            }
            if is_last {
                return Ok((journal, read));
            }
        }
    }

    /// Deletes the log of a run, if it has one.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn delete(&self, run: &str) -> Result<(), StoreError> {
        let namespace = Self::namespace(run)?;
        loop {
            let search = Search { limit: PAGE, ..Search::within(&namespace) };
            let found = self.store.search(search).await?;
            let is_last = found.len() < PAGE;
            let delete = |key| Operation::Delete { namespace: namespace.clone(), key };
            let deletes: Vec<_> = found.into_iter().map(|found| delete(found.item.key)).collect();
            if !deletes.is_empty() {
                self.store.batch(deletes).await?;
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

impl Journal {
    /// Stores a batch under a number that is greater than those of the batches before.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn append(&mut self, number: u64, batch: &Batch) -> Result<(), StoreError> {
        let (namespace, key) = (Journals::namespace(&self.run)?, format!("{number:020}"));
        let value = serde_json::to_value(batch).expect("a batch has a JSON form");
        let options = PutOptions::new().index(Index::Nothing);
        let mut operations = vec![Operation::Put { namespace, key: key.clone(), value, options }];
        self.count(key, batch.bytes());
        while self.bytes > self.max_bytes && self.batches.len() > 1 {
            let Some((key, bytes)) = self.batches.pop_front() else { break };
            self.bytes -= bytes;
            operations.push(Operation::Delete { namespace: Journals::namespace(&self.run)?, key });
        }
        self.journals.store.batch(operations).await.map(drop)
    }

    fn count(&mut self, key: String, bytes: usize) {
        self.batches.push_back((key, bytes));
        self.bytes += bytes;
    }

    /// Returns the size of what is stored, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Batch {
    fn bytes(&self) -> usize {
        100 + self.entries.iter().map(|entry| entry.event.size()).sum::<usize>()
    }
}
