//! What a caller decides about one run.

use std::{fmt, sync::Arc, time::Duration};

use serde::ser::Error as _;
use serde_json::{Map, Value};
use superstep_checkpoint::internal::own;
use superstep_state::internal::encode;
use tokio_util::sync::CancellationToken;

use crate::{Answers, CheckpointId, Clock, Drain, RunError, SystemClock, ThreadId};

/// Defines the options of a run as methods of a type that holds a [`RunConfig`]: `$config` is the place of it in `$self`.
macro_rules! run_options {
    ($self:ident, $config:expr) => {
        /// Starts from this checkpoint, on a branch of its own, instead of from the head: see
        /// [`RunConfig::checkpoint`](crate::RunConfig::checkpoint).
        pub fn at(mut $self, checkpoint: crate::CheckpointId) -> Self {
            $config.checkpoint = Some(checkpoint);
            $self
        }

        /// Adds the answer to an interrupt, by the interrupt's id, or by its key if only one question has it. Any
        /// serializable value is an answer; one that cannot be serialized is reported when the run starts.
        pub fn answer(mut $self, interrupt: impl Into<String>, value: impl serde::Serialize) -> Self {
            $config.answers = $config.answers.answer(interrupt, value);
            $self
        }

        /// Adds several answers.
        pub fn answers(mut $self, answers: crate::Answers) -> Self {
            $config.answers.extend(answers);
            $self
        }

        /// Limits how many supersteps run nodes; at least 1.
        pub fn step_limit(mut $self, supersteps: u32) -> Self {
            $config.step_limit = supersteps;
            $self
        }

        /// Limits how deep graphs call each other; at 0 no graph calls another.
        pub fn depth_limit(mut $self, graphs: usize) -> Self {
            $config.depth_limit = graphs;
            $self
        }

        /// Limits how many tasks of a graph run at the same time; 0 counts as 1.
        pub fn max_concurrency(mut $self, tasks: usize) -> Self {
            $config.max_concurrency = Some(tasks);
            $self
        }

        /// Limits how long a superstep takes, retries included.
        pub fn step_timeout(mut $self, timeout: std::time::Duration) -> Self {
            $config.step_timeout = Some(timeout);
            $self
        }

        /// Decides about a new input while the thread has pending tasks.
        pub fn on_unfinished(mut $self, what: crate::OnUnfinished) -> Self {
            $config.on_unfinished = what;
            $self
        }

        /// Stops before any of these nodes runs; `*` is every node.
        pub fn break_before<N: Into<String>>(mut $self, nodes: impl IntoIterator<Item = N>) -> Self {
            $config.breakpoints.before.extend(nodes.into_iter().map(Into::into));
            $self
        }

        /// Stops after any of these nodes has run; `*` is every node.
        pub fn break_after<N: Into<String>>(mut $self, nodes: impl IntoIterator<Item = N>) -> Self {
            $config.breakpoints.after.extend(nodes.into_iter().map(Into::into));
            $self
        }

        /// Ends the run after its current superstep once `drain` is triggered.
        pub fn drain(mut $self, drain: crate::Drain) -> Self {
            $config.drain = drain;
            $self
        }

        /// Cancels the run once `token` is cancelled.
        pub fn cancel(mut $self, token: tokio_util::sync::CancellationToken) -> Self {
            $config.cancel = token;
            $self
        }

        /// Sets the clock of checkpoints and [`Cx::now_ms`](crate::Cx::now_ms).
        pub fn clock(mut $self, clock: impl crate::Clock + 'static) -> Self {
            $config.clock = std::sync::Arc::new(clock);
            $self
        }

        /// Sets the value that nodes read with [`Cx::context`](crate::Cx::context); it is not stored.
        pub fn context(mut $self, context: impl Into<serde_json::Value>) -> Self {
            $config.context = context.into();
            $self
        }

        /// Sets the base RNG seed of retries and [`Cx::rng`](crate::Cx::rng), which is mixed with the thread id.
        pub fn seed(mut $self, seed: u64) -> Self {
            $config.seed = seed;
            $self
        }

        /// Stores the full state with every so many supersteps; 0 counts as 1.
        pub fn snapshot_every(mut $self, supersteps: usize) -> Self {
            $config.snapshot_every = Some(supersteps);
            $self
        }

        /// Decides when the run's supersteps are stored.
        pub fn durability(mut $self, durability: crate::Durability) -> Self {
            $config.durability = durability;
            $self
        }

        /// Stores the inputs that nodes read from outside, for a [`Replay`](crate::Replay); on by default.
        pub fn recording(mut $self, on: bool) -> Self {
            $config.recording = on;
            $self
        }

        /// Adds an entry to the metadata of the input's checkpoint.
        pub fn metadata(mut $self, name: impl Into<String>, value: impl Into<serde_json::Value>) -> Self {
            $config.metadata.insert(name.into(), value.into());
            $self
        }
    };
}
pub(crate) use run_options;

/// Settings of one run.
///
/// A clone shares [`drain`](Self::drain) and [`cancel`](Self::cancel) with what it was cloned of: whoever keeps a template for many
/// runs gives each of them its own.
///
/// ```
/// # use superstep_graph::RunConfig;
/// let config = RunConfig { step_limit: 50, ..RunConfig::thread("support-17") };
/// // Another run with the same settings, which is not cancelled with the first one.
/// let other = RunConfig { cancel: Default::default(), drain: Default::default(), ..config.clone() };
/// config.cancel.cancel();
/// assert!(!other.cancel.is_cancelled());
/// ```
#[derive(Clone)]
pub struct RunConfig {
    /// The thread to run on; needed if the graph has a checkpointer.
    pub thread: Option<ThreadId>,
    /// Go on from this checkpoint, on a branch of its own, instead of from the head of the thread. Its tasks run afresh.
    ///
    /// Of the head itself that makes a branch only without answers and commands: those, and updates from outside, are for
    /// the tasks that wait there.
    pub checkpoint: Option<CheckpointId>,
    /// How many supersteps may run nodes, from 1.
    pub step_limit: u32,
    /// How deep graphs may call each other, one inside of the other: at 0 none may call another. One that calls itself without
    /// end fails with [`CallError::TooDeep`](crate::CallError::TooDeep).
    pub depth_limit: usize,
    /// How many tasks may run at the same time; `None` for all, and 0 counts as 1. Each graph that a task calls counts its own.
    pub max_concurrency: Option<usize>,
    /// How long a superstep may take, the waits between attempts included; `None` for ever. The run fails with
    /// [`RunError::StepTimeout`](crate::RunError::StepTimeout) then, and what was at work runs again when it is resumed.
    pub step_timeout: Option<Duration>,
    /// What to do with a new input if the thread still has tasks to run.
    pub on_unfinished: OnUnfinished,
    /// Answers to what the thread waits for.
    pub answers: Answers,
    /// Where to stop although the run could go on.
    pub breakpoints: Breakpoints,
    /// Ends the run after the superstep it is in; shared by clones.
    pub drain: Drain,
    /// Cancels the run; shared by clones.
    pub cancel: CancellationToken,
    /// The time, for checkpoints and [`Cx::now_ms`](crate::Cx::now_ms).
    pub clock: Arc<dyn Clock>,
    /// What nodes find with [`Cx::context`](crate::Cx::context): who asks, for whom, with which permissions. It belongs to
    /// this run and is not stored.
    pub context: Value,
    /// Where chance begins, for retries and [`Cx::rng`](crate::Cx::rng), on each thread elsewhere. Runs without a thread that
    /// have one seed have the same chance.
    pub seed: u64,
    /// Store the full state with every so many supersteps, 0 counting as 1; `None` for as rarely as pays, which is the
    /// more rarely the larger the state is. A checkpoint is loaded from the last full state before it.
    pub snapshot_every: Option<usize>,
    /// When to store what the run does.
    pub durability: Durability,
    /// Whether what nodes learn from outside is stored with what they write, so that a [`Replay`](crate::Replay) can give it to
    /// them again.
    pub recording: bool,
    /// What to remember with the input's checkpoint.
    pub metadata: Map<String, Value>,
}

/// What to do with a new input if the thread still has tasks to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnfinished {
    /// Refuse it with [`RunError::Unfinished`](crate::RunError::Unfinished).
    #[default]
    Refuse,
    /// Drop the tasks, tell so with [`Event::Discarded`](crate::Event::Discarded), and begin at `START`.
    Discard,
}

/// Nodes at which a run stops, by name; `*` is every node. A run that begins at a breakpoint passes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breakpoints {
    /// Stop before any of these runs. An error handler is in no plan, so it cannot be among them.
    pub before: Vec<String>,
    /// Stop after any of these has run.
    pub after: Vec<String>,
}

impl RunConfig {
    /// A run on this thread with everything else as usual.
    pub fn thread(id: impl Into<ThreadId>) -> Self {
        Self { thread: Some(id.into()), ..Self::default() }
    }

    run_options!(self, self);

    /// Refuses metadata that could be stored and not be read again.
    pub(crate) fn check_metadata(&self) -> Result<(), RunError> {
        let unstorable = |name: &str| {
            format!(
                "the entry `{name}` of the metadata of thread `{}`",
                self.thread.as_ref().map_or("", |it| it.as_str())
            )
        };
        for (name, value) in &self.metadata {
            if own::ALL.contains(&name.as_str()) {
                let source = serde_json::Error::custom("entries of this name are the engine's own");
                return Err(RunError::Unstorable { what: unstorable(name), source });
            }
            encode::check_depth(value)
                .map_err(|source| RunError::Unstorable { what: unstorable(name), source })?;
        }
        Ok(())
    }
}

impl Default for RunConfig {
    /// No thread, 1,000 supersteps, 1,000 graphs inside of each other, all tasks at once, the machine's clock.
    fn default() -> Self {
        Self {
            thread: None,
            checkpoint: None,
            step_limit: 1_000,
            depth_limit: 1_000,
            max_concurrency: None,
            step_timeout: None,
            on_unfinished: OnUnfinished::default(),
            answers: Answers::new(),
            breakpoints: Breakpoints::default(),
            drain: Drain::new(),
            cancel: CancellationToken::new(),
            clock: Arc::new(SystemClock),
            context: Value::Null,
            seed: 0,
            snapshot_every: None,
            durability: Durability::Sync,
            recording: true,
            metadata: Map::new(),
        }
    }
}

impl fmt::Debug for RunConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunConfig")
            .field("thread", &self.thread)
            .field("checkpoint", &self.checkpoint)
            .field("step_limit", &self.step_limit)
            .field("max_concurrency", &self.max_concurrency)
            .finish_non_exhaustive()
    }
}

/// When a run stores what it does. In every mode the input, a fork and answers are stored before the first node runs, and
/// a run that has ended, well or not, has stored all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Each superstep before the next one begins, and each task as it ends. A crash costs the tasks that were at work.
    #[default]
    Sync,
    /// The same, in the same order, while the run goes on. A crash costs what was not written yet, and those tasks run
    /// again; a write that fails ends the run.
    Async,
    /// One checkpoint when the run ends: completed, paused, cancelled or failed. It has the full state. A crash, or a run
    /// that is dropped, costs the run, which begins again from its input.
    Exit,
}
