//! A checker of histories, in the manner of Jepsen's: given the requests of all processes with their answers, by one clock, and the
//! database at the end, is there an order of events that the contract of threads allows?
//!
//! A request without an answer, or with an error that leaves its effect open, may or may not have had one. Its effect is recognised in the
//! database by the name of its writer.
//!
//! Start at [`check`].

// Jepsen's checkers search for an order of operations. Here each commit names its writer, so that the database itself
// gives the order: the checks are comparisons of times, one pass for each rule, and a finding names its rule.
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// A request of a process, or an event in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    pub thread: String,
    /// The name of the lease under which the process made the request; of a `Lease`, its own.
    pub lease: Option<String>,
    pub what: What,
    /// The times of the request and of its answer, by one clock for all processes: nanoseconds.
    pub begun: u64,
    pub ended: Option<(u64, Outcome)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum What {
    /// The lease of a thread and those under it.
    Lease,
    /// A read of the head; 0 if there is no thread.
    Load,
    /// A commit, with a name that no other one has, and which is stored with it.
    Commit { writer: String },
    /// The record of a task, with the keys of the effects whose results it stores.
    Record { keys: Vec<String> },
    /// An input sent to a queue under an id.
    Send { id: String },
    /// An effect outside of the database, executed under a key.
    Execute { name: String, key: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// Acknowledged. `head` is the id of a commit, or the head that was read; 0 otherwise.
    Done { head: u64 },
    /// Refused without an effect.
    Refused,
    /// The request may have had an effect.
    Unknown,
}

/// A thread at the end, oldest checkpoint first.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    pub thread: String,
    pub checkpoints: Vec<Stored>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub id: u64,
    pub parent: Option<u64>,
    pub writer: Option<String>,
    /// The ids of the accepted inputs that it stores.
    pub inputs: Vec<String>,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// The checkpoints of a thread are not 1, 2, 3.. each after the one before.
    Forked { thread: String, id: u64 },
    /// A checkpoint has no known writer.
    Phantom { thread: String, id: u64 },
    /// A commit is stored more than once.
    Twice { writer: String },
    /// An acknowledged commit is not stored under its id.
    Lost { writer: String },
    /// A refused commit is stored.
    Refused { writer: String },
    /// A commit or a read saw an older head than an operation that had ended before it.
    Backwards { thread: String, head: u64 },
    /// A read saw a head whose commit had not begun.
    Future { thread: String, head: u64 },
    /// A write without a lease.
    Unleased { thread: String },
    /// A write was acknowledged although it began after another process had received the lease.
    Fenced { thread: String, lease: String },
    /// The checkpoints of two leases alternate, or those of an earlier lease follow those of a later one.
    TwoWriters { thread: String, id: u64 },
    /// An acknowledged input is not stored.
    LostInput { thread: String, id: String },
    /// An input is stored more than once.
    RepeatedInput { thread: String, id: String },
    /// An effect has several keys, so that the other side cannot recognise its repetition.
    Keys { thread: String, name: String },
    /// An effect was executed again after its result was acknowledged, by a process with a valid lease.
    Repeated { thread: String, key: String },
}

/// Returns the promises that a history breaks, in order.
pub fn check(operations: &[Operation], chains: &[Chain]) -> Vec<Violation> {
    let mut found = BTreeSet::new();
    let history = History::new(operations);
    for chain in chains {
        line(chain, &mut found);
        writers(&history, chain, &mut found);
    }
    commits(&history, chains, &mut found);
    heads(&history, chains, &mut found);
    fences(&history, &mut found);
    inputs(operations, chains, &mut found);
    effects(&history, &mut found);
    found.into_iter().collect()
}

impl Operation {
    /// Returns the time and the head of an acknowledgement.
    fn done(&self) -> Option<(u64, u64)> {
        match self.ended {
            Some((at, Outcome::Done { head })) => Some((at, head)),
            _ => None,
        }
    }

    fn writer(&self) -> Option<&str> {
        match &self.what {
            What::Commit { writer } => Some(writer),
            _ => None,
        }
    }
}

struct History<'a> {
    operations: &'a [Operation],
    commits: BTreeMap<&'a str, &'a Operation>,
    leases: BTreeMap<&'a str, &'a Operation>,
    /// The leases of each thread.
    of_thread: BTreeMap<&'a str, Vec<&'a Operation>>,
}

impl<'a> History<'a> {
    fn new(operations: &'a [Operation]) -> Self {
        let commits = operations.iter().filter_map(|operation| Some((operation.writer()?, operation)));
        let of_kind = |operation: &&Operation| matches!(operation.what, What::Lease);
        let leases = operations.iter().filter(of_kind);
        let mut of_thread = BTreeMap::<_, Vec<_>>::new();
        for lease in leases.clone() {
            of_thread.entry(lease.thread.as_str()).or_default().push(lease);
        }
        let leases = leases.filter_map(|lease| Some((lease.lease.as_deref()?, lease)));
        Self { operations, commits: commits.collect(), leases: leases.collect(), of_thread }
    }

    /// Returns whether a lease ended before another one began, as far as the answers show.
    fn is_before(&self, one: &str, other: &str) -> bool {
        let (Some(one), Some(other)) = (self.leases.get(one), self.leases.get(other)) else { return false };
        one.done().is_some_and(|(received, _)| received < other.begun)
    }
}

/// Returns the name of the thread whose lease a thread needs.
fn root(thread: &str) -> &str {
    thread.split('\u{1f}').next().unwrap_or(thread)
}

fn line(chain: &Chain, found: &mut BTreeSet<Violation>) {
    for (nth, stored) in (1..).zip(&chain.checkpoints) {
        if stored.id != nth || stored.parent.unwrap_or(0) != nth - 1 {
            found.insert(Violation::Forked { thread: chain.thread.clone(), id: stored.id });
        }
    }
}

/// Each checkpoint has a writer, and the leases of the writers take turns in one direction.
fn writers(history: &History<'_>, chain: &Chain, found: &mut BTreeSet<Violation>) {
    let (mut over, mut current) = (BTreeSet::new(), None);
    for stored in &chain.checkpoints {
        let commit = stored.writer.as_deref().and_then(|writer| history.commits.get(writer));
        let Some(commit) = commit.filter(|commit| commit.thread == chain.thread) else {
            found.insert(Violation::Phantom { thread: chain.thread.clone(), id: stored.id });
            continue;
        };
        let next = commit.lease.as_deref();
        if next == current {
            continue;
        }
        let is_back = current.zip(next).is_some_and(|(one, other)| history.is_before(other, one));
        over.extend(current);
        if is_back || next.is_some_and(|next| over.contains(next)) {
            found.insert(Violation::TwoWriters { thread: chain.thread.clone(), id: stored.id });
        }
        current = next;
    }
}

fn commits(history: &History<'_>, chains: &[Chain], found: &mut BTreeSet<Violation>) {
    let mut places = BTreeMap::<_, Vec<_>>::new();
    for chain in chains {
        for stored in &chain.checkpoints {
            if let Some(writer) = &stored.writer {
                places.entry(writer.as_str()).or_default().push((chain.thread.as_str(), stored.id));
            }
        }
    }
    for (writer, commit) in &history.commits {
        let stored = places.get(writer).map_or(&[][..], Vec::as_slice);
        let writer = || (*writer).to_owned();
        if stored.len() > 1 {
            found.insert(Violation::Twice { writer: writer() });
        }
        match commit.ended {
            Some((_, Outcome::Done { head })) if !stored.contains(&(commit.thread.as_str(), head)) => {
                found.insert(Violation::Lost { writer: writer() });
            }
            Some((_, Outcome::Refused)) if !stored.is_empty() => {
                found.insert(Violation::Refused { writer: writer() });
            }
            _ => {}
        }
    }
}

/// The head of each thread is a register that only advances.
fn heads(history: &History<'_>, chains: &[Chain], found: &mut BTreeSet<Violation>) {
    let chains: BTreeMap<_, _> = chains.iter().map(|chain| (chain.thread.as_str(), chain)).collect();
    let mut threads = BTreeMap::<&str, Vec<_>>::new();
    for operation in history.operations {
        if let (What::Load | What::Commit { .. }, Some((at, head))) = (&operation.what, operation.done()) {
            threads.entry(&operation.thread).or_default().push((operation, at, head));
        }
    }
    for (thread, mut seen) in threads {
        seen.sort_by_key(|(_, at, _)| *at);
        // The newest head that was seen until each time.
        let mut newest = Vec::<(u64, u64)>::with_capacity(seen.len());
        for (_, at, head) in &seen {
            let before = newest.last().map_or(0, |(_, head)| *head);
            newest.push((*at, before.max(*head)));
        }
        for (operation, at, head) in seen {
            let before = newest.partition_point(|(at, _)| *at < operation.begun);
            let bound = before.checked_sub(1).map_or(0, |nth| newest[nth].1);
            let is_commit = operation.writer().is_some();
            if head < bound || (is_commit && head == bound && head > 0) {
                found.insert(Violation::Backwards { thread: thread.to_owned(), head });
            }
            let stored = chains
                .get(thread)
                .and_then(|chain| chain.checkpoints.get(usize::try_from(head).ok()?.checked_sub(1)?));
            let commit = stored.and_then(|stored| history.commits.get(stored.writer.as_deref()?));
            if !is_commit && head > 0 && commit.is_none_or(|commit| commit.begun > at) {
                found.insert(Violation::Future { thread: thread.to_owned(), head });
            }
        }
    }
}

/// No write is acknowledged that began after another lease was received.
fn fences(history: &History<'_>, found: &mut BTreeSet<Violation>) {
    for write in history.operations {
        let is_write = matches!(write.what, What::Commit { .. } | What::Record { .. });
        if !is_write || write.done().is_none() {
            continue;
        }
        let Some(lease) = write.lease.as_deref() else {
            found.insert(Violation::Unleased { thread: write.thread.clone() });
            continue;
        };
        let others = history.of_thread.get(root(&write.thread)).into_iter().flatten();
        let is_fenced = others.clone().any(|other| {
            let other_name = other.lease.as_deref().unwrap_or_default();
            other.done().is_some_and(|(received, _)| received < write.begun)
                && history.is_before(lease, other_name)
        });
        if is_fenced {
            found.insert(Violation::Fenced { thread: write.thread.clone(), lease: lease.to_owned() });
        }
    }
}

fn inputs(operations: &[Operation], chains: &[Chain], found: &mut BTreeSet<Violation>) {
    let mut stored = BTreeMap::<_, usize>::new();
    for chain in chains {
        for id in chain.checkpoints.iter().flat_map(|stored| &stored.inputs) {
            *stored.entry((chain.thread.as_str(), id.as_str())).or_default() += 1;
        }
    }
    for ((thread, id), times) in &stored {
        if *times > 1 {
            let (thread, id) = ((*thread).to_owned(), (*id).to_owned());
            found.insert(Violation::RepeatedInput { thread, id });
        }
    }
    for operation in operations {
        if let (What::Send { id }, Some(_)) = (&operation.what, operation.done())
            && !stored.contains_key(&(operation.thread.as_str(), id.as_str()))
        {
            found.insert(Violation::LostInput { thread: operation.thread.clone(), id: id.clone() });
        }
    }
}

fn effects(history: &History<'_>, found: &mut BTreeSet<Violation>) {
    let (mut keys, mut records) = (BTreeMap::<_, BTreeSet<_>>::new(), BTreeMap::<&str, Vec<_>>::new());
    for operation in history.operations {
        match &operation.what {
            What::Execute { name, key } => {
                keys.entry((&operation.thread, name)).or_default().insert(key);
            }
            What::Record { keys } => {
                let Some((at, _)) = operation.done() else { continue };
                for key in keys {
                    records.entry(key).or_default().push((at, operation.lease.as_deref()));
                }
            }
            _ => {}
        }
    }
    for ((thread, name), keys) in keys {
        if keys.len() > 1 {
            found.insert(Violation::Keys { thread: thread.clone(), name: name.clone() });
        }
    }
    for execution in history.operations {
        let What::Execute { key, .. } = &execution.what else { continue };
        let records = records.get(key.as_str()).into_iter().flatten();
        // A process that was stopped in the middle of its task, and has not noticed that it lost its lease, may repeat it.
        let is_repeated = records.clone().any(|(at, lease)| {
            let has_lost = execution
                .lease
                .as_deref()
                .zip(*lease)
                .is_some_and(|(own, later)| history.is_before(own, later));
            *at < execution.begun && !has_lost
        });
        if is_repeated {
            found.insert(Violation::Repeated { thread: execution.thread.clone(), key: key.clone() });
        }
    }
}

#[cfg(test)]
mod tests;
