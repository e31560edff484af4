//! The simulator's own book of what is stored, so that it need not believe the store.

use std::collections::{BTreeMap, BTreeSet};

use super::life::NOW_MS;
use superstep_graph::{CheckpointId, Control, Event, NodeName, State, TaskRecord};

type Counts = BTreeMap<(i64, NodeName), u64>;

/// What a thread has stored, and what its present run does.
#[derive(Default)]
pub(super) struct Ledger {
    head: Option<Head>,
    /// What this run may begin, and what it began.
    due: Counts,
    begun: Counts,
    failed: Counts,
    /// Attempts of tasks that began, in all runs.
    pub(super) executions: u64,
    /// What tasks did once and have stored, by the ends of their idempotency keys.
    once: BTreeSet<String>,
    /// What was done although it was stored.
    done_again: Option<String>,
}

struct Head {
    id: CheckpointId,
    control: Control,
    finished: BTreeSet<u32>,
    /// The tasks that asked someone outside.
    asking: BTreeSet<u32>,
}

impl Ledger {
    /// A new run: what is not stored as finished may run, once.
    pub(super) fn begin_run(&mut self) {
        self.begun.clear();
        self.failed.clear();
        self.due.clear();
        self.add_due();
    }

    fn add_due(&mut self) {
        let Some(head) = &self.head else { return };
        for (slot, node) in (0..).zip(&head.control.next) {
            if !head.finished.contains(&slot) {
                *self.due.entry((head.control.step + 1, node.clone())).or_default() += 1;
            }
        }
    }

    pub(super) fn committed(&mut self, id: CheckpointId, control: Control, records: &[(u32, TaskRecord)]) {
        self.head = Some(Head { id, control, finished: BTreeSet::new(), asking: BTreeSet::new() });
        for (slot, record) in records {
            self.recorded(id, *slot, record);
        }
        self.add_due();
    }

    pub(super) fn recorded(&mut self, checkpoint: CheckpointId, slot: u32, record: &TaskRecord) {
        if let Some(head) = self.head.as_mut().filter(|head| head.id == checkpoint) {
            let step = head.control.step + 1;
            let names = record.once().into_iter().flat_map(BTreeMap::keys);
            self.once.extend(names.map(|name| format!("/{checkpoint}@{NOW_MS}/{step}.{slot}/{name}")));
            head.finished.remove(&slot);
            head.asking.remove(&slot);
            let record = match record {
                TaskRecord::Handled { handler, .. } => handler,
                record => record,
            };
            match record {
                TaskRecord::Finished { .. } => drop(head.finished.insert(slot)),
                TaskRecord::Interrupted { .. } => drop(head.asking.insert(slot)),
                _ => {}
            }
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

    /// Whether a task of the head asked someone outside.
    pub(super) fn asks(&self) -> bool {
        self.head.as_ref().is_some_and(|head| !head.asking.is_empty())
    }

    /// The superstep whose tasks are running.
    pub(super) fn step(&self) -> i64 {
        self.head.as_ref().map_or(0, |head| head.control.step + 1)
    }

    pub(super) fn watch<S: State>(&mut self, event: Event<S>) {
        match event {
            Event::TaskStart { step, node, .. } => {
                self.executions += 1;
                *self.begun.entry((step, node)).or_default() += 1;
            }
            Event::TaskEnd { step, node, error: Some(_), .. } => {
                *self.failed.entry((step, node)).or_default() += 1;
            }
            _ => {}
        }
    }

    /// What this run did that it had no reason to. A failed attempt is a reason for another one.
    pub(super) fn overrun(&self) -> Option<String> {
        self.done_again.clone().or_else(|| self.begun_again())
    }

    fn begun_again(&self) -> Option<String> {
        self.begun.iter().find_map(|(task, &begun)| {
            let due = self.due.get(task).copied().unwrap_or_default();
            let failed = self.failed.get(task).copied().unwrap_or_default();
            let (step, node) = task;
            (begun > due + failed).then(|| {
                format!(
                    "superstep {step}: node `{node}` began {begun} times in one run, with {due} tasks not stored as \
                     finished and {failed} failed attempts"
                )
            })
        })
    }
}
