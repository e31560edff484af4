//! The writer of a run's log.
//!
//! Start at [`LogWriter`].

use std::sync::Arc;

use futures::{FutureExt as _, StreamExt as _};
use superstep_graph::{
    CheckpointId, ThreadId,
    checkpoint::CheckpointError,
    erased::JsonStream,
    thread::{BeforeWrite, PendingWrite},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::unconstrained,
};

use crate::{
    error::ApiError,
    events::event::{Kind, RunEvent},
    rows::thread::RunFailure,
    runs::{
        hub::Hub,
        journal::{Batch, Journal, Mark},
        live::LiveRun,
        log::Entry,
        repeated::Repeated,
    },
};

/// The maximum number of events that are stored together; more than a run has waiting.
const BATCH: usize = 8_192;

/// The writer of the log of a run, which is under way.
///
/// The log of a resumable run is stored. Its readers see an event once it is stored, and the thread has the results of a superstep
/// once all its events are stored. So after a crash no event of a stored superstep is missing. Those of an interrupted one come
/// again only if they differ from the stored ones.
pub(super) struct LogWriter<'a> {
    hub: &'a Hub,
    live: &'a LiveRun,
    journal: Option<Journal>,
    repeated: Repeated,
    /// `true` if an earlier process began the run.
    is_continued: bool,
    /// The last checkpoint whose event that process stored.
    last_checkpoint: Option<CheckpointId>,
}

impl<'a> LogWriter<'a> {
    /// Opens the log of a run that starts, at a checkpoint if its thread has one, and adds its first event.
    ///
    /// # Errors
    /// The errors of the rows and of the checkpointer.
    pub(super) async fn begin(
        hub: &'a Hub,
        live: &'a LiveRun,
        head: Option<CheckpointId>,
    ) -> Result<Self, ApiError> {
        let mut writer = Self {
            hub,
            live,
            journal: None,
            repeated: Repeated::default(),
            is_continued: false,
            last_checkpoint: None,
        };
        let mut events = vec![RunEvent::root(Kind::Started { head })];
        if live.resumable {
            let (journal, batches) = hub.journals.open(&live.about.run, hub.limits.log).await?;
            writer.journal = Some(journal);
            writer.is_continued = !batches.is_empty();
            writer.last_checkpoint = last_checkpoint(&batches);
            let root = ThreadId::from(live.about.thread.as_str());
            let (repeated, voids) = Repeated::read(&*hub.checkpointer, &root, head, &batches).await?;
            writer.repeated = repeated;
            events.extend(voids);
        }
        writer.add_all(events, None).await?;
        Ok(writer)
    }

    /// Returns whether the log has the events of an earlier process.
    pub(super) fn is_continued(&self) -> bool {
        self.is_continued
    }

    /// Returns the last checkpoint of the run's graph whose event an earlier process added.
    pub(super) fn last_checkpoint(&self) -> Option<CheckpointId> {
        self.last_checkpoint
    }

    /// Adds the events of a stream to its end.
    ///
    /// # Errors
    /// An event that cannot be read; the errors of the rows.
    pub(super) async fn follow(
        &mut self,
        events: &mut dyn JsonStream,
        writes: &mut Writes,
    ) -> Result<(), RunFailure> {
        let server_error = |message: String| RunFailure { name: "ServerError".to_owned(), message };
        loop {
            let (mut next, write) = tokio::select! {
                biased;
                event = events.next() => match event {
                    None => return Ok(()),
                    event => (event, None),
                },
                Some(write) = writes.0.recv() => (unconstrained(events.next()).now_or_never().flatten(), Some(write)),
            };
            let mut new = Vec::new();
            while let Some(event) = next {
                let event = event.and_then(RunEvent::read);
                new.extend(event.map_err(|error| server_error(format!("an event cannot be read: {error}")))?);
                let is_full = new.len() == BATCH;
                next = if is_full { None } else { unconstrained(events.next()).now_or_never().flatten() };
            }
            let Some(Write { write, done }) = write else {
                self.add_all(new, None).await.map_err(|error| server_error(error.detail))?;
                continue;
            };
            let added = self.add_all(new, Mark::of(&write)).await.map_err(|error| CheckpointError::Storage {
                what: format!("the events of the run cannot be stored: {}", error.detail),
                source: None,
            });
            // The run may have been dropped.
            let _ = done.send(added);
        }
    }

    /// Adds an event of the graph of the run.
    ///
    /// # Errors
    /// The errors of the rows.
    pub(super) async fn add(&mut self, kind: Kind) -> Result<(), ApiError> {
        self.add_all(vec![RunEvent::root(kind)], None).await
    }

    async fn add_all(&mut self, events: Vec<RunEvent>, write: Option<Mark>) -> Result<(), ApiError> {
        let entries = self.store(events, write).await?;
        entries.into_iter().for_each(|entry| self.hub.push(self.live, entry));
        Ok(())
    }

    /// Stores events, and returns the entries of those that clients may not have seen.
    ///
    /// # Errors
    /// The errors of the rows.
    pub(super) async fn store(
        &mut self,
        events: Vec<RunEvent>,
        write: Option<Mark>,
    ) -> Result<Vec<Entry>, ApiError> {
        let events = events.into_iter().map(|event| self.hub.shown_event(&self.live.about.graph, event));
        let Some(journal) = &mut self.journal else {
            return Ok(events.map(|event| self.hub.entry(event)).collect());
        };
        let events = events.filter(|event| !self.repeated.take(event));
        let entries: Vec<_> = events.map(|event| self.hub.entry(event)).collect();
        if entries.is_empty() && write.is_none() {
            return Ok(entries);
        }
        let batch = Batch { entries, write };
        journal.append(self.hub.next_number(), &batch).await?;
        if let Some(mark) = batch.write.as_ref().filter(|mark| mark.is_of_root()) {
            self.repeated.end_superstep(mark.checkpoint);
        }
        Ok(batch.entries)
    }

    /// Returns the size of the stored log in bytes; `None` if it is not stored.
    pub(super) fn bytes(&self) -> Option<usize> {
        self.journal.as_ref().map(Journal::bytes)
    }
}

/// Returns the last checkpoint of the run's graph with an event; that at which the run began, if there is none.
fn last_checkpoint(batches: &[Batch]) -> Option<CheckpointId> {
    let events = batches.iter().flat_map(|batch| &batch.entries).map(|entry| &entry.event);
    let began = events.clone().find_map(|event| match &event.kind {
        Kind::Started { head } => *head,
        _ => None,
    });
    let mut stored = events.filter(|event| event.path.is_root()).filter_map(|event| match &event.kind {
        Kind::Checkpoint { meta, .. } => Some(meta.id),
        _ => None,
    });
    stored.next_back().or(began)
}

/// The writes of a run that wait until its events are stored.
pub(super) struct Writes(mpsc::UnboundedReceiver<Write>);

struct Write {
    write: PendingWrite,
    done: oneshot::Sender<Result<(), CheckpointError>>,
}

impl Writes {
    /// Returns the writes, and the function that a run calls before each.
    pub(super) fn new() -> (Self, Arc<BeforeWrite>) {
        // A run has few at a time: each of its graphs waits.
        let (sender, receiver) = mpsc::unbounded_channel();
        let before = move |write| {
            let (done, added) = oneshot::channel();
            let sent = sender.send(Write { write, done });
            async move {
                // Without a receiver the run is being dropped, and its events have no reader.
                if sent.is_ok() { added.await.unwrap_or(Ok(())) } else { Ok(()) }
            }
            .boxed()
        };
        (Self(receiver), Arc::new(before))
    }
}
