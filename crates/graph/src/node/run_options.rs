//! The options of a run.
//!
//! Start at [`RunOptions`].

use std::{fmt, sync::Arc, time::Duration};

use serde::ser::Error as _;
use serde_json::{Map, Value};
use superstep_checkpoint::{Clock, SystemClock, internal::own};
use superstep_state::internal::encode;
use tokio_util::sync::CancellationToken;

use crate::{
    Answers, CheckpointId, RunError, ThreadId,
    node::{before_write::BeforeWrite, call_observer::CxObserver, drain::Drain},
};

/// Defines the options of a run as methods of a type whose function `with` changes a [`RunOptions`].
macro_rules! run_options {
    ($self:ident, $($receiver:tt)+) => {
        /// Starts from this checkpoint instead of from the head, on a separate branch; the tasks of the checkpoint run
        /// again. `None` is the head.
        ///
        /// The checkpoint of the head starts a branch only if the run has no input, no answers and no command. Those, and
        /// external updates, are for the tasks that wait there.
        #[must_use = "the options take effect when something runs with them"]
        pub fn at($($receiver)+, checkpoint: impl Into<Option<crate::CheckpointId>>) -> Self {
            $self.with(|options| options.checkpoint = checkpoint.into())
        }

        /// Adds the answer to an interrupt, by the interrupt's id, or by its key if that is unique. Any
        /// serializable value is an answer; one that cannot be serialized is reported when the run starts.
        #[must_use = "the options take effect when something runs with them"]
        pub fn answer($($receiver)+, interrupt: impl Into<String>, value: impl serde::Serialize) -> Self {
            $self.with(|options| options.answers.add(interrupt, value))
        }

        /// Adds several answers.
        #[must_use = "the options take effect when something runs with them"]
        pub fn answers($($receiver)+, answers: crate::Answers) -> Self {
            $self.with(|options| options.answers.extend(answers))
        }

        /// Limits how many supersteps run nodes; at least 1.
        #[must_use = "the options take effect when something runs with them"]
        pub fn step_limit($($receiver)+, supersteps: u32) -> Self {
            $self.with(|options| options.step_limit = supersteps)
        }

        /// Limits how deep graphs call each other; at 0 no graph calls another.
        #[must_use = "the options take effect when something runs with them"]
        pub fn depth_limit($($receiver)+, graphs: usize) -> Self {
            $self.with(|options| options.depth_limit = graphs)
        }

        /// Limits how many tasks of a graph run at the same time; 0 counts as 1, `None` is no limit. Each graph that a task
        /// calls counts its own.
        #[must_use = "the options take effect when something runs with them"]
        pub fn max_concurrency($($receiver)+, tasks: impl Into<Option<usize>>) -> Self {
            $self.with(|options| options.max_concurrency = tasks.into())
        }

        /// Limits how long a superstep takes, with the waits between attempts; `None` is no limit. The run fails with
        /// `RunError::StepTimeout` then, and its unfinished tasks run again when it is
        /// resumed.
        #[must_use = "the options take effect when something runs with them"]
        pub fn step_timeout($($receiver)+, timeout: impl Into<Option<std::time::Duration>>) -> Self {
            $self.with(|options| options.step_timeout = timeout.into())
        }

        /// Decides about a new input while the thread has pending tasks.
        #[must_use = "the options take effect when something runs with them"]
        pub fn on_unfinished($($receiver)+, what: crate::OnUnfinished) -> Self {
            $self.with(|options| options.on_unfinished = what)
        }

        /// Decides about a new input if the thread is stored already, finished or not. The decision is atomic among all tasks and
        /// processes, by the thread's lease: while one of them runs the thread, the others are refused as busy.
        ///
        /// Use it if the name of the thread stands for the work, such as an order, and [`input_id`](Self::input_id) if a thread takes
        /// many inputs, each of which may be repeated.
        ///
        /// ```
        /// # use superstep_graph::{CompiledGraph, END, MemoryCheckpointer, OnExisting, START, State, StateGraph};
        /// # #[derive(State, Clone, Debug, Default)]
        /// # struct Order { #[channel(sum)] charged: i64 }
        /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
        /// # let mut graph = StateGraph::<Order>::new("order");
        /// # let charge = graph.add_node("charge", async |_, _| Order::update().charged(5));
        /// # graph.add_edge(START, charge);
        /// # graph.add_edge(charge, END);
        /// # let graph = graph.compile()?.with_checkpointer(MemoryCheckpointer::new());
        /// let order = graph.thread("order-17").on_existing(OnExisting::Resume);
        /// order.run(Order::update()).await?;
        /// assert_eq!(order.run(Order::update()).await?.state.charged, 5);
        /// assert!(order.on_existing(OnExisting::Refuse).run(Order::update()).await.is_err());
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// # })?;
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[must_use = "the options take effect when something runs with them"]
        pub fn on_existing($($receiver)+, what: crate::OnExisting) -> Self {
            $self.with(|options| options.on_existing = what)
        }

        /// Stops before any of these nodes runs; `*` is every node. An error handler is never planned, so it cannot be among them.
        #[must_use = "the options take effect when something runs with them"]
        pub fn break_before<N: Into<String>>($($receiver)+, nodes: impl IntoIterator<Item = N>) -> Self {
            $self.with(|options| options.breakpoints.before.extend(nodes.into_iter().map(Into::into)))
        }

        /// Stops after any of these nodes has run; `*` is every node.
        #[must_use = "the options take effect when something runs with them"]
        pub fn break_after<N: Into<String>>($($receiver)+, nodes: impl IntoIterator<Item = N>) -> Self {
            $self.with(|options| options.breakpoints.after.extend(nodes.into_iter().map(Into::into)))
        }

        /// Ends the run after its current superstep once `drain` is triggered.
        #[must_use = "the options take effect when something runs with them"]
        pub fn drain($($receiver)+, drain: crate::node::drain::Drain) -> Self {
            $self.with(|options| options.drain = drain)
        }

        /// Cancels the run once `token` is cancelled.
        #[must_use = "the options take effect when something runs with them"]
        pub fn cancel($($receiver)+, token: tokio_util::sync::CancellationToken) -> Self {
            $self.with(|options| options.cancel = token)
        }

        /// Sets the clock of checkpoints and `Cx::now_ms`.
        #[must_use = "the options take effect when something runs with them"]
        pub fn clock($($receiver)+, clock: impl superstep_checkpoint::IntoShared<dyn superstep_checkpoint::Clock>) -> Self {
            $self.with(|options| options.clock = clock.into_shared())
        }

        /// Sets the value that nodes read with `Cx::context`, of the type that they expect, or a map like it. It is not
        /// stored.
        ///
        /// # Panics
        /// If `context` has no JSON form.
        #[must_use = "the options take effect when something runs with them"]
        pub fn context($($receiver)+, context: impl serde::Serialize) -> Self {
            $self.with(|options| options.context =
                serde_json::to_value(context).expect("a context has a JSON form"))
        }

        /// Sets the base RNG seed of retries and `Cx::rng`, which is mixed with the thread id.
        #[must_use = "the options take effect when something runs with them"]
        pub fn seed($($receiver)+, seed: u64) -> Self {
            $self.with(|options| options.seed = seed)
        }

        /// Stores the full state with every so many supersteps; 0 counts as 1. By default, or for `None`, the more rarely the
        /// larger the state is. A checkpoint is loaded from the last full state before it.
        #[must_use = "the options take effect when something runs with them"]
        pub fn snapshot_every($($receiver)+, supersteps: impl Into<Option<usize>>) -> Self {
            $self.with(|options| options.snapshot_every = supersteps.into())
        }

        /// Decides when the run's supersteps are stored.
        #[must_use = "the options take effect when something runs with them"]
        pub fn durability($($receiver)+, durability: crate::Durability) -> Self {
            $self.with(|options| options.durability = durability)
        }

        /// Stores the inputs that nodes read from outside, for a `Replay`; on by default.
        #[must_use = "the options take effect when something runs with them"]
        pub fn recording($($receiver)+, on: bool) -> Self {
            $self.with(|options| options.recording = on)
        }

        /// Sets the id of the input, under which the thread accepts it once: a run with the id of an accepted input resumes the thread
        /// instead, even if that input is on another branch. So a request that may be repeated, because its answer was lost, does
        /// no harm. A prune retains the ids of the last 64 deleted inputs. No effect on a run from an older checkpoint than the
        /// head, which does not store the id, or without a thread.
        ///
        /// ```
        /// # use superstep_graph::{CompiledGraph, END, MemoryCheckpointer, START, State, StateGraph};
        /// # #[derive(State, Clone, Debug, Default)]
        /// # struct Account { #[channel(sum)] balance: i64 }
        /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
        /// # let mut graph = StateGraph::<Account>::new("account");
        /// # let book = graph.add_node("book", async |_, _| Account::update());
        /// # graph.add_edge(START, book);
        /// # graph.add_edge(book, END);
        /// # let graph = graph.compile()?.with_checkpointer(MemoryCheckpointer::new());
        /// let payment = graph.thread("ada").input_id("payment-17");
        /// payment.run(Account::update().balance(5)).await?;
        /// let repeated = payment.run(Account::update().balance(5)).await?;
        /// assert_eq!(repeated.state.balance, 5);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// # })?;
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[must_use = "the options take effect when something runs with them"]
        pub fn input_id($($receiver)+, id: impl Into<String>) -> Self {
            $self.with(|options| options.input_id = Some(id.into()))
        }

        /// Decides whether a resume retries an end that [failed](crate::StateGraph::failed_end): from the last checkpoint on its
        /// branch at which the declared node was next. The same applies to a run whose input was accepted already. No effect
        /// with answers, or from another checkpoint than the head. `false` by default.
        #[must_use = "the options take effect when something runs with them"]
        pub fn retry_failed_end($($receiver)+, on: bool) -> Self {
            $self.with(|options| options.retry_failed_end = on)
        }

        /// Adds an entry to the metadata of the input's checkpoint; of a resumed run, to that of its first checkpoint.
        #[must_use = "the options take effect when something runs with them"]
        pub fn metadata($($receiver)+, name: impl Into<String>, value: impl Into<serde_json::Value>) -> Self {
            $self.with(|options| drop(options.metadata.insert(name.into(), value.into())))
        }
    };
}

pub(crate) use run_options;

/// The options of runs that a facade, a dream or a simulator starts, on a thread or without one.
///
/// A program that starts the run itself sets the same options on the handle of its [thread](crate::Thread).
/// A clone shares [`drain`](Self::drain) and [`cancel`](Self::cancel) with its original.
///
/// ```
/// # use superstep_graph::{CompiledGraph, Outcome, RunError, RunOptions, State};
/// # async fn example<S: State>(graph: CompiledGraph<S>, input: S::Update) -> Result<Outcome<S>, RunError> {
/// let options = RunOptions::new().thread("support-17").step_limit(50);
/// graph.configured(options).run(input).await
/// # }
/// ```
#[derive(Clone)]
pub struct RunOptions {
    pub(crate) thread: Option<ThreadId>,
    pub(crate) checkpoint: Option<CheckpointId>,
    pub(crate) step_limit: u32,
    pub(crate) depth_limit: usize,
    pub(crate) max_concurrency: Option<usize>,
    pub(crate) step_timeout: Option<Duration>,
    pub(crate) on_unfinished: OnUnfinished,
    pub(crate) on_existing: OnExisting,
    pub(crate) answers: Answers,
    pub(crate) breakpoints: Breakpoints,
    pub(crate) drain: Drain,
    pub(crate) cancel: CancellationToken,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) context: Value,
    pub(crate) seed: u64,
    pub(crate) snapshot_every: Option<usize>,
    pub(crate) durability: Durability,
    pub(crate) recording: bool,
    pub(crate) input_id: Option<String>,
    pub(crate) retry_failed_end: bool,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) call_observer: Option<Arc<dyn CxObserver>>,
    pub(crate) before_write: Option<Arc<BeforeWrite>>,
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

/// The treatment of a new input on a thread that is stored already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExisting {
    /// Accept it as the thread's next one, if the thread is finished; see [`OnUnfinished`].
    #[default]
    Accept,
    /// Reject it with [`CheckpointError::ThreadExists`](crate::checkpoint::CheckpointError::ThreadExists).
    Refuse,
    /// Drop it, run the pending tasks, if any, and return the outcome of the thread as it is then, as
    /// [`resume`](crate::Thread::resume) does.
    Resume,
}

/// Nodes at which a run stops, by name; `*` is every node. A run that starts at a breakpoint passes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Breakpoints {
    pub(crate) before: Vec<String>,
    pub(crate) after: Vec<String>,
}

impl RunOptions {
    /// Creates the default options, without a thread: 1,000 supersteps, 1,000 nested graphs, unlimited concurrency and the
    /// machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the thread of the run; required if the graph has a checkpointer.
    #[must_use = "the options take effect when something runs with them"]
    pub fn thread(self, id: impl Into<ThreadId>) -> Self {
        Self { thread: Some(id.into()), ..self }
    }

    run_options!(self, self);

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Sets an observer of the nodes' calls of `Cx`, which may delay or stop them. Graphs that nodes call have the same one.
    #[must_use = "the options take effect when something runs with them"]
    pub fn observe_calls(self, observer: Arc<dyn CxObserver>) -> Self {
        Self { call_observer: Some(observer), ..self }
    }

    /// Sets a function that runs before each write of results to the thread. The stream of the run then has the events of those results
    /// when the function is called, and not only after the write: a log that the function completes has the events of everything
    /// that the thread has. Graphs that nodes call have the same one.
    #[must_use = "the options take effect when something runs with them"]
    pub fn before_writes(self, prepare: Arc<BeforeWrite>) -> Self {
        Self { before_write: Some(prepare), ..self }
    }

    /// Returns the options for another thread, or for none: without the start checkpoint, the id of the input, the decision about an
    /// existing thread, answers and breakpoints, which belong to the former one. The metadata remains.
    #[must_use]
    pub fn for_other_thread(self, thread: Option<ThreadId>) -> Self {
        let (answers, breakpoints) = (Answers::new(), Breakpoints::default());
        let on_existing = OnExisting::default();
        Self { thread, checkpoint: None, answers, breakpoints, input_id: None, on_existing, ..self }
    }

    /// Returns the thread of the run.
    pub fn get_thread(&self) -> Option<&ThreadId> {
        self.thread.as_ref()
    }

    /// Returns the clock of the run.
    pub fn get_clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Returns the token that cancels the run.
    pub fn get_cancel(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Returns the value that nodes read with `Cx::context`; by default `null`.
    pub fn get_context(&self) -> &Value {
        &self.context
    }

    /// Returns the time at which the run's supersteps are stored.
    pub fn get_durability(&self) -> Durability {
        self.durability
    }

    /// Rejects metadata that could be stored but not read back.
    pub(crate) fn check_metadata(&self) -> Result<(), RunError> {
        let unstorable = |name: &str| {
            format!(
                "the entry `{name}` of the metadata of thread `{}`",
                self.thread.as_ref().map_or("", |it| it.as_str())
            )
        };
        for (name, value) in &self.metadata {
            if own::is_own(name) {
                let source = serde_json::Error::custom("entries of this name are the engine's own");
                return Err(RunError::Unstorable { what: unstorable(name), source });
            }
            encode::check_depth(value)
                .map_err(|source| RunError::Unstorable { what: unstorable(name), source })?;
        }
        Ok(())
    }
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            thread: None,
            checkpoint: None,
            step_limit: 1_000,
            depth_limit: 1_000,
            max_concurrency: None,
            step_timeout: None,
            on_unfinished: OnUnfinished::default(),
            on_existing: OnExisting::default(),
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
            input_id: None,
            retry_failed_end: false,
            metadata: Map::new(),
            call_observer: None,
            before_write: None,
        }
    }
}

impl fmt::Debug for RunOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOptions")
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
    /// or a dropped run, loses the run, which starts again from its input. Called graphs are stored as with `Sync`.
    Exit,
}
