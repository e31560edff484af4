//! The common part of all facades: a turn whose failures are errors.
//!
//! Start at [`Facade`].

use std::{io, path::PathBuf, time::Duration};

use futures::StreamExt;
use serde_json::Value;
use superstep_graph::{
    Event, Interrupt, Outcome, RunError, RunOptions, RunStream, Status, StreamMode, Streaming,
};
use superstep_llm::ModelError;
use tokio_util::sync::CancellationToken;

use crate::{
    Agent, AgentBuilder, AgentError, AgentOutcome, AgentState, ReactConfig,
    config::Exhausted,
    deps::folder::FolderError,
    state::{AgentStateUpdate, HookFailure, ModelFailure},
};

/// The error of a facade.
///
/// The thread, if there is one, stays where the turn broke off: [`AgentThread::resume`](crate::AgentThread::resume) calls the model again.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum FacadeError {
    /// The agent cannot be built.
    #[error("the agent cannot be built")]
    Build(#[from] AgentError),
    /// The graph failed.
    #[error("the run failed")]
    Run(#[from] RunError),
    /// The model is unavailable, and the configuration has [`Exhausted::Fail`].
    #[error("the model call failed")]
    Model(#[from] ModelError),
    /// A hook failed, or panicked.
    #[error("a hook of the program failed")]
    Hook(#[from] HookFailure),
    /// A tool failed, and the configuration has [`ToolErrors::Fail`](crate::config::ToolErrors::Fail).
    #[error("{0}")]
    Tool(String),
    /// The folder of the turn is not usable. Nothing has begun.
    #[error("cannot work in the folder `{}`; name another one as `cwd`", .folder.display())]
    Folder {
        /// The given path.
        folder: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A callback of the program failed.
    #[error("the callback `{name}` failed")]
    Callback {
        /// The name of the callback.
        name: &'static str,
        /// The cause.
        source: crate::hooks::HookError,
    },
    /// The turn has not ended: calls require approval, or the run was drained.
    #[error("the turn is not over, {} of its calls wait to be approved; resume its thread", .interrupts.len())]
    Unfinished {
        /// The pending interrupts.
        interrupts: Vec<Interrupt>,
    },
}

superstep_graph::__private::debug_by_chain!(FacadeError);

/// A running turn whose events are consumed.
pub(crate) struct Turn {
    fails: bool,
    stream: RunStream<AgentState>,
    cancel: CancellationToken,
}

/// An agent whose failures are errors where its configuration requires it.
#[derive(Clone)]
pub(crate) struct Facade {
    pub(crate) agent: Agent,
    fails: bool,
}

impl Facade {
    /// Builds the agent with this preset, unless the builder has a configuration.
    pub(crate) fn new(mut builder: AgentBuilder, preset: fn() -> ReactConfig) -> Result<Self, AgentError> {
        let fails = builder.config.get_or_insert_with(preset).exhausted == Exhausted::Fail;
        Ok(Self { agent: builder.build()?, fails })
    }

    /// Runs a turn to its end, without the schema that an abandoned turn leaves behind.
    pub(crate) async fn run(
        &self,
        input: AgentStateUpdate,
        options: RunOptions,
    ) -> Result<AgentState, FacadeError> {
        ended(self.agent.configured(options).run(input.output_schema(None)).await?, self.fails)
    }

    /// Does the same with an event stream.
    pub(crate) fn begin(&self, input: AgentStateUpdate, options: RunOptions) -> Turn {
        let streaming = Streaming::from(StreamMode::Custom).buffer(1 << 20);
        let cancel = options.get_cancel().clone();
        let stream = self.agent.configured(options).stream(input.output_schema(None), streaming);
        Turn { fails: self.fails, stream, cancel }
    }
}

impl Turn {
    /// Returns the next event; `None` when the turn has ended.
    pub(crate) async fn next(&mut self) -> Option<(&'static str, Value)> {
        loop {
            if let Event::Custom { name, data, .. } = self.stream.next().await? {
                return Some((name, data));
            }
        }
    }

    pub(crate) async fn end(self) -> Result<AgentState, FacadeError> {
        ended(self.stream.outcome().await?, self.fails)
    }

    /// Cancels the turn and waits until every call is answered.
    pub(crate) async fn break_off(self) -> Result<(), FacadeError> {
        self.cancel.cancel();
        self.end().await.map(|_| ())
    }
}

/// Returns the state at the end of a turn, or the error; `fails` makes an unavailable model an error.
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

impl From<FolderError> for FacadeError {
    fn from(error: FolderError) -> Self {
        let FolderError { folder, source } = error;
        Self::Folder { folder, source }
    }
}
