//! Runs of a thread, as callers begin them.
//!
//! Start at [`Thread::run`].

use crate::{
    Command, CompiledGraph, Outcome, RunError, RunStream, State, Streaming, Thread,
    run::{begin::RunInput, root_run},
};

impl<S: State> CompiledGraph<S> {
    /// Runs the graph on `input` from `START` to its end, without a thread and with the default options. Use
    /// [`without_thread`](Self::without_thread) to set options, and [`thread`](Self::thread) to store the run.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # use superstep_graph::{END, START, State, StateGraph};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Draft { words: usize }
    /// # let mut graph = StateGraph::<Draft>::new("draft");
    /// # let write = graph.add_node("write", async |draft: Draft, _| Draft::update().words(draft.words + 40));
    /// # graph.add_edge(START, write);
    /// # graph.add_edge(write, END);
    /// let graph = graph.compile()?;
    /// assert_eq!(graph.run(Draft::update().words(2)).await?.state.words, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Thread::run`], and [`RunError::NoThread`] if the graph has a checkpointer.
    pub fn run<I: Into<S::Update>>(
        &self,
        input: I,
    ) -> impl Future<Output = Result<Outcome<S>, RunError>> + Send + use<S, I> {
        self.without_thread().run(input)
    }

    /// Like [`run`](Self::run), as a stream of events.
    pub fn stream(&self, input: impl Into<S::Update>, streaming: impl Into<Streaming>) -> RunStream<S> {
        self.without_thread().stream(input, streaming)
    }
}

impl<S: State> Thread<S> {
    /// Folds `input` into the thread's state and runs the graph from `START` to its end. The input is an update of the
    /// state, or an [`Input`](derive@crate::Input): a part of one.
    ///
    /// # Errors
    /// [`RunError`]. The thread stays at its last completed superstep, from which [`resume`](Self::resume) continues. A
    /// thread of another graph is refused with [`RunError::OtherGraph`]: see [`adopt`](Self::adopt).
    pub fn run<I: Into<S::Update>>(
        &self,
        input: I,
    ) -> impl Future<Output = Result<Outcome<S>, RunError>> + Send + use<S, I> {
        self.drive(RunInput::Input(input.into()))
    }

    /// Runs the thread's pending tasks, with the answers given by [`answer`](Self::answer). A finished thread stays as it
    /// is.
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and [`RunError::EmptyThread`] if the thread never ran.
    pub fn resume(&self) -> impl Future<Output = Result<Outcome<S>, RunError>> + Send + use<S> {
        self.drive(RunInput::Nothing)
    }

    /// Folds the command's update, then runs the nodes that it names beside the thread's pending tasks. On a finished
    /// thread they run alone.
    ///
    /// Both are stored as a checkpoint before anything runs. Answers are given as with [`resume`](Self::resume); tasks that
    /// finished before their superstep did are folded first, as by [`update`](Self::update).
    ///
    /// ```no_run
    /// # use superstep_graph::{Command, CompiledGraph, RunError, State};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Chat { turns: i64 }
    /// # async fn review(graph: CompiledGraph<Chat>) -> Result<(), RunError> {
    /// let command = Command::update(Chat::update().turns(0)).goto("review");
    /// graph.thread("support-17").resume_with(command).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`resume`](Self::resume), and [`RunError::UnknownNode`] or [`RunError::NoWayIn`] for a target that cannot
    /// be reached; nothing is stored then.
    pub fn resume_with(
        &self,
        command: Command<S, &str>,
    ) -> impl Future<Output = Result<Outcome<S>, RunError>> + Send + use<S> {
        self.drive(RunInput::Command(command.by_name()))
    }

    /// Like [`run`](Self::run), as a stream of events. A list of modes suffices for most streams; [`Streaming`] has the
    /// rest.
    pub fn stream(&self, input: impl Into<S::Update>, streaming: impl Into<Streaming>) -> RunStream<S> {
        self.drive_stream(RunInput::Input(input.into()), streaming.into())
    }

    /// Like [`resume`](Self::resume), as a stream of events.
    pub fn resume_stream(&self, streaming: impl Into<Streaming>) -> RunStream<S> {
        self.drive_stream(RunInput::Nothing, streaming.into())
    }

    /// Like [`resume_with`](Self::resume_with), as a stream of events.
    pub fn resume_stream_with(
        &self,
        command: Command<S, &str>,
        streaming: impl Into<Streaming>,
    ) -> RunStream<S> {
        self.drive_stream(RunInput::Command(command.by_name()), streaming.into())
    }

    /// The run does not borrow the handle, so that it can be spawned.
    pub(super) fn drive(
        &self,
        run_input: RunInput<S>,
    ) -> impl Future<Output = Result<Outcome<S>, RunError>> + Send + use<S> {
        let CompiledGraph { inner, backends, .. } = self.graph.clone();
        root_run::run(inner, backends, run_input, self.options.clone(), None)
    }

    pub(super) fn drive_stream(&self, run_input: RunInput<S>, streaming: Streaming) -> RunStream<S> {
        let CompiledGraph { inner, backends, .. } = self.graph.clone();
        let config = self.options.clone();
        RunStream::new(streaming, move |events| {
            root_run::run(inner, backends, run_input, config, Some(events))
        })
    }
}
