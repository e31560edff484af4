//! Runs, as callers start them.
//!
//! Start at [`CompiledGraph::invoke`].

use crate::{
    Command, CompiledGraph, RunConfig, RunError, RunStream, State, Streaming,
    run::driver::{self, Given},
    stream::outcome::Outcome,
};

impl<S: State> CompiledGraph<S> {
    /// Folds `input` into the state of the thread and runs the graph from `START` to its end.
    ///
    /// # Errors
    /// [`RunError`]. The thread then remains at its last committed superstep, from which
    /// [`resume`](Self::resume) continues. A thread of another graph is rejected with
    /// [`RunError::OtherGraph`], see [`adopt_thread`](Self::adopt_thread).
    pub async fn invoke(&self, input: S::Update, config: RunConfig) -> Result<Outcome<S>, RunError> {
        driver::run(self.inner.clone(), self.keepers.clone(), Given::Input(input), config, None).await
    }

    /// Runs the thread's pending tasks. A finished thread is not changed.
    ///
    /// # Errors
    /// Those of [`invoke`](Self::invoke), and [`RunError::EmptyThread`] if the thread never ran.
    pub async fn resume(&self, config: RunConfig) -> Result<Outcome<S>, RunError> {
        driver::run(self.inner.clone(), self.keepers.clone(), Given::Nothing, config, None).await
    }

    /// Applies an external command and continues: the command's update is folded first, and its target nodes
    /// run together with the pending tasks. On a finished thread they run alone.
    ///
    /// Both are stored as a checkpoint before any node runs. [`RunConfig::answers`] work as with
    /// [`resume`](Self::resume); finished tasks of an incomplete superstep are included, as by
    /// [`update_state`](Self::update_state).
    ///
    /// ```no_run
    /// # use superstep_graph::{Command, CompiledGraph, RunConfig, RunError, State};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Chat { turns: i64 }
    /// # async fn review(graph: CompiledGraph<Chat>) -> Result<(), RunError> {
    /// let command = Command::update(Chat::update().turns(0)).goto("review");
    /// graph.resume_with(command, RunConfig::thread("support-17")).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`resume`](Self::resume), and [`RunError::UnknownNode`] or [`RunError::NoWayIn`] if the
    /// command has an invalid target. The thread is then unchanged.
    pub async fn resume_with(
        &self,
        command: Command<S, &str>,
        config: RunConfig,
    ) -> Result<Outcome<S>, RunError> {
        let command = Given::Command(command.by_name());
        driver::run(self.inner.clone(), self.keepers.clone(), command, config, None).await
    }

    /// Like [`invoke`](Self::invoke), with a stream of events.
    ///
    /// A list of modes is usually enough; [`Streaming`] has further settings.
    pub fn stream(
        &self,
        input: S::Update,
        config: RunConfig,
        streaming: impl Into<Streaming>,
    ) -> RunStream<S> {
        self.stream_run(Given::Input(input), config, streaming.into())
    }

    /// Like [`resume`](Self::resume), with a stream of events.
    pub fn stream_resume(&self, config: RunConfig, streaming: impl Into<Streaming>) -> RunStream<S> {
        self.stream_run(Given::Nothing, config, streaming.into())
    }

    /// Like [`resume_with`](Self::resume_with), with a stream of events.
    pub fn stream_resume_with(
        &self,
        command: Command<S, &str>,
        config: RunConfig,
        streaming: impl Into<Streaming>,
    ) -> RunStream<S> {
        self.stream_run(Given::Command(command.by_name()), config, streaming.into())
    }

    fn stream_run(&self, given: Given<S>, config: RunConfig, streaming: Streaming) -> RunStream<S> {
        let (inner, keepers) = (self.inner.clone(), self.keepers.clone());
        RunStream::new(streaming, move |events| driver::run(inner, keepers, given, config, Some(events)))
    }
}
