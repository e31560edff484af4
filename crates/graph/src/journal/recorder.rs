//! What a task learned from outside, so that it can be given the same again.
//!
//! A task's update depends on its state, on its place, and on what it asked: what was done for it, what was answered, the
//! clock. The first two are stored anyway. The rest is written down while the task runs, and stored with its update, as the
//! entry `$recorded`; a [`Replay`](crate::Replay) reads it out.
//!
//! Start at [`Cx::recorded`](crate::Cx::recorded).

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize, ser::Error as _};
use serde_json::Value;
use superstep_checkpoint::internal::SEPARATOR;
use superstep_engine::TaskId;
use superstep_state::internal::{RECORDED, encode};

use crate::{
    NodeFailure, RecordedTarget,
    journal::{effects::Failed, packed},
};

/// What one task learned. A promise: it is stored with the task's update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Recorded {
    /// What was done for it, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) results: BTreeMap<String, Value>,
    /// What could not be done once, by name, and why; the node went on all the same.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) errors: BTreeMap<String, Failed>,
    /// What it was about to do, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) compared: BTreeMap<String, Value>,
    /// What it asked and was answered, by key: the fingerprint of the question, and the answer.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) answers: BTreeMap<String, (String, Value)>,
    /// Which times it asked for the time, and how many milliseconds after its checkpoint that was. What is not there is like
    /// the time before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) now: Vec<(usize, i64)>,
    /// Which times it read the inbox and found something, and the number of the last item.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) inbox: Vec<(usize, u64)>,
    /// How many supersteps the run had left, if it asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) steps_left: Option<u32>,
    /// Where chance began, if it drew and that was not 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) seed: u64,
    /// How often it had failed before.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) failed: u64,
    /// Whether its update came out of the cache of its node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) cached: bool,
    /// Where it went by itself, if its update came out of the cache.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) went: Vec<RecordedTarget>,
    /// What the error handler was told that wrote the update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<Box<NodeFailure>>,
    /// What the tasks of graphs learned that it called and that are kept nowhere, by the call, the superstep and the slot. What
    /// those called stands beside them, by the whole way, so that nothing is nested deeper for it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) inner: BTreeMap<String, Recorded>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Recorded {
    /// Adds itself to an update that is stored, in which it need not repeat long texts.
    ///
    /// # Errors
    /// If it is nested too deep to be read again.
    pub(crate) fn append_to(&self, update: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        if *self == Self::default() {
            return Ok(());
        }
        let recorded = serde_json::to_value(self).expect("what was read as JSON becomes JSON");
        let recorded = packed::pack(recorded, update);
        if encode::is_deeper(&recorded, encode::READABLE - 1) {
            return Err(serde_json::Error::custom("what the task learned is nested too deep"));
        }
        update.pop();
        if update.len() > 1 {
            update.push(b',');
        }
        update.extend_from_slice(format!("\"{RECORDED}\":{recorded}}}").as_bytes());
        Ok(())
    }

    /// Adds what a task of a graph learned that this task called.
    pub(crate) fn add_inner(&mut self, name: &str, mut learned: Self) {
        for (inner, learned) in std::mem::take(&mut learned.inner) {
            self.inner.insert(format!("{name}{SEPARATOR}{inner}"), learned);
        }
        self.inner.insert(name.to_owned(), learned);
    }

    /// What it learned.
    pub(crate) fn inner(&self, name: &str) -> Option<Self> {
        let mut learned = self.inner.get(name)?.clone();
        let above = format!("{name}{SEPARATOR}");
        let inner = self.inner.range(above.clone()..).take_while(|(name, _)| name.starts_with(&above));
        learned.inner.extend(inner.map(|(name, learned)| (name[above.len()..].to_owned(), learned.clone())));
        Some(learned)
    }

    /// What is stored with an update; nothing if there is nothing.
    pub(crate) fn of(update: &[u8]) -> Result<Self, serde_json::Error> {
        let mut update: Value = serde_json::from_slice(update)?;
        let recorded = update.as_object_mut().and_then(|entries| entries.remove(RECORDED));
        match recorded {
            Some(recorded) => serde_json::from_value(packed::unpack(recorded, &update)?),
            None => Ok(Self::default()),
        }
    }
}

/// What a replay gives a task.
#[derive(Clone, Debug)]
pub(crate) enum Given {
    /// Everything for real.
    Nothing,
    /// What was recorded; nothing else is done for it.
    Recorded(Arc<Recorded>),
    /// The same, but what it does it does for real.
    Live(Arc<Recorded>),
    /// It is not known what it learned: as soon as it asks for anything, its stored update is taken instead.
    Unknown,
}

/// What the tasks of a run learn.
#[derive(Default)]
pub(crate) struct Tape {
    /// Whether anything is written down.
    pub(crate) records: bool,
    /// Whether it is a replay.
    pub(crate) replays: bool,
    pages: Mutex<Pages>,
}

#[derive(Default)]
struct Pages {
    step: i64,
    tasks: BTreeMap<u32, Page>,
}

/// Of one task.
struct Page {
    given: Given,
    learned: Recorded,
    /// How often it asked for the time and read the inbox, and the time that it was told last.
    times: usize,
    last_ms: Option<i64>,
    reads: usize,
    /// What it did once, by name.
    once: BTreeSet<String>,
    /// How often it used a name, for what it did and for what it was about to do.
    used: BTreeMap<(Use, String), usize>,
}

/// What a name is used for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    Result,
    Compared,
}

impl Default for Page {
    fn default() -> Self {
        let (given, learned, once) = (Given::Nothing, Recorded::default(), BTreeSet::new());
        let used = BTreeMap::new();
        Self { given, learned, times: 0, last_ms: None, reads: 0, once, used }
    }
}

tokio::task_local! {
    /// Set while something is done whose result is recorded: what that learns itself need not be.
    static EFFECT: ();
}

/// Whether this is part of something whose result is recorded.
pub(crate) fn in_effect() -> bool {
    EFFECT.try_with(|()| ()).is_ok()
}

/// Does something whose result is recorded. In a box, for effects hold graphs that hold effects.
pub(crate) fn effect<F: Future>(effect: Pin<Box<F>>) -> impl Future<Output = F::Output> {
    EFFECT.scope((), effect)
}

impl Given {
    /// Which attempt the task was, and how many supersteps its run had left.
    pub(crate) fn counts(&self) -> Option<(u32, u32)> {
        let (Self::Recorded(recorded) | Self::Live(recorded)) = self else { return None };
        let attempt = u32::try_from(recorded.failed).unwrap_or(u32::MAX).saturating_add(1);
        Some((attempt, recorded.steps_left.unwrap_or_default()))
    }
}

impl Tape {
    pub(crate) fn new(records: bool, replays: bool) -> Self {
        Self { records, replays, pages: Mutex::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        (self.records || self.replays) && !in_effect()
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page of a task of which nothing is known.
    fn blank(&self) -> Page {
        // In a replay every task that runs is given something; what asks without is left over from one that is over.
        let given = if self.replays { Given::Unknown } else { Given::Nothing };
        Page { given, ..Page::default() }
    }

    /// The pages of the superstep of a task; `None` if there are none to be written or read, as for work that outlived its
    /// superstep.
    fn pages_with(&self, task: TaskId) -> Option<MutexGuard<'_, Pages>> {
        if !self.is_on() {
            return None;
        }
        let mut pages = self.pages();
        if task.step < pages.step {
            return None;
        }
        if task.step > pages.step {
            pages.step = task.step;
            pages.tasks.clear();
        }
        Some(pages)
    }

    /// Does something with the page of a task, which is made if there is none.
    fn page<T>(&self, task: TaskId, with: impl FnOnce(&mut Page) -> T) -> Option<T> {
        let mut pages = self.pages_with(task)?;
        Some(with(pages.tasks.entry(task.slot).or_insert_with(|| self.blank())))
    }

    /// Begins an attempt of a task, which is given this.
    pub(crate) fn begin(&self, task: TaskId, given: Given) {
        let Some(mut pages) = self.pages_with(task) else { return };
        if matches!(given, Given::Nothing) && !self.replays {
            // A page costs more than many a node, and few need one.
            pages.tasks.remove(&task.slot);
        } else {
            pages.tasks.insert(task.slot, Page { given, ..Page::default() });
        }
    }

    /// What a task is given.
    pub(crate) fn given(&self, task: TaskId) -> Given {
        let late = || if self.replays && !in_effect() { Given::Unknown } else { Given::Nothing };
        let pages = self.pages_with(task);
        pages.and_then(|pages| Some(pages.tasks.get(&task.slot)?.given.clone())).unwrap_or_else(late)
    }

    /// What a task learned. `once` gives what it did once, which is kept elsewhere while it runs.
    pub(crate) fn learned(&self, task: TaskId, once: impl FnOnce() -> BTreeMap<String, String>) -> Recorded {
        let page = self.pages_with(task).and_then(|mut pages| pages.tasks.remove(&task.slot));
        let Some(Page { mut learned, once: done, .. }) = page else { return Recorded::default() };
        if done.is_empty() {
            return learned;
        }
        let once = once().into_iter().filter(|(name, _)| done.contains(name));
        learned
            .results
            .extend(once.filter_map(|(name, json)| Some((name, serde_json::from_str(&json).ok()?))));
        // What could be done in the end.
        learned.errors.retain(|name, _| !learned.results.contains_key(name));
        learned
    }

    /// The name under which something is kept: the second time that a task uses one it is another.
    pub(crate) fn numbered(&self, task: TaskId, used: Use, name: &str) -> String {
        let nth = self.page(task, |page| {
            let nth = page.used.entry((used, name.to_owned())).or_default();
            *nth += 1;
            *nth
        });
        match nth {
            None | Some(1) => name.to_owned(),
            Some(nth) => format!("{name}#{nth}"),
        }
    }

    /// Adds to what a task learned.
    pub(crate) fn learn(&self, task: TaskId, learn: impl FnOnce(&mut Recorded)) {
        self.page(task, |page| learn(&mut page.learned));
    }

    /// Notes that a task did something once.
    pub(crate) fn did_once(&self, task: TaskId, name: &str) {
        self.page(task, |page| page.once.insert(name.to_owned()));
    }

    /// The time that a task is told: `since_ms` is that of its checkpoint.
    pub(crate) fn now_ms(&self, task: TaskId, since_ms: i64, clock: impl FnOnce() -> i64) -> Option<i64> {
        self.page(task, |page| {
            let nth = page.times;
            page.times += 1;
            let last = page.last_ms.unwrap_or(since_ms);
            let now = match &page.given {
                Given::Recorded(recorded) => {
                    let told = recorded.now.iter().find(|(at, _)| *at == nth);
                    told.map_or(last, |(_, after)| since_ms.saturating_add(*after))
                }
                Given::Unknown => last,
                Given::Nothing | Given::Live(_) => clock(),
            };
            if now != last {
                page.learned.now.push((nth, now.saturating_sub(since_ms)));
            }
            page.last_ms = Some(now);
            now
        })
    }

    /// Up to which item a task reads the inbox now; `None` for as far as it goes.
    pub(crate) fn inbox(&self, task: TaskId) -> Option<u64> {
        self.page(task, |page| {
            let nth = page.reads;
            page.reads += 1;
            match &page.given {
                Given::Recorded(recorded) | Given::Live(recorded) => {
                    Some(recorded.inbox.iter().find(|(at, _)| *at == nth).map_or(0, |(_, last)| *last))
                }
                Given::Unknown => Some(0),
                Given::Nothing => None,
            }
        })?
    }

    /// Notes the last item that a task found in the inbox.
    pub(crate) fn found(&self, task: TaskId, last: u64) {
        self.page(task, |page| page.learned.inbox.push((page.reads.saturating_sub(1), last)));
    }
}
