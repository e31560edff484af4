//! Runs, as callers begin them.
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
    /// [`RunError`]. The thread stands where its last superstep ended, and [`resume`](Self::resume) goes on from there. A
    /// thread that another graph began is refused with [`RunError::OtherGraph`], see [`adopt_thread`](Self::adopt_thread).
    pub async fn invoke(&self, input: S::Update, config: RunConfig) -> Result<Outcome<S>, RunError> {
        driver::run(self.inner.clone(), self.keepers.clone(), Given::Input(input), config, None).await
    }

    /// Goes on with what the thread has still to run. A finished thread stays as it is.
    ///
    /// # Errors
    /// Those of [`invoke`](Self::invoke), and [`RunError::EmptyThread`] if the thread never ran.
    pub async fn resume(&self, config: RunConfig) -> Result<Outcome<S>, RunError> {
        driver::run(self.inner.clone(), self.keepers.clone(), Given::Nothing, config, None).await
    }

    /// Changes the thread from outside and goes on: the command's update is folded first, and the nodes that it names run
    /// beside what the thread has still to run. On a thread that is finished they run alone.
    ///
    /// Both is stored as a checkpoint before anything runs. [`RunConfig::answers`] are given as with
    /// [`resume`](Self::resume); tasks that finished before their superstep did are taken along, as by
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
    /// Those of [`resume`](Self::resume), and [`RunError::UnknownNode`] or [`RunError::NoWayIn`] if the command leads
    /// where it cannot. Nothing is stored then.
    pub async fn resume_with(
        &self,
        command: Command<S, &str>,
        config: RunConfig,
    ) -> Result<Outcome<S>, RunError> {
        let command = Given::Command(command.by_name());
        driver::run(self.inner.clone(), self.keepers.clone(), command, config, None).await
    }

    /// Like [`invoke`](Self::invoke), telling what happens as it happens.
    ///
    /// A list of modes says enough for most; [`Streaming`] has the rest.
    pub fn stream(
        &self,
        input: S::Update,
        config: RunConfig,
        streaming: impl Into<Streaming>,
    ) -> RunStream<S> {
        self.stream_run(Given::Input(input), config, streaming.into())
    }

    /// Like [`resume`](Self::resume), telling what happens as it happens.
    pub fn stream_resume(&self, config: RunConfig, streaming: impl Into<Streaming>) -> RunStream<S> {
        self.stream_run(Given::Nothing, config, streaming.into())
    }

    /// Like [`resume_with`](Self::resume_with), telling what happens as it happens.
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
