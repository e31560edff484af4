//! The agent in the shapes of other designs: their names, their arguments, what they return.
//!
//! Each is an [`Agent`] with a preset and nothing more; it runs the same graph as every other.

pub mod agentscope;
pub mod cococat;
pub mod harness;
pub mod opencode;

use std::{io, path::PathBuf, time::Duration};

use futures::StreamExt;
use serde_json::Value;
use superstep_graph::{
    Event, Interrupt, Outcome, RunConfig, RunError, RunStream, Status, StreamMode, Streaming,
};
use superstep_llm::ModelError;
use tokio_util::sync::CancellationToken;

use crate::{
    Agent, AgentBuilder, AgentError, AgentOutcome, AgentState, AgentStateUpdate, Exhausted, HookFailure,
    ModelFailure, ReactConfig,
};

/// Why a facade has nothing to return.
///
/// The thread, if there is one, stands where the turn broke off: [`Agent::resume`] asks the model again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FacadeError {
    /// The agent cannot be built.
    #[error("the agent cannot be built")]
    Build(#[from] AgentError),
    /// The graph failed.
    #[error("the run failed")]
    Run(#[from] RunError),
    /// The model could not be asked, and the configuration says [`Exhausted::Fail`].
    #[error("the model could not be asked")]
    Model(#[from] ModelError),
    /// A hook failed, or panicked.
    #[error("a hook of the program failed")]
    Hook(#[from] HookFailure),
    /// A tool failed, and the configuration says [`ToolErrors::Fail`](crate::ToolErrors::Fail).
    #[error("{0}")]
    Tool(String),
    /// The folder that the turn is to work in cannot be used. Nothing has begun.
    #[error("cannot work in the folder `{}`; name another one as `cwd`", .folder.display())]
    Folder {
        /// The folder, as it was named.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A callback of the program failed.
    #[error("the callback `{name}` failed")]
    Callback {
        /// Its name.
        name: &'static str,
        /// Why.
        source: crate::HookError,
    },
    /// The turn is not over: calls wait to be approved, or the run was drained.
    #[error("the turn is not over, {} of its calls wait to be approved; resume its thread", .interrupts.len())]
    Unfinished {
        /// What is asked.
        interrupts: Vec<Interrupt>,
    },
}

/// A turn that goes on while its events are told.
pub(crate) struct Turn {
    fails: bool,
    stream: RunStream<AgentState>,
    cancel: CancellationToken,
}

/// An agent whose failures are errors where its configuration wants that.
#[derive(Clone)]
pub(crate) struct Facade {
    pub(crate) agent: Agent,
    fails: bool,
}

impl Facade {
    /// With this preset, if the builder was given no configuration.
    pub(crate) fn new(mut builder: AgentBuilder, preset: fn() -> ReactConfig) -> Result<Self, AgentError> {
        let fails = builder.config.get_or_insert_with(preset).exhausted == Exhausted::Fail;
        Ok(Self { agent: builder.build()?, fails })
    }

    /// Runs a turn to its end.
    pub(crate) async fn run(
        &self,
        input: AgentStateUpdate,
        config: RunConfig,
    ) -> Result<AgentState, FacadeError> {
        let config = self.agent.with_room(config);
        ended(self.agent.graph().invoke(input, config).await?, self.fails)
    }

    /// Begins a turn whose events are wanted.
    pub(crate) fn begin(&self, input: AgentStateUpdate, config: RunConfig) -> Turn {
        let streaming = Streaming { buffer: 1 << 20, ..StreamMode::Custom.into() };
        let cancel = config.cancel.clone();
        let stream = self.agent.graph().stream(input, self.agent.with_room(config), streaming);
        Turn { fails: self.fails, stream, cancel }
    }
}

impl Turn {
    /// The next event; `None` when the turn is over.
    pub(crate) async fn next(&mut self) -> Option<(&'static str, Value)> {
        loop {
            if let Event::Custom { name, data, .. } = self.stream.next().await? {
                return Some((name, data));
            }
        }
    }

    /// What came of it.
    pub(crate) async fn end(self) -> Result<AgentState, FacadeError> {
        ended(self.stream.outcome().await?, self.fails)
    }

    /// Cancels it and waits until every call is answered.
    pub(crate) async fn break_off(self) -> Result<(), FacadeError> {
        self.cancel.cancel();
        self.end().await.map(|_| ())
    }
}

/// The state at the end of a turn, or why there is none; `fails` says whether a model that cannot be asked is an error.
fn ended(end: Outcome<AgentState>, fails: bool) -> Result<AgentState, FacadeError> {
    if end.status != Status::Completed {
        return Err(FacadeError::Unfinished { interrupts: end.interrupts });
    }
    let mut state = end.state;
    match state.outcome {
        Some(AgentOutcome::HookFailed) => match state.hook_error.take() {
            Some(failure) => Err(failure.into()),
            None => Ok(state),
        },
        Some(AgentOutcome::ToolFailed) => Err(FacadeError::Tool(state.final_reply)),
        Some(AgentOutcome::LlmError) if fails => match state.error.take() {
            Some(failure) => Err(ModelError::from(failure).into()),
            None => Ok(state),
        },
        _ => Ok(state),
    }
}

impl From<ModelFailure> for ModelError {
    fn from(failure: ModelFailure) -> Self {
        let ModelFailure { kind, status, message, retry_after_ms, .. } = failure;
        Self { status, retry_after: retry_after_ms.map(Duration::from_millis), ..Self::new(kind, message) }
    }
}
