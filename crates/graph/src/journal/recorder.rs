//! The recorded inputs of a task, for replays.
//!
//! A task's update depends on its state, on its place, and on external inputs: results of effects, answers,
//! the clock. The first two are stored anyway. The inputs are recorded while the task runs, and stored with
//! its update, as the entry `$recorded`; a [`Replay`](crate::replay::Replay) reads them.
//!
//! Start at [`Cx::recorded`](crate::Cx::recorded).

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    iter,
    ops::Deref,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use serde::{Deserialize, Serialize, ser::Error as _};
use serde_json::Value;
use superstep_checkpoint::{RecordedTarget, internal::SEPARATOR};
use superstep_engine::{NodeIndex, TaskId, Topology};
use superstep_state::{
    RawJson, StoredUpdate,
    internal::{RecordedInputs, encode},
};

use crate::{
    NodeFailure,
    journal::{effects::Failed, packed},
};

/// The recorded inputs of one task. A promise: they are stored with the task's update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Recorded {
    /// The results of effects, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) results: BTreeMap<String, Value>,
    /// The errors of [`Cx::once`](crate::Cx::once) effects after which the node continued, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) errors: BTreeMap<String, Failed>,
    /// The compared values, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) compared: BTreeMap<String, Value>,
    /// The answers by key: the fingerprint of the question, and the answer.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) answers: BTreeMap<String, (String, Value)>,
    /// The clock reads that differ from the one before: the number of the read, and the milliseconds since
    /// its checkpoint.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) now: Vec<(usize, i64)>,
    /// The inbox reads with items: the number of the read, and the number of the last item.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) inbox: Vec<(usize, u64)>,
    /// The remaining supersteps of the run, if the task read them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) steps_left: Option<u32>,
    /// The RNG seed, if the task drew random numbers and the seed was not 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) seed: u64,
    /// The number of earlier failures.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) failed: u64,
    /// `true` if its update came from the cache of its node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) cached: bool,
    /// The targets of its own command, if its update came from the cache.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) went: Vec<RecordedTarget>,
    /// The failure that the error handler received, if it wrote the update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<Box<NodeFailure>>,
    /// The recorded inputs of tasks of called graphs without storage, by the call, the superstep and the
    /// slot. Inputs of deeper calls are stored side by side under their full paths, so that the nesting does
    /// not grow.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) inner: BTreeMap<String, Recorded>,
}

/// The recorded inputs of a task as a replay gives them to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplayInputs {
    pub(crate) recorded: Recorded,
    /// The update of the task; `None` if it is that of a called graph without storage.
    pub(crate) update: Option<StoredUpdate>,
}

impl From<Recorded> for ReplayInputs {
    fn from(recorded: Recorded) -> Self {
        Self { recorded, update: None }
    }
}

impl Deref for ReplayInputs {
    type Target = Recorded;

    fn deref(&self) -> &Recorded {
        &self.recorded
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Recorded {
    /// Adds itself to a stored update.
    ///
    /// # Errors
    /// See [`RecordedInputs::entry`].
    pub(crate) fn append_to(self, update: &mut StoredUpdate) -> Result<(), serde_json::Error> {
        if self == Self::default() {
            return Ok(());
        }
        update.add_recorded(&(Arc::new(self) as Arc<dyn RecordedInputs>))
    }

    /// Adds the recorded inputs of a task of a called graph.
    pub(crate) fn add_inner(&mut self, name: &str, mut recorded: Self) {
        for (inner, recorded) in std::mem::take(&mut recorded.inner) {
            self.inner.insert(format!("{name}{SEPARATOR}{inner}"), recorded);
        }
        self.inner.insert(name.to_owned(), recorded);
    }

    /// Returns the recorded inputs of a task of a called graph.
    pub(crate) fn inner(&self, name: &str) -> Option<Self> {
        let mut inputs = self.inner.get(name)?.clone();
        let above = format!("{name}{SEPARATOR}");
        let inner = self.inner.range(above.clone()..).take_while(|(name, _)| name.starts_with(&above));
        inputs.inner.extend(inner.map(|(name, inputs)| (name[above.len()..].to_owned(), inputs.clone())));
        Some(inputs)
    }

    /// Returns the number of an attempt after the earlier failures.
    pub(crate) fn attempt(&self, attempt: u32) -> u32 {
        u32::try_from(self.failed).unwrap_or(u32::MAX).saturating_add(attempt)
    }

    /// Returns the results of the effects of a finished task whose update is rejected by a later run than its own. They are in
    /// the update only.
    pub(crate) fn effects_of(update: &StoredUpdate) -> BTreeMap<String, RawJson> {
        // Unreadable data was not recorded by this program.
        let results = Self::of(update).unwrap_or_default().results;
        results.iter().map(|(name, value)| (name.clone(), RawJson::from(value))).collect()
    }

    /// Returns the recorded failure if `node` failed in this task: its own one, or that of an error handler behind it. Only the
    /// last failure of a task is recorded.
    pub(crate) fn failure_of(&self, topology: &Topology, node: NodeIndex) -> Option<&NodeFailure> {
        let failure = self.failure.as_deref()?;
        let mut nodes = iter::successors(Some(node), |node| topology.handler(*node));
        nodes.any(|node| *topology.name(node) == failure.node).then_some(failure)
    }

    /// Reads the recorded inputs of a stored update; empty if there are none.
    pub(crate) fn of(update: &StoredUpdate) -> Result<Self, serde_json::Error> {
        match update.split_recorded()? {
            (Some(recorded), update) => serde_json::from_value(packed::unpack(recorded, &update)?),
            (None, _) => Ok(Self::default()),
        }
    }
}

impl RecordedInputs for Recorded {
    /// Returns the entry, whose long texts refer to those of the update.
    ///
    /// # Errors
    /// If it is nested too deep to be read again.
    fn entry(&self, update: &RawJson) -> Result<Value, serde_json::Error> {
        let recorded = serde_json::to_value(self).expect("recorded inputs have a JSON form");
        let recorded = packed::pack(recorded, update);
        if encode::is_deeper(&recorded, encode::READABLE - 1) {
            return Err(serde_json::Error::custom("the task's recorded inputs are nested too deeply"));
        }
        Ok(recorded)
    }

    /// Returns whether a value is so deep that the entry might be refused. Packing may double the levels.
    fn is_doubtful(&self) -> bool {
        const LEVELS: usize = encode::READABLE / 2 - 4;
        let failure = self.failure.iter().flat_map(|failure| failure.data.iter().chain(&failure.item));
        let values = self.results.values().chain(self.compared.values()).chain(failure);
        let mut values = values.chain(self.answers.values().map(|(_, answer)| answer));
        values.any(|value| encode::is_deeper(value, LEVELS)) || self.inner.values().any(Self::is_doubtful)
    }
}

/// The inputs of a task in a replay.
#[derive(Clone, Debug)]
pub(crate) enum ReplayMode {
    /// All effects are live: there is no replay.
    Nothing,
    /// The recorded inputs; no effect is repeated.
    Recorded(Arc<ReplayInputs>),
    /// The recorded inputs, with live effects.
    Live(Arc<ReplayInputs>),
    /// The recorded inputs for a task that may differ from the recorded one: no effect is repeated, and nothing is compared.
    Adopted(Arc<ReplayInputs>),
    /// The recorded inputs are missing: as soon as the task needs one, its stored update is used instead.
    Unknown,
}

/// The recorder of a run's tasks.
#[derive(Default)]
pub(crate) struct Recorder {
    /// `true` if it records.
    pub(crate) records: bool,
    /// `true` if it is a replay.
    pub(crate) replays: bool,
    /// The results of effects that do not run, by name; for a probe.
    pub(crate) given_results: OnceLock<Arc<BTreeMap<String, Value>>>,
    pages: Mutex<Pages>,
}

#[derive(Default)]
struct Pages {
    step: i64,
    tasks: BTreeMap<u32, Page>,
}

/// The recorder's data of one task.
struct Page {
    mode: ReplayMode,
    inputs: Recorded,
    /// The number of clock and inbox reads, and the last time.
    times: usize,
    last_ms: Option<i64>,
    reads: usize,
    /// The names of effects that run once.
    once: BTreeSet<String>,
    /// The number of uses of each name, for effects and for comparisons.
    used: BTreeMap<(NamePurpose, String), usize>,
}

/// The purpose of a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NamePurpose {
    Result,
    Compared,
}

impl Default for Page {
    fn default() -> Self {
        let (mode, inputs, once) = (ReplayMode::Nothing, Recorded::default(), BTreeSet::new());
        let used = BTreeMap::new();
        Self { mode, inputs, times: 0, last_ms: None, reads: 0, once, used }
    }
}

tokio::task_local! {
    /// Set during an effect whose result is recorded: its own inputs need no record.
    static EFFECT: ();
}

/// Returns whether the caller is inside an effect whose result is recorded.
pub(crate) fn in_effect() -> bool {
    EFFECT.try_with(|()| ()).is_ok()
}

/// Runs an effect whose result is recorded. It is boxed, because effects contain graphs that contain effects.
pub(crate) fn effect<F: Future>(effect: Pin<Box<F>>) -> impl Future<Output = F::Output> {
    EFFECT.scope((), effect)
}

impl ReplayMode {
    /// Returns the recorded attempt of the task, and the remaining supersteps of its run.
    pub(crate) fn counts(&self) -> Option<(u32, u32)> {
        let (Self::Recorded(recorded) | Self::Live(recorded)) = self else { return None };
        Some((recorded.attempt(1), recorded.steps_left.unwrap_or_default()))
    }
}

impl Recorder {
    pub(crate) fn new(records: bool, replays: bool) -> Self {
        Self { records, replays, given_results: OnceLock::new(), pages: Mutex::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        (self.records || self.replays) && !in_effect()
    }

    /// Returns the given result of an effect, if it does not run.
    pub(crate) fn given_result(&self, name: &str) -> Option<&Value> {
        if in_effect() { None } else { self.given_results.get()?.get(name) }
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates an empty page of a task.
    fn blank(&self) -> Page {
        // In a replay every running task has inputs; a call without them comes from a task that is finished.
        let mode = if self.replays { ReplayMode::Unknown } else { ReplayMode::Nothing };
        Page { mode, ..Page::default() }
    }

    /// Returns the pages of the superstep of a task; `None` if there are none, as for work that outlived its
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
            if !pages.tasks.is_empty() {
                pages.tasks.clear();
            }
        }
        Some(pages)
    }

    /// Runs a function on the page of a task, which is created if it does not exist.
    fn page<T>(&self, task: TaskId, with: impl FnOnce(&mut Page) -> T) -> Option<T> {
        let mut pages = self.pages_with(task)?;
        Some(with(pages.tasks.entry(task.slot).or_insert_with(|| self.blank())))
    }

    /// Begins an attempt of a task with these inputs.
    pub(crate) fn begin(&self, task: TaskId, mode: ReplayMode) {
        let Some(mut pages) = self.pages_with(task) else { return };
        if matches!(mode, ReplayMode::Nothing) && !self.replays {
            // A page is expensive compared with many nodes, and few need one.
            pages.tasks.remove(&task.slot);
        } else {
            pages.tasks.insert(task.slot, Page { mode, ..Page::default() });
        }
    }

    /// Returns the inputs of a task.
    pub(crate) fn mode(&self, task: TaskId) -> ReplayMode {
        let late = || if self.replays && !in_effect() { ReplayMode::Unknown } else { ReplayMode::Nothing };
        let pages = self.pages_with(task);
        pages.and_then(|pages| Some(pages.tasks.get(&task.slot)?.mode.clone())).unwrap_or_else(late)
    }

    /// Returns the names of recorded data that a replayed task has not used so far.
    pub(crate) fn unused(
        &self,
        task: TaskId,
        of: impl Fn(&Recorded) -> &BTreeMap<String, Value>,
    ) -> Vec<String> {
        let unused = self.page(task, |page| match &page.mode {
            ReplayMode::Recorded(recorded) | ReplayMode::Live(recorded) | ReplayMode::Adopted(recorded) => {
                let used = of(&page.inputs);
                of(recorded).keys().filter(|name| !used.contains_key(*name)).cloned().collect()
            }
            ReplayMode::Nothing | ReplayMode::Unknown => Vec::new(),
        });
        unused.unwrap_or_default()
    }

    /// Returns the recorded failure of a node in a replayed task, for its error handler.
    pub(crate) fn failure(&self, task: TaskId, topology: &Topology, node: NodeIndex) -> Option<NodeFailure> {
        match self.mode(task) {
            ReplayMode::Recorded(recorded) | ReplayMode::Live(recorded) | ReplayMode::Adopted(recorded) => {
                recorded.failure_of(topology, node).cloned()
            }
            ReplayMode::Nothing | ReplayMode::Unknown => None,
        }
    }

    /// Returns the recorded inputs of a task, if there are any. `once` returns the results of its effects, which are stored
    /// elsewhere while it runs.
    pub(crate) fn take_inputs(
        &self,
        task: TaskId,
        once: impl FnOnce() -> BTreeMap<String, RawJson>,
    ) -> Option<Recorded> {
        let page = self.pages_with(task).and_then(|mut pages| pages.tasks.remove(&task.slot));
        let Page { mut inputs, once: done, .. } = page?;
        if done.is_empty() {
            return Some(inputs);
        }
        let once = once().into_iter().filter(|(name, _)| done.contains(name));
        inputs
            .results
            .extend(once.filter_map(|(name, json)| Some((name, serde_json::from_str(&json).ok()?))));
        // Effects that succeeded in the end.
        inputs.errors.retain(|name, _| !inputs.results.contains_key(name));
        Some(inputs)
    }

    /// Returns the unique name for a further use of the same name by a task.
    pub(crate) fn numbered(&self, task: TaskId, used: NamePurpose, name: &str) -> String {
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

    /// Adds to the recorded inputs of a task.
    pub(crate) fn record_inputs(&self, task: TaskId, record: impl FnOnce(&mut Recorded)) {
        self.page(task, |page| record(&mut page.inputs));
    }

    /// Records that a task ran an effect once.
    pub(crate) fn did_once(&self, task: TaskId, name: &str) {
        self.page(task, |page| page.once.insert(name.to_owned()));
    }

    /// Returns the time for a task: `since_ms` is that of its checkpoint.
    pub(crate) fn now_ms(&self, task: TaskId, since_ms: i64, clock: impl FnOnce() -> i64) -> Option<i64> {
        self.page(task, |page| {
            let nth = page.times;
            page.times += 1;
            let last = page.last_ms.unwrap_or(since_ms);
            let now = match &page.mode {
                ReplayMode::Recorded(recorded) | ReplayMode::Adopted(recorded) => {
                    let offset = recorded.now.iter().find(|(at, _)| *at == nth);
                    offset.map_or(last, |(_, after)| since_ms.saturating_add(*after))
                }
                ReplayMode::Unknown => last,
                ReplayMode::Nothing | ReplayMode::Live(_) => clock(),
            };
            if now != last {
                page.inputs.now.push((nth, now.saturating_sub(since_ms)));
            }
            page.last_ms = Some(now);
            now
        })
    }

    /// Returns the last item of a task's inbox read in a replay; `None` for no bound.
    pub(crate) fn inbox(&self, task: TaskId) -> Option<u64> {
        self.page(task, |page| {
            let nth = page.reads;
            page.reads += 1;
            match &page.mode {
                ReplayMode::Recorded(recorded)
                | ReplayMode::Live(recorded)
                | ReplayMode::Adopted(recorded) => {
                    Some(recorded.inbox.iter().find(|(at, _)| *at == nth).map_or(0, |(_, last)| *last))
                }
                ReplayMode::Unknown => Some(0),
                ReplayMode::Nothing => None,
            }
        })?
    }

    /// Records the last item that a task read from the inbox.
    pub(crate) fn found(&self, task: TaskId, last: u64) {
        self.page(task, |page| page.inputs.inbox.push((page.reads.saturating_sub(1), last)));
    }
}
