//! The simulator's own record of stored data, independent of the store.

use std::collections::{BTreeMap, BTreeSet};

use superstep_graph::{
    CheckpointId, Event, State, ThreadId,
    checkpoint::{TaskKey, TaskRecord},
    node::NodeName,
    topology::Control,
};

use crate::clock::NOW_MS;

/// Counts by path, superstep and node.
type Counts = BTreeMap<(String, i64, NodeName), u64>;

/// The stored data of a thread, and the actions of its current run.
#[derive(Default)]
pub(super) struct Ledger {
    /// The heads of the thread and of those of its subgraphs, by path.
    heads: BTreeMap<String, Head>,
    /// The tasks that this run may start, and those that it has started.
    due: Counts,
    begun: Counts,
    failed: Counts,
    /// The number of started attempts, in all runs.
    pub(super) executions: u64,
    /// The stored effects of tasks, by the ends of their idempotency keys.
    once: BTreeSet<String>,
    /// An effect that was repeated although its result was stored.
    done_again: Option<String>,
}

struct Head {
    id: CheckpointId,
    control: Control,
    finished: BTreeSet<u32>,
    /// The interrupted tasks.
    asking: BTreeSet<u32>,
}

impl Head {
    fn add_due(&self, path: &str, due: &mut Counts) {
        for (slot, node) in (0..).zip(&self.control.next) {
            if !self.finished.contains(&slot) {
                *due.entry((path.to_owned(), self.control.step + 1, node.clone())).or_default() += 1;
            }
        }
    }
}

impl Ledger {
    /// Begins a run: tasks that are not stored as finished may run, once.
    pub(super) fn begin_run(&mut self) {
        self.begun.clear();
        self.failed.clear();
        self.due.clear();
        for (path, head) in &self.heads {
            head.add_due(path, &mut self.due);
        }
    }

    pub(super) fn committed(
        &mut self,
        thread: &ThreadId,
        checkpoint: CheckpointId,
        control: Control,
        records: &[(u32, TaskRecord)],
    ) {
        let path = thread.path().to_string();
        let head = Head { id: checkpoint, control, finished: BTreeSet::new(), asking: BTreeSet::new() };
        self.heads.insert(path.clone(), head);
        for (slot, record) in records {
            self.recorded(&TaskKey { thread: thread.clone(), checkpoint, slot: *slot }, record);
        }
        self.heads[&path].add_due(&path, &mut self.due);
    }

    pub(super) fn recorded(&mut self, task: &TaskKey, record: &TaskRecord) {
        let TaskKey { thread, checkpoint, slot } = task;
        let path = thread.path().to_string();
        if let Some(head) = self.heads.get_mut(&path).filter(|head| head.id == *checkpoint) {
            head.finished.remove(slot);
            head.asking.remove(slot);
            let record = match record {
                TaskRecord::Handled { handler, .. } => handler,
                record => record,
            };
            match record {
                TaskRecord::Finished { .. } => drop(head.finished.insert(*slot)),
                TaskRecord::Interrupted { .. } => drop(head.asking.insert(*slot)),
                _ => {}
            }
        }
        self.added(task, record.once().into_iter().flat_map(BTreeMap::keys));
    }

    /// Takes note of stored effects of a task.
    pub(super) fn added<'a>(&mut self, task: &TaskKey, names: impl Iterator<Item = &'a String>) {
        let TaskKey { thread, checkpoint, slot } = task;
        let path = thread.path().to_string();
        // The keys of a subgraph's tasks begin with those of its caller's.
        let head = self.heads.get(&path).filter(|head| head.id == *checkpoint && path.is_empty());
        if let Some(head) = head {
            let step = head.control.step + 1;
            self.once.extend(names.map(|name| format!("/{checkpoint}@{NOW_MS}/{step}.{slot}/{name}")));
        }
    }

    pub(super) fn effect(&mut self, key: &str) {
        if let Some(begin) =
            key.match_indices('/').map(|(at, _)| at).find(|at| self.once.contains(&key[*at..]))
        {
            self.done_again =
                Some(format!("`{}` was done again, although its result is stored", &key[begin + 1..]));
        }
    }

    /// Returns whether a task of the head is interrupted.
    pub(super) fn asks(&self) -> bool {
        self.heads.get("").is_some_and(|head| !head.asking.is_empty())
    }

    /// Returns the superstep whose tasks are running on a thread.
    pub(super) fn step(&self, thread: &ThreadId) -> i64 {
        self.heads.get(&thread.path().to_string()).map_or(0, |head| head.control.step + 1)
    }

    pub(super) fn watch<S: State>(&mut self, event: Event<S>) {
        match event {
            Event::TaskStart { step, node, .. } => self.begins(String::new(), step, node),
            Event::TaskEnd { step, node, error: Some(_), .. } => self.fails(String::new(), step, node),
            Event::Subgraph { path, event } => {
                let data = &event["data"];
                let (step, node) = (data["step"].as_i64(), data["node"].as_str());
                let (Some(step), Some(node)) = (step, node) else { return };
                match event["event"].as_str() {
                    Some("task_start") => self.begins(path.to_string(), step, node.into()),
                    Some("task_end") if !data["error"].is_null() => {
                        self.fails(path.to_string(), step, node.into());
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn begins(&mut self, path: String, step: i64, node: NodeName) {
        self.executions += 1;
        // A graph without storage starts again with its caller.
        if self.heads.contains_key(&path) {
            *self.begun.entry((path, step, node)).or_default() += 1;
        }
    }

    fn fails(&mut self, path: String, step: i64, node: NodeName) {
        *self.failed.entry((path, step, node)).or_default() += 1;
    }

    /// Returns an unexpected start of a task. A failed attempt allows another one.
    pub(super) fn overrun(&self) -> Option<String> {
        self.done_again.clone().or_else(|| self.begun_again())
    }

    fn begun_again(&self) -> Option<String> {
        self.begun.iter().find_map(|(task, &begun)| {
            let due = self.due.get(task).copied().unwrap_or_default();
            let failed = self.failed.get(task).copied().unwrap_or_default();
            let (path, step, node) = task;
            let inside = if path.is_empty() { String::new() } else { format!("`{path}`, ") };
            (begun > due + failed).then(|| {
                format!(
                    "{inside}superstep {step}: node `{node}` began {begun} times in one run, with {due} tasks not stored as \
                     finished and {failed} failed attempts"
                )
            })
        })
    }
}
