//! The caller's settings of one run.

use std::{fmt, sync::Arc, time::Duration};

use serde::ser::Error as _;
use serde_json::{Map, Value};
use superstep_checkpoint::internal::own;
use superstep_state::internal::encode;
use tokio_util::sync::CancellationToken;

use crate::{Answers, CheckpointId, Clock, Drain, RunError, SystemClock, ThreadId};

/// Defines the options of a run as methods of a type that holds a [`RunConfig`]: `$config` is the place of it in `$self`.
#[doc(hidden)]
#[macro_export]
macro_rules! run_options {
    ($self:ident, $config:expr) => {
        /// Starts from this checkpoint, on a branch of its own, instead of from the head; its tasks run afresh. `None` is
        /// the head.
        ///
        /// The head's own checkpoint starts a branch only without answers and commands: those, and external updates, are for
        /// the tasks that wait there.
        #[must_use = "a handle does nothing until one of its operations runs"]
        pub fn at(mut $self, checkpoint: impl Into<Option<$crate::CheckpointId>>) -> Self {
            $config.checkpoint = checkpoint.into();
            $self
        }

        /// Adds the answer to an interrupt, by the interrupt's id, or by its key if that is unique. Any
        /// serializable value is an answer; one that cannot be serialized is reported when the run starts.
        #[must_use = "a handle does nothing until one of its operations runs"]
        pub fn answer(mut $self, interrupt: impl Into<String>, value: impl $crate::__private::serde::Serialize) -> Self {
            $config.answers.add(interrupt, value);
            $self
        }

        /// Adds several answers.
        #[must_use = "a handle does nothing until one of its operations runs"]
        pub fn answers(mut $self, answers: $crate::Answers) -> Self {
            $config.answers.extend(answers);
            $self
        }

        /// Limits how many supersteps run nodes; at least 1.
        #[must_use = "a handle does nothing until one of its operations runs"]
        pub fn step_limit(mut $self, supersteps: u32) -> Self {
            $config.step_limit = supersteps;
            $self
        }

        /// Limits how deep graphs call each other; at 0 no graph calls another.
        #[must_use = "a handle does nothing until one of its operations runs"]
        pub fn depth_limit(mut $self, graphs: usize) -> Self {
            $config.depth_limit = graphs;
            $self
        }

        /// Limits how many tasks of a graph run at the same time; 0 counts as 1, `None` is no limit. Each graph that a task
        /// calls counts its own.
        #[must_use = "a handle does nothing until one of its operations runs"]
        pub fn max_concurrency(mut $self, tasks: impl Into<Option<usize>>) -> Self {
            $config.max_concurrency = tasks.into();
            $self
        }

        /// Limits how long a superstep takes, with the waits between attempts; `None` is no limit. The run fails with
        /// `RunError::StepTimeout` then, and its unfinished tasks run again when it is
        /// resumed.
        #[must_use = "a handle does nothing until one of its operations runs"]
        pub fn step_timeout(mut $self, timeout: impl Into<Option<std::time::Duration>>) -> Self {
            $config.step_timeout = timeout.into();
            $self
        }

        /// Decides about a new input while the thread has pending tasks.
        #[must_use = "a handle does nothing until one of its operations runs"]
        pub fn on_unfinished(mut $self, what: $crate::OnUnfinished) -> Self {
            $config.on_unfinished = what;
            $self
        }

        /// Stops before any of these nodes runs; `*` is every node.
        #[must_use = "a handle does nothing until one of its operations runs"]
        pub fn break_before<N: Into<String>>(mut $self, nodes: impl IntoIterator<Item = N>) -> Self {
            $config.breakpoints.before.extend(nodes.into_iter().map(Into::into));
            $self
        }

        /// Stops after any of these nodes has run; `*` is every node.
        #[must_use = "a handle does nothing until one of its operations runs"]
        pub fn break_after<N: Into<String>>(mut $self, nodes: impl IntoIterator<Item = N>) -> Self {
            $config.breakpoints.after.extend(nodes.into_iter().map(Into::into));
            $self
        }

        /// Ends the run after its current superstep once `drain` is triggered.
        #[must_use = "a handle does nothing until one of its operations runs"]
        pub fn drain(mut $self, drain: $crate::Drain) -> Self {
            $config.drain = drain;
            $self
        }

        /// Cancels the run once `token` is cancelled.
        #[must_use = "a handle does nothing until one of its operations runs"]
        pub fn cancel(mut $self, token: $crate::__private::CancellationToken) -> Self {
            $config.cancel = token;
            $self
        }

        /// Sets the clock of checkpoints and `Cx::now_ms`.
        #[must_use = "a handle does nothing until one of its operations runs"]
        pub fn clock(mut $self, clock: impl $crate::IntoShared<dyn $crate::Clock>) -> Self {
            $config.clock = clock.into_shared();
            $self
        }

        /// Sets the value that nodes read with `Cx::context`, of the type that they expect, or a map like it. It is not
        /// stored.
        ///
        /// # Panics
        /// If `context` has no JSON form.
        #[must_use = "a handle does nothing until one of its operations runs"]
        pub fn context(mut $self, context: impl $crate::__private::serde::Serialize) -> Self {
            $config.context =
                $crate::__private::serde_json::to_value(context).expect("a context has a JSON form");
            $self
        }

        /// Sets the base RNG seed of retries and `Cx::rng`, which is mixed with the thread id.
        #[must_use = "a handle does nothing until one of its operations runs"]
        pub fn seed(mut $self, seed: u64) -> Self {
            $config.seed = seed;
            $self
        }

        /// Stores the full state with every so many supersteps; 0 counts as 1. By default, or for `None`, the more rarely the
        /// larger the state is. A checkpoint is loaded from the last full state before it.
        #[must_use = "a handle does nothing until one of its operations runs"]
        pub fn snapshot_every(mut $self, supersteps: impl Into<Option<usize>>) -> Self {
            $config.snapshot_every = supersteps.into();
            $self
        }

        /// Decides when the run's supersteps are stored.
        #[must_use = "a handle does nothing until one of its operations runs"]
        pub fn durability(mut $self, durability: $crate::Durability) -> Self {
            $config.durability = durability;
            $self
        }

        /// Stores the inputs that nodes read from outside, for a `Replay`; on by default.
        #[must_use = "a handle does nothing until one of its operations runs"]
        pub fn recording(mut $self, on: bool) -> Self {
            $config.recording = on;
            $self
        }

        /// Adds an entry to the metadata of the input's checkpoint.
        #[must_use = "a handle does nothing until one of its operations runs"]
        pub fn metadata(mut $self, name: impl Into<String>, value: impl Into<$crate::__private::serde_json::Value>) -> Self {
            $config.metadata.insert(name.into(), value.into());
            $self
        }
    };
}
/// Settings of one run.
///
/// A clone shares [`drain`](Self::drain) and [`cancel`](Self::cancel) with its original: if one value is a
/// template for many runs, set both for each of them.
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
    /// The thread of the run; required if the graph has a checkpointer.
    pub thread: Option<ThreadId>,
    /// Continue from this checkpoint, on a new branch, instead of from the head of the thread. Its tasks run
    /// afresh.
    ///
    /// The head itself is forked only without answers and commands: those, and external updates, apply to its
    /// pending tasks.
    pub checkpoint: Option<CheckpointId>,
    /// The maximum number of supersteps that run nodes, counted from 1.
    pub step_limit: u32,
    /// The maximum nesting of called graphs: at 0 no graph may call another. Endless recursion fails with
    /// [`CallError::TooDeep`](crate::CallError::TooDeep).
    pub depth_limit: usize,
    /// The maximum number of concurrent tasks; `None` for no limit, and 0 counts as 1. Each called graph
    /// counts its own.
    pub max_concurrency: Option<usize>,
    /// The time limit of a superstep, including delays between attempts; `None` for no limit. The run then
    /// fails with [`RunError::StepTimeout`](crate::RunError::StepTimeout), and the unfinished tasks run again
    /// when it is resumed.
    pub step_timeout: Option<Duration>,
    /// The treatment of a new input on a thread with pending tasks.
    pub on_unfinished: OnUnfinished,
    /// The answers to pending questions.
    pub answers: Answers,
    /// The breakpoints at which the run stops.
    pub breakpoints: Breakpoints,
    /// Ends the run after its current superstep; shared by clones.
    pub drain: Drain,
    /// Cancels the run; shared by clones.
    pub cancel: CancellationToken,
    /// The clock of checkpoints and [`Cx::now_ms`](crate::Cx::now_ms).
    pub clock: Arc<dyn Clock>,
    /// The value of [`Cx::context`](crate::Cx::context): the user, tenant or permissions of this run. It is
    /// not stored.
    pub context: Value,
    /// The base RNG seed, for retries and [`Cx::rng`](crate::Cx::rng), mixed with the thread id. Runs without
    /// a thread that have equal seeds draw equal numbers.
    pub seed: u64,
    /// The number of supersteps between full states, 0 counting as 1; `None` for an adaptive interval, which
    /// grows with the size of the state. A checkpoint is loaded from the last full state before it.
    pub snapshot_every: Option<usize>,
    /// The time at which the run's results are stored.
    pub durability: Durability,
    /// `true` to store the external inputs of nodes with their updates, for a [`Replay`](crate::Replay).
    pub recording: bool,
    /// The metadata of the input's checkpoint.
    pub metadata: Map<String, Value>,
}

/// The treatment of a new input on a thread with pending tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnfinished {
    /// Reject it with [`RunError::Unfinished`](crate::RunError::Unfinished).
    #[default]
    Refuse,
    /// Drop the tasks, emit [`Event::Discarded`](crate::Event::Discarded), and start at `START`.
    Discard,
}

/// Nodes at which a run stops, by name; `*` is every node. A run that starts at a breakpoint passes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breakpoints {
    /// The nodes before which it stops. An error handler is never planned, so it cannot be among them.
    pub before: Vec<String>,
    /// The nodes after which it stops.
    pub after: Vec<String>,
}

impl RunConfig {
    /// Creates the settings of a run on this thread, with defaults.
    pub fn thread(id: impl Into<ThreadId>) -> Self {
        Self { thread: Some(id.into()), ..Self::default() }
    }

    crate::run_options!(self, self);

    /// Rejects metadata that could be stored but not read back.
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
    /// Creates settings without a thread, with 1,000 supersteps, 1,000 nested graphs, unlimited concurrency
    /// and the machine's clock.
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

/// The time at which a run stores its results. In every mode the input, a fork and answers are stored before
/// the first node runs, and all results are stored when a run has ended, successfully or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Each superstep is stored before the next one starts, and each task as it ends. A crash loses only
    /// running tasks.
    #[default]
    Sync,
    /// The same writes in the same order, while the run continues. A crash loses unfinished writes, whose
    /// tasks run again; a failed write ends the run.
    Async,
    /// One checkpoint with the full state when the run ends: completed, paused, cancelled or failed. A crash,
    /// or a dropped run, loses the run, which starts again from its input.
    Exit,
}
