//! One simulated process, with its waits and crashes.

use std::{
    collections::BTreeMap,
    fmt,
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Context,
    time::Duration,
};

use futures::{future::BoxFuture, task::AtomicWaker};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use superstep_graph::{
    ThreadId,
    checkpoint::CheckpointError,
    probe::{CxCall, CxObserver},
};
use tokio::time::sleep;

use super::{Passes, ledger::Ledger};

/// The maximum wait of a node or of the store, on the simulated clock. Short, so that many end at the same
/// time.
const MAX_WAIT_MS: u64 = 8;

/// A simulated process, for what is around the nodes of a graph: [models](Self::model), [tools](Self::tool) and
/// [external effects](Self::effect). Nodes themselves need nothing of it: it stops at their calls of `Cx`.
#[derive(Clone)]
pub struct Sim(Arc<Process>);

struct Process {
    fate: Mutex<SeedDecisions>,
    /// The failed attempts of each request of a model in this process.
    attempts: Mutex<BTreeMap<u64, u32>>,
    /// The waker of the task that drops the run when the process crashes.
    watcher: AtomicWaker,
}

/// A place where a process may crash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CrashPoint {
    /// In a node: at its beginning, at its end, or at a call of `Cx`.
    Node(String),
    /// In a tool of [`Sim::tool`], before its call.
    BeforeTool(String),
    /// In a tool of [`Sim::tool`], after its effect and before its result.
    AfterTool(String),
    /// The store fails, and the process ends with the error: a record of a task.
    RecordFails {
        /// The superstep of the task.
        step: i64,
        /// The slot of the task.
        slot: u32,
        /// `true` if it was written nevertheless.
        written: bool,
    },
    /// The store fails, and the process ends with the error: a commit.
    CommitFails {
        /// The superstep.
        step: i64,
        /// `true` if it was written nevertheless.
        written: bool,
    },
    /// The place before a finished or failed task is recorded.
    BeforeRecord {
        /// The superstep of the task.
        step: i64,
        /// The slot of the task.
        slot: u32,
    },
    /// The place after it is recorded.
    AfterRecord {
        /// The superstep of the task.
        step: i64,
        /// The slot of the task.
        slot: u32,
    },
    /// The place before a superstep, or an input, is committed.
    BeforeCommit {
        /// The superstep.
        step: i64,
    },
    /// The place after it is committed.
    AfterCommit {
        /// The superstep.
        step: i64,
    },
    /// A place in a subgraph.
    Subgraph {
        /// The path to it.
        path: String,
        /// The place in it.
        place: Box<CrashPoint>,
    },
}

impl CrashPoint {
    /// Returns the place in the subgraph of this thread.
    pub(super) fn on(self, thread: &ThreadId) -> Self {
        if !thread.is_child() {
            return self;
        }
        Self::Subgraph { path: thread.path().to_string(), place: Box::new(self) }
    }
}

impl fmt::Display for CrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(at) => write!(f, "in node {at}"),
            Self::BeforeTool(tool) => write!(f, "before the effect of tool `{tool}`"),
            Self::AfterTool(tool) => write!(f, "after the effect of tool `{tool}`"),
            Self::RecordFails { step, slot, written } => {
                let how = if *written { "was written" } else { "was not written" };
                write!(f, "with an error of the record of task {slot} of superstep {step}, which {how}")
            }
            Self::CommitFails { step, written } => {
                let how = if *written { "was written" } else { "was not written" };
                write!(f, "with an error of the commit of superstep {step}, which {how}")
            }
            Self::BeforeRecord { step, slot } => {
                write!(f, "before the record of task {slot} of superstep {step}")
            }
            Self::AfterRecord { step, slot } => {
                write!(f, "after the record of task {slot} of superstep {step}")
            }
            Self::BeforeCommit { step } => write!(f, "before the commit of superstep {step}"),
            Self::AfterCommit { step } => write!(f, "after the commit of superstep {step}"),
            Self::Subgraph { path, place } => write!(f, "in subgraph `{path}`, {place}"),
        }
    }
}

impl Sim {
    pub(super) fn new(fate: SeedDecisions) -> Self {
        let (fate, attempts) = (Mutex::new(fate), Mutex::default());
        Self(Arc::new(Process { fate, attempts, watcher: AtomicWaker::new() }))
    }

    /// Returns the seed of this life of the thread; `None` in runs without crashes. For data that a test records
    /// outside, shared by all lives.
    pub fn seed(&self) -> Option<u64> {
        self.fate().seed
    }

    /// Records that a side effect of [`Cx::once`](superstep_graph::Cx::once) starts, with its key. The
    /// simulation fails if its result was already stored. Before that it may be repeated, because of a crash
    /// in between.
    pub fn effect(&self, idempotency_key: &str) {
        self.fate().ledger.effect(idempotency_key);
    }

    pub(super) async fn pass(&self, place: CrashPoint) {
        let wait = self.fate().wait();
        if !wait.is_zero() {
            sleep(wait).await;
        }
        if self.fate().stops_at(place) {
            self.0.watcher.wake();
            pending::<()>().await;
        }
    }

    /// Fails at a place of the store, if the seed says so: the run ends with the error, and with it the process.
    pub(super) fn fails(&self, place: CrashPoint) -> Result<(), CheckpointError> {
        let mut fate = self.fate();
        if fate.stopped.is_some() || !fate.happens(place.clone()) {
            return Ok(());
        }
        let what = format!("the process ends {place}");
        fate.failed = Some(place);
        Err(CheckpointError::Storage { what, source: None })
    }

    /// Returns the number of failed attempts of a request of a model, with this one.
    pub(super) fn attempt(&self, request: u64) -> u32 {
        let mut attempts = self.0.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let attempt = attempts.entry(request).or_default();
        *attempt += 1;
        *attempt
    }

    /// Returns whether the process has crashed; if not, registers the waker for the crash.
    pub(super) fn has_stopped(&self, context: &Context<'_>) -> bool {
        self.0.watcher.register(context.waker());
        self.fate().stopped.is_some()
    }

    pub(super) fn fate(&self) -> MutexGuard<'_, SeedDecisions> {
        self.0.fate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the fate for the next process. No remaining part of this one can continue.
    pub(super) fn end(&self) -> SeedDecisions {
        let mut fate = self.fate();
        let after = SeedDecisions {
            seed: fate.seed,
            chance: fate.chance.take(),
            crashes: fate.crashes,
            stopped: None,
            failed: None,
            faults: fate.faults,
            has_faults: fate.has_faults,
            places: std::mem::take(&mut fate.places),
            ledger: std::mem::take(&mut fate.ledger),
        };
        fate.stopped.get_or_insert_with(|| CrashPoint::Node("a process that is over".to_owned()));
        after
    }
}

impl CxObserver for Sim {
    /// Stops the process at the next place where the node waits.
    fn passes(&self, at: CxCall<'_>) {
        if self.fate().stops_at(CrashPoint::Node(at.to_string())) {
            self.0.watcher.wake();
        }
    }

    fn waits(&self, at: CxCall<'_>) -> BoxFuture<'static, ()> {
        let (sim, at) = (self.clone(), CrashPoint::Node(at.to_string()));
        Box::pin(async move { sim.pass(at).await })
    }
}

/// The random decisions of a seed for a thread, across processes.
pub(super) struct SeedDecisions {
    seed: Option<u64>,
    /// The generator; `None` in a plain run.
    chance: Option<StdRng>,
    crashes: Crashes,
    pub(super) stopped: Option<CrashPoint>,
    /// The last error of the store.
    pub(super) failed: Option<CrashPoint>,
    /// The seed of the faults of models and tools. A call has the same faults in every process.
    pub(super) faults: Option<u64>,
    /// `true` if the graph has models or tools that fail, which changes its course.
    pub(super) has_faults: bool,
    pub(super) places: BTreeMap<CrashPoint, Passes>,
    pub(super) ledger: Ledger,
}

#[derive(Clone, Copy)]
enum Crashes {
    None,
    /// One crash, after this number of places.
    After(u64),
    /// A crash at each place with this probability, while crashes are left.
    Often {
        odds: f64,
        left: u32,
    },
}

impl Crashes {
    /// Creates about `times` crashes in a run that passes `places`; more, because places repeat after each crash.
    /// Their number is limited, so that wide supersteps finish.
    fn often(times: u32, places: u64) -> Self {
        let odds = f64::from(times) / places.max(1) as f64;
        Self::Often { odds: odds.min(0.25), left: times * 3 }
    }
}

impl SeedDecisions {
    /// Creates a fate without waits and crashes.
    pub(super) fn plain() -> Self {
        Self::new(None, Crashes::None)
    }

    /// Creates a fate without waits and crashes, with the faults of a seed.
    pub(super) fn with_faults_of(seed: u64) -> Self {
        Self { faults: Some(seed), ..Self::plain() }
    }

    /// Creates the fate of a seed. A plain run passes `places` places.
    pub(super) fn of(seed: u64, places: u64) -> Self {
        let mut chance = StdRng::seed_from_u64(seed);
        let crashes = match seed % 4 {
            0 => Crashes::None,
            1 => Crashes::After(chance.random_range(0..places.max(1))),
            2 => Crashes::often(3, places),
            _ => Crashes::often(6, places),
        };
        Self { seed: Some(seed), faults: Some(seed), ..Self::new(Some(chance), crashes) }
    }

    fn new(chance: Option<StdRng>, crashes: Crashes) -> Self {
        Self {
            seed: None,
            chance,
            crashes,
            stopped: None,
            failed: None,
            faults: None,
            has_faults: false,
            places: BTreeMap::new(),
            ledger: Ledger::default(),
        }
    }

    /// Takes some of `all`, at least one; all of them in a plain run.
    pub(super) fn some_of<T>(&mut self, mut all: Vec<T>) -> Vec<T> {
        let Some(chance) = self.chance.as_mut().filter(|_| !all.is_empty()) else { return all };
        let first = chance.random_range(0..all.len());
        let first = all.swap_remove(first);
        all.retain(|_| chance.random_bool(0.5));
        all.push(first);
        all
    }

    fn wait(&mut self) -> Duration {
        let wait = self.chance.as_mut().map_or(0, |chance| chance.random_range(0..=MAX_WAIT_MS));
        Duration::from_millis(wait)
    }

    fn stops_at(&mut self, place: CrashPoint) -> bool {
        if self.stopped.is_some() {
            return true;
        }
        let crash = self.happens(place.clone());
        self.stopped = crash.then_some(place);
        crash
    }

    /// Draws whether a crash or an error of the store happens at a place.
    fn happens(&mut self, place: CrashPoint) -> bool {
        let crash = match (&mut self.crashes, &mut self.chance) {
            (Crashes::Often { odds, left }, Some(chance)) if *left > 0 => {
                let crash = chance.random_bool(*odds);
                *left -= u32::from(crash);
                crash
            }
            (Crashes::After(0), _) => {
                self.crashes = Crashes::None;
                true
            }
            (Crashes::After(places), _) => {
                *places -= 1;
                false
            }
            (Crashes::None | Crashes::Often { .. }, _) => false,
        };
        let passes = self.places.entry(place).or_default();
        passes.passed += 1;
        passes.crashed += u64::from(crash);
        crash
    }
}
