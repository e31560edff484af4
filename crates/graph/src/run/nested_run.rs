//! Nested runs: graphs called by tasks of other graphs.
//!
//! ```text
//! parent task ── cx.call ──▶ run of the graph, on its own thread below the parent's
//!      ▲                          │ completed: its state
//!      │                          │ failed: a NodeError with the run's error
//!      └── questions, breakpoints, cancel ◀─┘ the parent's task waits or stops likewise
//! ```
//!
//! Start at [`Cx::call`].

use std::{
    any::Any,
    borrow::Cow,
    fmt,
    future::{IntoFuture, pending},
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{Arc, atomic::Ordering},
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Either},
    task::AtomicWaker,
};
use serde_json::{Map, Value};
use superstep_checkpoint::{
    Segment, Within,
    internal::own::{BOUND, SEEDED, TASK},
};
use superstep_engine::{NodeIndex, NodeName, TaskId};
use superstep_state::Update;
use tokio::{runtime::Handle, sync::oneshot};

use crate::{
    Answers, CheckpointId, Command, CompiledGraph, Cx, Durability, NodeError, OnUnfinished, Route, RunError,
    RunOptions, State,
    journal::{
        divergence::Deviation,
        interrupts::{PendingQuestion, Refusal, WaitReason, question_within},
        outer_effects::OuterEffects,
        recorder::{effect, in_effect},
        task_origin::Origin,
    },
    node::{
        cx::RunScope,
        drain::Drain,
        nested_calls::{Book, Calls, TaskCalls, mix},
        options::Persistence,
        run_options::Breakpoints,
    },
    own_task::OwnTask,
    run::{
        nested_call::{Call, Called, OwnThread, Seen, Watch},
        nested_driver, replaying,
    },
};

/// The end of a graph called with [`GraphCall::or_left`].
#[derive(Clone, Debug)]
pub enum Returned<T, S: State, R> {
    /// The graph completed with this state.
    State(T),
    /// One of its nodes left it with this command.
    Command(Command<S, R>),
}

/// The end of a call before its type is checked.
enum CallEnd<T: State> {
    Completed {
        state: T,
        /// The updates in it, if it started with its caller's state.
        made: Vec<T::Update>,
    },
    Left(Box<dyn Any + Send + Sync>),
}

/// An invalid call.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// Two calls of one task with equal keys.
    #[error(
        "SS151: a task of node `{node}` calls under the key `{key}` twice; give each of its calls another key"
    )]
    Twice {
        /// The node.
        node: NodeName,
        /// The key.
        key: String,
    },
    /// Two tasks that call a graph with one thread.
    #[error(
        "SS152: two tasks of node `{node}` call a graph with `Persistence::PerNode` in one superstep, and \
         it has one thread for both; use `Persistence::PerTask`, or run the tasks in different supersteps"
    )]
    Shared {
        /// The node.
        node: NodeName,
    },
    /// A key that is not valid in the name of a thread.
    #[error(
        "SS153: node `{node}` calls under the key {key:?}, which has a control character; use another key"
    )]
    BadKey {
        /// The node.
        node: NodeName,
        /// The key.
        key: String,
    },
    /// A call by work that outlives its task.
    #[error(
        "SS158: node `{node}` calls under the key {key:?}, but its task is over and the run has continued; \
         wait for the call in the node"
    )]
    Over {
        /// The node.
        node: NodeName,
        /// The key.
        key: String,
    },
    /// Nested calls beyond the depth limit.
    #[error(
        "SS177: node `{node}` calls a graph inside of {limit} others; end the recursion, or raise `Thread::depth_limit`"
    )]
    TooDeep {
        /// The node.
        node: NodeName,
        /// The limit.
        limit: usize,
    },
    /// A breakpoint from which no run could continue.
    #[error(
        "SS154: the graph that node `{node}` calls has a breakpoint, but is not stored and cannot resume; \
         remove the breakpoint, or store the graph with a checkpointer and `Persistence::PerTask`"
    )]
    Breakpoint {
        /// The node.
        node: NodeName,
    },
    /// A node left the graph with a command that the caller does not accept.
    #[error(
        "SS157: the graph that node `{node}` calls was left with a command that it does not take; use \
         `add_routing_subgraph` or `GraphCall::or_left`, with the state and the routes of the command"
    )]
    Left {
        /// The calling node.
        node: NodeName,
    },
}

superstep_state::debug_by_chain!(CallError);

impl Cx {
    /// Runs a graph inside this task, and returns its state when it is complete.
    ///
    /// The graph is stored with the thread of this run, see [`Persistence`] and
    /// [`CompiledGraph::with_persistence`]; its own checkpointer is only used in direct runs. If this task
    /// runs again, the graph continues at its last checkpoint, and a completed graph does not run again. It
    /// shares this run's clock, cancel token and settings; its step limit and its concurrency limit count
    /// separately. [`RunOptions::depth_limit`] bounds the nesting of calls; the stack does not grow with it.
    /// [`GraphCall::key`] distinguishes the calls of one task.
    ///
    /// Its questions become questions of this task: the run ends with
    /// [`Status::Interrupted`](crate::Status::Interrupted), and the answer is passed to the nested task, by
    /// the id or the key of the interrupt. Several calls may run at the same time; a question of one is
    /// emitted when the others have ended or are interrupted as well.
    ///
    /// # Errors
    /// The error of the graph's run, as a [`NodeError`] whose cause is the [`RunError`](crate::RunError): a
    /// failure of one of its nodes may be retried, all others are fatal. [`CallError`].
    ///
    /// # Example
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use superstep_graph::{Cx, END, Log, NodeError, START, State, StateGraph};
    ///
    /// #[derive(State, Clone, Debug, Default)]
    /// struct Search { query: String, #[channel(append)] found: Log<String> }
    ///
    /// #[derive(State, Clone, Debug, Default)]
    /// struct Chat { #[channel(append)] log: Log<String> }
    ///
    /// let mut search = StateGraph::<Search>::new("search");
    /// let look = search.add_node("look", async |state: Search, _: Cx| Search::update().found([state.query]));
    /// search.add_edge(START, look);
    /// search.add_edge(look, END);
    /// let search = search.compile()?;
    ///
    /// let mut chat = StateGraph::<Chat>::new("chat");
    /// let ask = chat.add_node_with("ask", search, async |search, _: Chat, cx: Cx| {
    ///     let found = cx.call(&search, Search::update().query("rust".to_owned())).key("rust").await?.found;
    ///     Ok::<_, NodeError>(Chat::update().log([format!("found {}", found.len())]))
    /// });
    /// chat.add_edge(START, ask);
    /// let outcome = chat.compile()?.run(Chat::update()).await?;
    /// assert_eq!(outcome.state.log, ["found 1"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn call<'a, T: State>(&'a self, graph: &'a CompiledGraph<T>, input: T::Update) -> GraphCall<'a, T> {
        GraphCall { cx: self, graph, input, key: Cow::Borrowed(""), seed: None, watch: None }
    }

    /// Ends the graph of this node, and passes a command to its caller: an update of the caller's state, and
    /// the caller's next nodes. Other updates of this graph do not reach the caller. Never returns.
    ///
    /// The caller is the next outer graph. It accepts commands if it has this one as a [routing
    /// subgraph](crate::StateGraph::add_routing_subgraph) or calls it with [`GraphCall::or_left`]. In an
    /// outermost graph the run fails with [`RunError::NoCaller`](crate::RunError::NoCaller).
    ///
    /// ```
    /// # use superstep_graph::*;
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Chat { #[channel(append)] log: Log<String> }
    /// # #[derive(Route, Clone, Copy)]
    /// # enum Next { Human }
    /// async fn guard(_: Chat, cx: Cx) -> ChatUpdate {
    ///     cx.leave(Command::<Chat, Next>::update(Chat::update().log(["help"])).goto(Next::Human)).await
    /// }
    /// # let mut graph = StateGraph::<Chat>::new("guarded");
    /// # graph.add_node("guard", guard);
    /// ```
    pub async fn leave<S: State, R: Route, O>(&self, command: Command<S, R>) -> O {
        // Not a return value: the output of a node is typed by its own graph, and the command is one of another state
        // with other routes.
        self.wait_for([WaitReason::Left(Box::new(command))]);
        pending().await
    }

    fn command<S: State, R: Route>(
        &self,
        left: Box<dyn Any + Send + Sync>,
    ) -> Result<Command<S, R>, NodeError> {
        let command = left.downcast::<Command<S, R>>();
        command.map(|command| *command).map_err(|_| unaccepted(self))
    }

    fn prepare<T: State>(
        &self,
        key: &str,
        graph: &CompiledGraph<T>,
        input: T::Update,
        seed: Option<T>,
    ) -> Result<Call<T>, CallError> {
        let run = &*self.0.run;
        let Origin { checkpoint, slot, .. } = self.origin();
        let node = self.node_at_begin().clone();
        let task = Segment { node, task: Some((slot, checkpoint)), key: key.to_owned() };
        let own = graph.persistence() == Persistence::PerNode;
        let segment = if own { run.memories.named(&task, &run.topology, self.0.node) } else { task.clone() };
        let thread = run.scope.place.as_ref().filter(|_| graph.persistence() != Persistence::Ephemeral);
        let thread = thread.map(|(checkpointer, thread)| (checkpointer.clone(), thread.child(&segment)));
        let breakpoints = self.breakpoints();
        let stops = graph.inner().breakpoints != superstep_engine::Breakpoints::default();
        if thread.is_none() && (stops || breakpoints != Breakpoints::default()) {
            return Err(CallError::Breakpoint { node: task.node });
        }
        let (cursor, parent) = replaying::recorded_of(self, &segment, key, thread.is_none());
        let own = own.then(|| match &cursor {
            None => OwnThread::At(run.memories.begin(&segment, self.0.task.slot, (slot, checkpoint))),
            Some(_) => OwnThread::Head,
        });
        let mut metadata = Map::new();
        metadata.insert(TASK.to_owned(), Value::String(task.to_string()));
        if seed.is_some() {
            metadata.insert(SEEDED.to_owned(), Value::Bool(true));
        }
        if own.is_some() {
            metadata.insert(BOUND.to_owned(), Value::Bool(true));
        }
        let config = self.options_of_call(key, thread.is_some(), breakpoints, metadata);
        let mut path = run.scope.path.clone();
        path.0.push(segment.clone());
        let (effects, outermost) = self.effects_of_call(key, thread.is_some());
        let colon = if key.is_empty() { "" } else { ":" };
        let TaskId { step, slot } = self.first_task();
        let scope = RunScope {
            config: Arc::new(config),
            place: thread,
            store: graph.store().or(run.scope.store.as_ref()).cloned(),
            path,
            ids: format!("{}{step}.{slot}{}{colon}{key}/", run.scope.ids, self.handler()),
            keys: Some(format!("{}{colon}{key}", self.key())),
            caller: Some(Arc::new(self.as_caller(key))),
            drain: run.drain.clone(),
            heartbeat: self.0.heartbeat.clone(),
            cursor,
            supply: None,
            parent,
            effects,
            outermost,
        };
        let answers = run.interrupts.pending_answers(self.0.task, key);
        let events = run.events.as_ref().and_then(|events| events.below()).map(|(below, mut path)| {
            path.0.push(segment);
            (below, path)
        });
        let graph = graph.inner().clone();
        Ok(Call { graph, own, input, seed, answers, scope, events, watch: None })
    }

    /// Returns the options of a call: those of the caller's run, except what belongs to one graph.
    fn options_of_call(
        &self,
        key: &str,
        is_stored: bool,
        breakpoints: Breakpoints,
        metadata: Map<String, Value>,
    ) -> RunOptions {
        let run = &*self.0.run;
        RunOptions {
            // The caller may drop the graph when a sibling fails or its time is over, and nothing is stored then.
            durability: match run.scope.config.durability {
                Durability::Exit => Durability::Sync,
                durability => durability,
            },
            // A drained graph without storage would only start anew.
            drain: if is_stored { run.drain.clone() } else { Drain::new() },
            checkpoint: None,
            on_unfinished: OnUnfinished::default(),
            answers: Answers::new(),
            breakpoints,
            recording: run.recorder.records && !in_effect(),
            seed: seed_of_call(self.seed(), self.first_task(), &format!("{}{key}", self.handler())),
            metadata,
            ..(*run.scope.config).clone()
        }
    }

    /// Returns the recorded effects that a call without a thread uses, and those of the outermost caller.
    fn effects_of_call(&self, key: &str, is_stored: bool) -> (Option<OuterEffects>, Option<OuterEffects>) {
        let run = &*self.0.run;
        let effects = (!is_stored).then(|| match &run.scope.effects {
            Some(outer) => outer.inside(&self.task_name(), key),
            None => OuterEffects::of(&run.effects, self.0.task, key),
        });
        let outermost = match (&run.scope.outermost, &run.scope.caller) {
            (Some(outer), _) => Some(outer.inside(&self.task_name(), key)),
            (None, None) if is_stored => Some(OuterEffects::of(&run.effects, self.0.task, key)),
            (None, _) => None,
        };
        (effects, outermost)
    }

    /// Returns the breakpoints in graphs that this node calls.
    fn breakpoints(&self) -> Breakpoints {
        let Breakpoints { before, after } = &self.0.run.scope.config.breakpoints;
        let inner = |names: &[String]| {
            let rest =
                |name: &String| name.strip_prefix(self.node().as_str())?.strip_prefix('/').map(str::to_owned);
            names.iter().filter_map(rest).collect()
        };
        Breakpoints { before: inner(before), after: inner(after) }
    }
}

/// A call of a graph, made by [`Cx::call`]. It runs when it is awaited, and returns the state of the complete graph.
#[must_use = "a call runs when it is awaited"]
pub struct GraphCall<'a, T: State> {
    cx: &'a Cx,
    graph: &'a CompiledGraph<T>,
    input: T::Update,
    key: Cow<'a, str>,
    /// The state before the input.
    seed: Option<T>,
    watch: Option<Watch<T>>,
}

impl<'a, T: State> GraphCall<'a, T> {
    /// Distinguishes this call from the others of the task; empty by default.
    pub fn key(self, key: impl Into<Cow<'a, str>>) -> Self {
        Self { key: key.into(), ..self }
    }

    /// Reports the progress of the graph. A caller that stops waiting uses the last report.
    pub fn watch(self, watch: impl Fn(Seen<'_, T>) + Send + Sync + 'static) -> Self {
        Self { watch: Some(Arc::new(watch)), ..self }
    }

    /// Runs the graph, whose nodes may [`leave`](Cx::leave) it with a command for this one.
    ///
    /// # Errors
    /// Those of [`Cx::call`]; [`CallError::Left`] if the command is one on another state, or with other routes.
    pub async fn or_left<S: State, R: Route>(self) -> Result<Returned<T, S, R>, NodeError> {
        let cx = self.cx;
        match self.run().await? {
            CallEnd::Completed { state, .. } => Ok(Returned::State(state)),
            CallEnd::Left(command) => cx.command(command).map(Returned::Command),
        }
    }

    /// Begins with this state, of which the input is folded.
    pub(crate) fn from(self, state: T) -> Self {
        Self { seed: Some(state), ..self }
    }

    /// Runs the graph from a state, and returns what was written in it.
    pub(crate) async fn written(self) -> Result<T::Update, NodeError> {
        let cx = self.cx;
        match self.run().await? {
            CallEnd::Completed { made, .. } => Ok(joined(made)),
            CallEnd::Left(_) => Err(unaccepted(cx)),
        }
    }

    /// The same, for a graph that may be left with a command.
    pub(crate) async fn written_or_left<R: Route>(self) -> Result<Command<T, R>, NodeError> {
        let cx = self.cx;
        match self.run().await? {
            CallEnd::Completed { made, .. } => Ok(Command::update(joined(made))),
            CallEnd::Left(command) => cx.command(command),
        }
    }

    /// Runs the graph, and waits or stops with it.
    async fn run(self) -> Result<CallEnd<T>, NodeError> {
        let Self { cx, graph, input, key, seed, watch } = self;
        let key = &*key;
        let limit = cx.0.run.scope.config.depth_limit;
        if cx.path().0.len() >= limit {
            return Err(fatal(CallError::TooDeep { node: cx.node().clone(), limit }));
        }
        let at_work = RunningCall::begin(cx, key, graph.persistence()).map_err(fatal)?;
        // The thread is named after the checkpoint, and the keys of all its tasks.
        cx.settle().await;
        cx.waits("before call", key).await;
        let call = cx.prepare(key, graph, input, seed).map_err(fatal)?;
        let call = Call { watch: watch.clone(), ..call };
        if let Some(place) = replaying::seek(cx, key, &call.scope, call.own.is_some())
            && let Some(deviation) = place.await?
        {
            drop(at_work);
            return cx.deviate(deviation).await;
        }
        let is_stored = call.scope.place.is_some();
        let own = call.own.as_ref().and(call.scope.path.0.last().cloned());
        let (called, at) = called(call).await;
        cx.waits("after call", key).await;
        if let (Some(segment), Some(at)) = (own, at) {
            cx.0.run.memories.leave(&segment, at);
        }
        drop(at_work);
        match called {
            Called::Completed { state, made } => return Ok(CallEnd::Completed { state, made }),
            Called::Left(command) => return Ok(CallEnd::Left(command)),
            Called::Halted => return cx.deviate(Deviation::Unknown).await,
            Called::Failed { error, fatal, refusal } => return Err(passed_on(error, fatal, refusal)),
            Called::Asks { step, pending, refused } => {
                if is_stored {
                    cx.0.run.interrupts.drop_before(cx.0.task, key, step);
                }
                cx.wait_for(questions_within(key, step, pending, refused));
            }
            Called::Suspended => cx.wait_for([WaitReason::Breakpoint]),
            Called::Cancelled => cx.wait_for([WaitReason::Cancelled]),
            Called::Drained => cx.wait_for([WaitReason::Drained]),
        }
        if let Some(watch) = watch {
            watch(Seen::Waits);
        }
        // As with an interrupt, there is nothing that the node could catch.
        pending().await
    }
}

impl<'a, T: State> IntoFuture for GraphCall<'a, T> {
    type Output = Result<T, NodeError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let cx = self.cx;
        Box::pin(async move {
            match self.run().await? {
                CallEnd::Completed { state, .. } => Ok(state),
                CallEnd::Left(_) => Err(unaccepted(cx)),
            }
        })
    }
}

impl<T: State> fmt::Debug for GraphCall<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphCall").field("key", &self.key).finish_non_exhaustive()
    }
}

fn joined<U: Update>(made: Vec<U>) -> U {
    made.into_iter().reduce(Update::then).unwrap_or_default()
}

/// Converts the failure of a called graph to that of its caller.
fn passed_on(error: RunError, fatal: bool, refusal: bool) -> NodeError {
    let error = match &error {
        // Every graph on the path to the caller would repeat it.
        RunError::Node { source, .. } => match source.downcast_ref::<CallError>() {
            Some(deep @ CallError::TooDeep { .. }) => NodeError::new(deep.clone()),
            _ => NodeError::from(error),
        },
        _ => NodeError::from(error),
    };
    match (fatal, refusal) {
        (_, true) => error.refusal(),
        (true, false) => error.fatal(),
        (false, false) => error,
    }
}

/// Converts the questions of a called graph to those of its caller.
fn questions_within(
    key: &str,
    step: i64,
    pending: Vec<(u32, PendingQuestion)>,
    mut refused: Option<(String, Refusal)>,
) -> Vec<WaitReason> {
    let reasons = pending.into_iter().map(|(slot, question)| {
        let within = Within {
            call: key.to_owned(),
            step,
            slot,
            key: question.key,
            id: question.interrupt.id.clone(),
            node: question.interrupt.node.clone(),
        };
        let why = refused.take_if(|(id, _)| *id == within.id).map(|(_, why)| why);
        let question = question_within(question.interrupt, within);
        match why {
            Some(why) => WaitReason::Refused { question, why },
            None => WaitReason::Question(question),
        }
    });
    reasons.collect()
}

fn unaccepted(cx: &Cx) -> NodeError {
    fatal(CallError::Left { node: cx.node().clone() })
}

/// Runs a called graph: every second level as a separate task, so that the stack does not grow with the
/// depth.
async fn called<T: State>(call: Call<T>) -> (Called<T>, Option<CheckpointId>) {
    const LEVELS: usize = 2;
    // Nested graphs would otherwise form one ever larger future.
    let depth = call.scope.path.0.len();
    let run = Box::pin(nested_driver::call(call));
    if !depth.is_multiple_of(LEVELS) || Handle::try_current().is_err() {
        return run.await;
    }
    let run = if in_effect() { Either::Left(effect(run)) } else { Either::Right(run) };
    let (sender, ended) = oneshot::channel();
    // Dropped together with this future, and the graph with it.
    let _task = OwnTask::spawn(Box::pin(async move {
        // The caller may be gone.
        let _ = sender.send(AssertUnwindSafe(run).catch_unwind().await);
    }));
    match ended.await {
        Ok(Ok(called)) => called,
        Ok(Err(panic)) => resume_unwind(panic),
        // The runtime is shutting down, and drops this as well.
        Err(_) => pending().await,
    }
}

fn fatal(error: CallError) -> NodeError {
    NodeError::new(error).fatal()
}

/// Returns the base RNG seed of a called graph: the same for every attempt of the task.
fn seed_of_call(seed: u64, task: TaskId, key: &str) -> u64 {
    let task = task.step.to_le_bytes().into_iter().chain(task.slot.to_le_bytes());
    mix(seed, task.chain(key.bytes()))
}

/// A running graph, as long as this is not dropped.
struct RunningCall<'a> {
    calls: &'a Calls,
    task: TaskId,
    by: Option<(NodeIndex, u32)>,
    waker: &'a AtomicWaker,
}

impl<'a> RunningCall<'a> {
    fn begin(cx: &'a Cx, key: &str, persistence: Persistence) -> Result<Self, CallError> {
        let calls = &cx.0.run.calls;
        let (node, task) = (|| cx.node().clone(), cx.0.task);
        if key.contains(char::is_control) {
            return Err(CallError::BadKey { node: node(), key: key.to_owned() });
        }
        let mut book = calls.book();
        if task.step < book.step {
            return Err(CallError::Over { node: node(), key: key.to_owned() });
        }
        if task.step > book.step {
            *book = Book { step: task.step, ..Book::default() };
        }
        let own = book.tasks.entry(task.slot).or_default();
        let by = Some((cx.0.node, cx.0.attempt));
        if own.by != by {
            *own = TaskCalls { by, ..TaskCalls::default() };
        }
        if !own.keys.insert(key.to_owned()) {
            return Err(CallError::Twice { node: node(), key: key.to_owned() });
        }
        if persistence == Persistence::PerNode
            && *book.own.entry((node(), key.to_owned())).or_insert(task.slot) != task.slot
        {
            return Err(CallError::Shared { node: node() });
        }
        book.tasks.entry(task.slot).or_default().at_work += 1;
        calls.at_work.fetch_add(1, Ordering::AcqRel);
        Ok(Self { calls, task, by, waker: &cx.0.waker })
    }
}

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        let mut book = self.calls.book();
        if book.step == self.task.step
            && let Some(calls) = book.tasks.get_mut(&self.task.slot)
            && calls.by == self.by
        {
            calls.at_work -= 1;
        }
        self.calls.at_work.fetch_sub(1, Ordering::AcqRel);
        drop(book);
        // A question may have waited for this.
        self.waker.wake();
    }
}
