//! Events of supersteps that a crash interrupted, and that come again.
//!
//! Start at [`Repeated`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;
use superstep_graph::{
    CheckpointId, Checkpointer, History, ThreadId,
    checkpoint::{CheckpointError, SubgraphPath, TaskRecord},
};

use crate::{
    events::event::{Kind, MessagePart, PartKind, RunEvent},
    runs::journal::{Batch, Mark},
};

/// The events that clients may have seen of supersteps that are not stored, and that run again. An event that comes again as it was is
/// not sent twice.
#[derive(Debug, Default)]
pub(crate) struct Repeated {
    /// By superstep, oldest first.
    supersteps: VecDeque<Vec<Value>>,
}

impl Repeated {
    /// Reads the stored log of a run on a thread. Returns with it the events that void messages of unfinished tasks, which write them
    /// again.
    ///
    /// # Errors
    /// The errors of the checkpointer.
    pub(crate) async fn read(
        checkpointer: &dyn Checkpointer,
        root: &ThreadId,
        batches: &[Batch],
    ) -> Result<(Self, Vec<RunEvent>), CheckpointError> {
        let stored = last_stored(checkpointer, batches).await?;
        let is_open = |at: usize, thread: &ThreadId| stored.get(thread).is_none_or(|last| at > *last);
        let mut supersteps = VecDeque::from([Vec::new()]);
        let mut messages: Vec<(RunEvent, MessagePart)> = Vec::new();
        for (at, batch) in batches.iter().enumerate().filter(|(at, _)| is_open(*at, root)) {
            for event in batch.entries.iter().map(|entry| &entry.event) {
                let threads = threads_of(root, &event.path);
                match &event.kind {
                    Kind::Started { .. } => {}
                    _ if !threads.iter().all(|thread| is_open(at, thread)) => {}
                    Kind::Message(part) => messages.push((event.clone(), part.clone())),
                    _ => supersteps.back_mut().expect("never empty").push(comparable(event)),
                }
            }
            if batch.write.as_ref().is_some_and(Mark::is_of_root) {
                supersteps.push_back(Vec::new());
            }
        }
        let mut finished = BTreeMap::new();
        let mut voids: Vec<RunEvent> = Vec::new();
        for (event, part) in messages {
            let thread = threads_of(root, &event.path).pop().expect("the root at least");
            if !finished.contains_key(&thread) {
                let tasks = finished_tasks(checkpointer, &thread).await?;
                finished.insert(thread.clone(), tasks);
            }
            let is_of = |void: &RunEvent| {
                void.path == event.path && matches!(&void.kind, Kind::Message(other) if other.id == part.id)
            };
            voids.retain(|void| !is_of(void));
            let is_finished = part
                .checkpoint
                .is_some_and(|checkpoint| finished[&thread].contains(&(checkpoint, part.slot)));
            if !is_finished && part.kind != PartKind::Discarded {
                let void = MessagePart { kind: PartKind::Discarded, data: Value::Null, ..part };
                voids.push(RunEvent { path: event.path, kind: Kind::Message(void) });
            }
        }
        Ok((Self { supersteps }, voids))
    }

    /// Returns whether an event is one of these, which then is none any more.
    pub(crate) fn take(&mut self, event: &RunEvent) -> bool {
        let Some(known) = self.supersteps.front_mut().filter(|known| !known.is_empty()) else { return false };
        let event = comparable(event);
        match known.iter().position(|known| *known == event) {
            Some(at) => {
                known.remove(at);
                true
            }
            None => false,
        }
    }

    /// Ends the oldest superstep: later events are of the next one.
    pub(crate) fn end_superstep(&mut self) {
        self.supersteps.pop_front();
    }
}

/// Returns the position of the last batch of each thread whose checkpoint is stored.
async fn last_stored(
    checkpointer: &dyn Checkpointer,
    batches: &[Batch],
) -> Result<BTreeMap<ThreadId, usize>, CheckpointError> {
    let mut heads: BTreeMap<&str, Option<CheckpointId>> = BTreeMap::new();
    let mut last = BTreeMap::new();
    for (at, batch) in batches.iter().enumerate() {
        let Some(Mark { thread, checkpoint }) = &batch.write else { continue };
        let id = ThreadId::from(thread.as_str());
        if !heads.contains_key(thread.as_str()) {
            let newest = History { limit: Some(1), ..History::default() };
            let newest = checkpointer.history(&id, newest).await?;
            heads.insert(thread, newest.first().map(|meta| meta.id));
        }
        if heads[thread.as_str()].is_some_and(|head| *checkpoint <= head) {
            last.insert(id, at);
        }
    }
    Ok(last)
}

/// Returns the finished tasks of the head of a thread: checkpoint and slot of each.
async fn finished_tasks(
    checkpointer: &dyn Checkpointer,
    thread: &ThreadId,
) -> Result<BTreeSet<(CheckpointId, u32)>, CheckpointError> {
    let Some(head) = checkpointer.load(thread, None).await? else { return Ok(BTreeSet::new()) };
    let is_finished = |record: &TaskRecord| matches!(record, TaskRecord::Finished { .. });
    let tasks = head.tasks.iter().filter(|(_, record)| is_finished(record));
    Ok(tasks.map(|(slot, _)| (head.meta.id, *slot)).collect())
}

/// Returns the threads of the graphs on a path, that of the run first.
fn threads_of(root: &ThreadId, path: &SubgraphPath) -> Vec<ThreadId> {
    let mut threads = vec![root.clone()];
    for segment in &path.0 {
        threads.push(threads[threads.len() - 1].child(segment));
    }
    threads
}

/// Returns an event without its time.
fn comparable(event: &RunEvent) -> Value {
    let mut json = serde_json::to_value(event).expect("an event has a JSON form");
    if let Some(Value::Object(data)) = json.pointer_mut("/kind/data") {
        data.remove("at_ms");
    }
    json
}
