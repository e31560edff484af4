//! A workflow that is one function.
//!
//! Start at [`Workflow`].

use std::{fmt, future::Future, marker::PhantomData};

use serde::{Serialize, de::DeserializeOwned};
use superstep_checkpoint::IntoShared;
use superstep_state::{
    JsonChannels, JsonReducer, JsonState, JsonUpdate,
    internal::encode::{to_value, to_value_of},
};

use crate::{
    CheckpointId, Checkpointer, CompiledGraph, Cx, END, NodeError, Outcome, RunError, RunOptions, START,
    StateGraph, Status, Store, Thread, ThreadId, node::run_options::run_options,
};

/// The channels of a workflow.
const INPUT: &str = "input";
const OUTPUT: &str = "output";
const SAVED: &str = "saved";

/// A workflow that is one function of its input and of the value that the last run on the thread saved.
///
/// It is a graph of one node. An effect in [`Cx::once`] is a task: its result is stored, so that a run that is resumed after
/// an interrupt, a failure or a crash calls the function again, but not the effect. Everything between effects must be
/// deterministic; [`Cx`] has the time, random numbers and ids.
///
/// `I` is the input, `O` the value that the function returns, `P` the value that it saves for the next run.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use superstep_graph::{Cx, MemoryCheckpointer, NodeError, Status, functional::Workflow};
///
/// let essay = Workflow::new("essay", async |topic: String, last: Option<String>, cx: Cx| {
///     let write = async |_key| Ok::<_, NodeError>(format!("an essay about {topic}"));
///     let essay: String = cx.once("write", write).await?;
///     let is_good: bool = cx.interrupt("approve", &essay).await;
///     Ok::<_, NodeError>(if is_good { essay } else { last.unwrap_or_default() })
/// });
/// let thread = essay.with_checkpointer(MemoryCheckpointer::new()).thread("t");
///
/// let asks = thread.run("cats").await?;
/// assert_eq!((asks.status, asks.state), (Status::Interrupted, None));
/// let end = thread.answer("approve", true).resume().await?;
/// assert_eq!(end.state.as_deref(), Some("an essay about cats"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Workflow<I, O, P = O> {
    graph: CompiledGraph<JsonState>,
    types: PhantomData<fn(I, P) -> O>,
}

impl<I, O> Workflow<I, O>
where
    I: Serialize + DeserializeOwned + Send + 'static,
    O: Serialize + DeserializeOwned + Send + 'static,
{
    /// Creates a workflow whose returned value is also the one that it saves.
    ///
    /// # Errors
    /// An error of `run` is a failure of the workflow's only node, which [`WorkflowThread::run`] returns as [`RunError::Node`].
    pub fn new<F, Fut, E>(name: impl Into<String>, run: F) -> Self
    where
        F: Fn(I, Option<O>, Cx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        E: Into<NodeError>,
    {
        Self::of(name.into(), move |input, saved, cx| {
            let run = run(input, saved, cx);
            async move {
                let output = run.await.map_err(Into::into)?;
                let output = to_value_of(&output).map_err(refuse)?;
                Ok(JsonUpdate::new().write(SAVED, output.clone()).write(OUTPUT, output))
            }
        })
    }
}

impl<I, O, P> Workflow<I, O, P>
where
    I: Serialize + DeserializeOwned + Send + 'static,
    O: Serialize + DeserializeOwned + Send + 'static,
    P: Serialize + DeserializeOwned + Send + 'static,
{
    /// Creates a workflow that returns one value and saves another one.
    ///
    /// # Errors
    /// Like those of [`new`](Workflow::new).
    pub fn saving<F, Fut, E>(name: impl Into<String>, run: F) -> Self
    where
        F: Fn(I, Option<P>, Cx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(O, P), E>> + Send + 'static,
        E: Into<NodeError>,
    {
        Self::of(name.into(), move |input, saved, cx| {
            let run = run(input, saved, cx);
            async move {
                let (output, saved) = run.await.map_err(Into::into)?;
                let [output, saved] = [to_value_of(&output), to_value_of(&saved)];
                Ok(JsonUpdate::new()
                    .write(SAVED, saved.map_err(refuse)?)
                    .write(OUTPUT, output.map_err(refuse)?))
            }
        })
    }

    fn of<F, Fut>(name: String, run: F) -> Self
    where
        F: Fn(I, Option<P>, Cx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<JsonUpdate, NodeError>> + Send + 'static,
    {
        let channels = [INPUT, OUTPUT, SAVED];
        let channels = channels
            .into_iter()
            .fold(JsonChannels::new(), |channels, channel| channels.with(channel, JsonReducer::LastValue));
        let initial = JsonState::new(&channels).expect("three channels of one kind");
        let mut graph = StateGraph::with_initial(name, initial);
        let node = graph.add_node("workflow", move |state: JsonState, cx| {
            let saved = state.get(SAVED).map(|_| read(&state, SAVED)).transpose();
            let run = saved.and_then(|saved| Ok(run(read(&state, INPUT)?, saved, cx)));
            async move { run?.await }
        });
        graph.add_edge(START, node);
        graph.add_edge(node, END);
        let graph = graph.compile().expect("one node between the start and the end");
        Self { graph, types: PhantomData }
    }

    /// Returns the same workflow with its threads stored in `checkpointer`.
    #[must_use]
    pub fn with_checkpointer(self, checkpointer: impl IntoShared<dyn Checkpointer>) -> Self {
        Self { graph: self.graph.with_checkpointer(checkpointer), ..self }
    }

    /// Returns the same workflow with `store` for data shared by its threads.
    #[must_use]
    pub fn with_store(self, store: impl IntoShared<dyn Store>) -> Self {
        Self { graph: self.graph.with_store(store), ..self }
    }

    /// Returns the graph of the workflow, for streams, histories, replays and calls from other graphs. Its state has the
    /// channels `input`, `output` and `saved`.
    pub fn graph(&self) -> &CompiledGraph<JsonState> {
        &self.graph
    }

    /// Returns a handle to the thread with this id, which need not exist yet.
    #[must_use = "a handle does nothing until one of its operations runs"]
    pub fn thread(&self, id: impl Into<ThreadId>) -> WorkflowThread<I, O> {
        WorkflowThread { thread: self.graph.thread(id), types: PhantomData }
    }

    /// Runs the workflow without a thread: nothing is stored, and nothing was saved before.
    ///
    /// # Errors
    /// Those of [`WorkflowThread::run`].
    pub async fn run(&self, input: impl Into<I>) -> Result<Outcome<Option<O>>, RunError> {
        WorkflowThread { thread: self.graph.without_thread(), types: PhantomData }.run(input).await
    }
}

impl<I, O, P> Clone for Workflow<I, O, P> {
    fn clone(&self) -> Self {
        Self { graph: self.graph.clone(), types: PhantomData }
    }
}

impl<I, O, P> fmt::Debug for Workflow<I, O, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workflow").field("graph", &self.graph).finish()
    }
}

/// A thread of a [`Workflow`], with the options of runs that start from this handle.
pub struct WorkflowThread<I, O> {
    thread: Thread<JsonState>,
    types: PhantomData<fn(I) -> O>,
}

impl<I: Serialize, O: DeserializeOwned> WorkflowThread<I, O> {
    run_options!(self, &self);

    fn with(&self, change: impl FnOnce(&mut RunOptions)) -> Self {
        Self { thread: self.thread.with(change), types: PhantomData }
    }

    /// Runs the workflow. [`Outcome::state`] is the value that the function returned; `None` if it did not return.
    ///
    /// # Errors
    /// Those of [`Thread::run`]. Stored values that are not of the workflow's types are a fatal error of its node.
    pub async fn run(&self, input: impl Into<I>) -> Result<Outcome<Option<O>>, RunError> {
        let encode = |source| {
            let (node, channel) = (superstep_engine::START.into(), Some(INPUT.into()));
            RunError::Encode { node, channel, step: -1, source }
        };
        let input = to_value(&input.into()).map_err(encode)?;
        self.end(self.thread.run(JsonUpdate::new().write(INPUT, input)).await?)
    }

    /// Continues a run that was interrupted, cancelled or failed, with the answers given by [`answer`](Self::answer).
    ///
    /// # Errors
    /// Those of [`Thread::resume`].
    pub async fn resume(&self) -> Result<Outcome<Option<O>>, RunError> {
        self.end(self.thread.resume().await?)
    }

    fn end(&self, outcome: Outcome<JsonState>) -> Result<Outcome<Option<O>>, RunError> {
        let Outcome { state, status, checkpoint, interrupts, drained } = outcome;
        let unfit = |source: serde_json::Error| RunError::Decode {
            thread: self.thread.id().cloned().unwrap_or_else(|| "none".into()),
            checkpoint: checkpoint.unwrap_or(CheckpointId(0)),
            what: format!("channel `{OUTPUT}`"),
            source: source.into(),
        };
        let state =
            (status == Status::Completed).then(|| value(&state, OUTPUT)).transpose().map_err(unfit)?;
        Ok(Outcome { state, status, checkpoint, interrupts, drained })
    }
}

impl<I, O> Clone for WorkflowThread<I, O> {
    fn clone(&self) -> Self {
        Self { thread: self.thread.clone(), types: PhantomData }
    }
}

impl<I, O> fmt::Debug for WorkflowThread<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowThread").field("thread", &self.thread).finish()
    }
}

/// Reads a channel; one without a value is `null`.
fn value<T: DeserializeOwned>(state: &JsonState, channel: &str) -> serde_json::Result<T> {
    T::deserialize(state.get(channel).unwrap_or_default())
}

/// Reads a channel of a task's state.
fn read<T: DeserializeOwned>(state: &JsonState, channel: &str) -> Result<T, NodeError> {
    value(state, channel).map_err(|error| {
        NodeError::new(format!("the channel `{channel}` has another type than the workflow: {error}")).fatal()
    })
}

fn refuse(error: serde_json::Error) -> NodeError {
    NodeError::new(format!("the returned value cannot be stored: {error}")).fatal()
}
