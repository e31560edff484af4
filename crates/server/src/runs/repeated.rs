//! Events of supersteps that a crash interrupted, and that come again.
//!
//! Start at [`Repeated`].

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

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
    /// By the checkpoint after which their superstep runs; 0 before the first one.
    known: BTreeMap<u64, Vec<Value>>,
    at: u64,
}

impl Repeated {
    /// Reads the stored log of a run on a thread, which continues at this head. Returns with it the events that void messages of
    /// unfinished tasks, which write them again.
    ///
    /// # Errors
    /// The errors of the checkpointer.
    pub(crate) async fn read(
        checkpointer: &dyn Checkpointer,
        root: &ThreadId,
        head: Option<CheckpointId>,
        batches: &[Batch],
    ) -> Result<(Self, Vec<RunEvent>), CheckpointError> {
        let at = number(head);
        let mut known: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
        let mut messages: Vec<(RunEvent, MessagePart)> = Vec::new();
        let heads = heads(checkpointer, batches).await?;
        for (after, event) in unstored(&heads, root, at, batches) {
            match &event.kind {
                Kind::Message(part) => messages.push((event.clone(), part.clone())),
                _ => known.entry(after).or_default().push(comparable(event)),
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
        Ok((Self { known, at }, voids))
    }

    /// Returns whether an event is one of these, which then is none any more.
    pub(crate) fn take(&mut self, event: &RunEvent) -> bool {
        let Some(known) = self.known.get_mut(&self.at).filter(|known| !known.is_empty()) else {
            return false;
        };
        let event = comparable(event);
        match known.iter().position(|known| *known == event) {
            Some(at) => {
                known.remove(at);
                true
            }
            None => false,
        }
    }

    /// Ends a superstep, which makes this checkpoint: later events are of the next one.
    pub(crate) fn end_superstep(&mut self, checkpoint: CheckpointId) {
        self.at = checkpoint.0;
        self.known = self.known.split_off(&self.at);
    }
}

fn number(checkpoint: Option<CheckpointId>) -> u64 {
    checkpoint.map_or(0, |checkpoint| checkpoint.0)
}

/// Returns the events of supersteps that are not stored, in their order, with the number of the checkpoint after which each ran; `head`
/// if the log does not say it any more.
///
/// Several processes may have run a superstep, each with its writes: only the order of what one of them added says where an event belongs.
fn unstored<'b>(
    heads: &BTreeMap<ThreadId, u64>,
    root: &ThreadId,
    head: u64,
    batches: &'b [Batch],
) -> Vec<(u64, &'b RunEvent)> {
    // The first write of each thread in the processes after this one.
    let mut later: BTreeMap<ThreadId, u64> = BTreeMap::new();
    let mut events = Vec::new();
    for process in batches.chunk_by(|_, batch| !begins(batch)).collect::<Vec<_>>().into_iter().rev() {
        let mut writes: BTreeMap<ThreadId, Vec<(usize, u64)>> = BTreeMap::new();
        for (at, batch) in process.iter().enumerate() {
            if let Some(Mark { thread, checkpoint }) = &batch.write {
                writes.entry(ThreadId::from(thread.as_str())).or_default().push((at, checkpoint.0));
            }
        }
        // A superstep begins after the write before it.
        let after = |thread: &ThreadId, at: usize| {
            let of_thread = writes.get(thread).map_or(&[][..], Vec::as_slice);
            let next = of_thread.get(of_thread.partition_point(|(write, _)| *write < at));
            let before = |id: &u64| id.saturating_sub(1);
            next.map(|(_, id)| before(id))
                .or_else(|| of_thread.last().map(|(_, id)| *id))
                .or_else(|| later.get(thread).map(before))
        };
        let mut of_process = Vec::new();
        for (at, batch) in process.iter().enumerate() {
            for event in batch.entries.iter().map(|entry| &entry.event) {
                let is_stored =
                    |thread: &ThreadId| after(thread, at).is_some_and(|after| after < heads[thread]);
                let is_start = matches!(event.kind, Kind::Started { .. });
                if !is_start && !threads_of(root, &event.path).iter().any(is_stored) {
                    of_process.push((after(root, at).unwrap_or(head), event));
                }
            }
        }
        events.push(of_process);
        later.extend(writes.into_iter().map(|(thread, writes)| (thread, writes[0].1)));
    }
    events.into_iter().rev().flatten().collect()
}

/// Returns whether a process began with this batch.
fn begins(batch: &Batch) -> bool {
    batch.entries.first().is_some_and(|entry| matches!(entry.event.kind, Kind::Started { .. }))
}

/// Returns the head of each thread that the run was about to write; 0 for one without a checkpoint.
async fn heads(
    checkpointer: &dyn Checkpointer,
    batches: &[Batch],
) -> Result<BTreeMap<ThreadId, u64>, CheckpointError> {
    let mut heads = BTreeMap::new();
    for Mark { thread, .. } in batches.iter().filter_map(|batch| batch.write.as_ref()) {
        if let Entry::Vacant(new) = heads.entry(ThreadId::from(thread.as_str())) {
            let newest = History { limit: Some(1), ..History::default() };
            let newest = checkpointer.history(new.key(), newest).await?;
            new.insert(number(newest.first().map(|meta| meta.id)));
        }
    }
    Ok(heads)
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

#[cfg(test)]
mod tests {
    use std::{slice::from_ref, sync::Arc};

    use serde_json::json;
    use superstep_graph::{Cx, END, MemoryCheckpointer, START, State, StateGraph};

    use super::*;
    use crate::runs::log::Entry;

    #[derive(State, Clone, Debug, Default)]
    struct Count {
        n: u32,
    }

    fn said(text: &str) -> RunEvent {
        RunEvent::root(Kind::Custom { name: "at".to_owned(), data: json!(text) })
    }

    fn batch(events: &[RunEvent], write: Option<CheckpointId>) -> Batch {
        let entry = |event: &RunEvent| Entry { number: 0, at_ms: 0, event: event.clone() };
        let mark = |checkpoint| Mark { thread: "t".to_owned(), checkpoint };
        Batch { entries: events.iter().map(entry).collect(), write: write.map(mark) }
    }

    /// The second process stored the checkpoint that the first one was about to store, and ended.
    #[tokio::test]
    async fn an_event_after_a_write_that_another_process_repeated_is_still_known() {
        let mut graph = StateGraph::<Count>::new("count");
        let one = graph.add_node("one", async |_: Count, _: Cx| Count::update().n(1));
        graph.add_edge(START, one);
        graph.add_edge(one, END);
        let store = Arc::new(MemoryCheckpointer::new());
        let graph = graph.compile().unwrap().with_checkpointer(store.clone());
        let head = graph.thread("t").run(Count::update()).await.unwrap().checkpoint.unwrap();
        let before = CheckpointId(head.0 - 1);
        let started = RunEvent::root(Kind::Started { head: Some(before) });
        let batches = [
            batch(&[started.clone(), said("one")], Some(head)),
            batch(&[said("two")], None),
            batch(&[started], Some(head)),
        ];
        let root = ThreadId::from("t");
        let (mut repeated, _) = Repeated::read(&*store, &root, Some(head), &batches).await.unwrap();
        assert!(!repeated.take(&said("one")), "its superstep is stored");
        assert!(repeated.take(&said("two")));
        assert!(!repeated.take(&said("two")), "a second one is new");

        // Without that checkpoint both come again, each in its superstep.
        let empty = MemoryCheckpointer::new();
        let (mut repeated, _) = Repeated::read(&empty, &root, Some(before), &batches).await.unwrap();
        assert!(!repeated.take(&said("two")));
        assert!(repeated.take(&said("one")));
        repeated.end_superstep(head);
        assert!(repeated.take(&said("two")));
    }

    /// The task of an event had finished, so that the process that stored its superstep did not run it.
    #[tokio::test]
    async fn an_event_of_a_superstep_that_another_process_stored_is_not_awaited() {
        let started = RunEvent::root(Kind::Started { head: None });
        let batches = [
            batch(from_ref(&started), Some(CheckpointId(1))),
            batch(&[said("one")], None),
            batch(from_ref(&started), Some(CheckpointId(2))),
        ];
        let (root, heads) = (ThreadId::from("t"), BTreeMap::from([(ThreadId::from("t"), 2)]));
        assert!(unstored(&heads, &root, 2, &batches).is_empty());
        let heads = BTreeMap::from([(root.clone(), 1)]);
        assert_eq!(unstored(&heads, &root, 1, &batches).len(), 1);
    }
}
