//! The facade of the preset `harness`: a loop with callbacks, a whole history in and out.
//!
//! Start at [`AgentLoop`].

use std::{error::Error, future::Future, io, path::Path, sync::Arc};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use superstep_graph::{
    RunOptions, State,
    state::{Merge, Merges},
};
use superstep_llm::Message;

use super::facade::{Facade, FacadeError};
use crate::{
    Agent, AgentBuilder, AgentError, AgentState, ReactConfig,
    deps::folder,
    hooks::{HookError, ToolCheck, around::caught},
    repair::steering::is_steered,
};

/// Maximum number of characters of a tool result sent to the model.
pub const TOOL_RESULT_MAX_CHARS: usize = 16_000;

/// Replies to messages `M` of the program's own type; a callback of the program converts one and its history
/// to a conversation.
///
/// Callbacks return futures. A synchronous one is a closure that returns [`ready`](std::future::ready).
///
/// ```
/// # use std::{future::ready, sync::Arc};
/// # use superstep_agent::{Agent, facades::harness::AgentLoop, hooks::ToolCheck};
/// # use superstep_llm::ChatModel;
/// use serde_json::{Value, json};
///
/// # async fn example(model: Arc<dyn ChatModel>) -> Result<(), Box<dyn std::error::Error>> {
/// let agent = AgentLoop::new(
///     Agent::builder(model),
///     |msg: &String, history: &[Value]| {
///         let system = json!({ "role": "system", "content": "Be helpful." });
///         let asked = json!({ "role": "user", "content": msg });
///         ready(Ok([&[system], history, &[asked]].concat()))
///     },
///     |check: ToolCheck| ready(if check.name == "shell" { Err("no shell here".to_owned()) } else { Ok(()) }),
///     |error, context| eprintln!("{context}: {error}"),
/// )?;
/// let turn = agent.run(&"What is 2 + 3?".to_owned(), &[], None).await?;
/// println!("{:?}", turn.final_content);
/// # Ok(())
/// # }
/// ```
pub struct AgentLoop<M> {
    facade: Facade,
    on_build_context: Arc<BuildContext<M>>,
    on_error: Arc<OnError>,
    on_event: Option<Arc<OnEvent>>,
    emitter: Option<Arc<dyn EventEmitter>>,
}

type BuildContext<M> =
    dyn Fn(&M, &[Value]) -> BoxFuture<'static, Result<Vec<Value>, HookError>> + Send + Sync;
type OnError = dyn Fn(&(dyn Error + 'static), &str) + Send + Sync;
type OnEvent = dyn Fn(&str, Value) -> BoxFuture<'static, ()> + Send + Sync;

/// A receiver of events.
pub trait EventEmitter: Send + Sync {
    /// Receives an event of the agent.
    fn emit(&self, event: &str, payload: &Value);
}

impl<E: EventEmitter + ?Sized> EventEmitter for Arc<E> {
    fn emit(&self, event: &str, payload: &Value) {
        (**self).emit(event, payload);
    }
}

/// The result of [`AgentLoop::run`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnResult {
    /// The model's last text, or [the fixed one](crate::config::AtLimit::Fixed) at the limit.
    pub final_content: Option<String>,
    /// The executed tools, in call order, with repetitions.
    pub tools_used: Vec<String>,
    /// The whole history as chat-completions JSON: the context as given, with [steering messages](crate::AgentThread::steer)
    /// that an earlier turn of the thread left unread before its last message, followed by the new messages.
    pub messages: Vec<Value>,
    /// The index of the first new message.
    pub new_messages_start: usize,
}

impl<M> AgentLoop<M> {
    /// Creates the loop of this agent. Defaults to the preset [`harness`](ReactConfig::harness).
    ///
    /// - `on_build_context` converts a message and the history before it to the conversation, as
    ///   chat-completions JSON.
    /// - `on_tool_check` decides whether a call may run; the model receives the reason of an `Err`. A call
    ///   that it denies needs no approval.
    /// - `on_error` receives every error that [`run`](Self::run) returns, once, with its origin: `"llm"`,
    ///   `"context"`, `"hook"` or `"run"`. It also receives every tool failure, as a [`ToolFailure`](crate::hooks::ToolFailure) from
    ///   `"tool"`, even if the model receives it instead and the turn continues, see
    ///   [`ReactConfig::tool_errors`].
    ///
    /// # Errors
    /// Those of [`AgentBuilder::build`].
    pub fn new<B, C>(
        mut agent: AgentBuilder,
        on_build_context: impl Fn(&M, &[Value]) -> B + Send + Sync + 'static,
        on_tool_check: impl Fn(ToolCheck) -> C + Send + Sync + 'static,
        on_error: impl Fn(&(dyn Error + 'static), &str) + Send + Sync + 'static,
    ) -> Result<Self, AgentError>
    where
        B: Future<Output = Result<Vec<Value>, HookError>> + Send + 'static,
        C: Future<Output = Result<(), String>> + Send + 'static,
    {
        let on_error: Arc<OnError> = Arc::new(on_error);
        agent.deps.check = Some(Arc::new(move |check| Box::pin(on_tool_check(check))));
        let on_tool_error = on_error.clone();
        agent.deps.on_tool_error = Some(Arc::new(move |failure| on_tool_error(failure, "tool")));
        Ok(Self {
            facade: Facade::new(agent, ReactConfig::harness)?,
            on_build_context: Arc::new(move |msg, history| Box::pin(on_build_context(msg, history))),
            on_error,
            on_event: None,
            emitter: None,
        })
    }

    /// Sets an asynchronous receiver of the agent's events, called sequentially. Superseded by
    /// [`emitter`](Self::emitter), which takes precedence.
    #[must_use]
    pub fn on_event<E>(mut self, on_event: impl Fn(&str, Value) -> E + Send + Sync + 'static) -> Self
    where
        E: Future<Output = ()> + Send + 'static,
    {
        self.on_event = Some(Arc::new(move |event, payload| Box::pin(on_event(event, payload))));
        self
    }

    /// Sets the receiver of the agent's events.
    #[must_use]
    pub fn emitter(self, emitter: impl EventEmitter + 'static) -> Self {
        Self { emitter: Some(Arc::new(emitter)), ..self }
    }

    /// Returns the inner agent.
    pub fn agent(&self) -> &Agent {
        &self.facade.agent
    }

    /// Runs a turn for a message. All tools of this turn work in the folder `cwd`, the root of their paths
    /// and of those in permission rules; so do file snapshots, long results and sub-agents. Without `cwd`
    /// they work in the folder that they were made for. Your own tools find `cwd` in the `serde_json::Value`
    /// among their [extensions](superstep_llm::ToolCx::extension), and are moved by
    /// [`Tool::in_folder`](superstep_llm::Tool::in_folder).
    ///
    /// # Errors
    /// [`FacadeError`], which `on_error` has received before; [`FacadeError::Folder`] if there is
    /// no such folder.
    pub async fn run(
        &self,
        msg: &M,
        history: &[Value],
        cwd: Option<&Path>,
    ) -> Result<TurnResult, FacadeError> {
        let context = match cwd.map(|cwd| (cwd, cwd.to_str())) {
            Some((_, Some(cwd))) => json!({ folder::KEY: cwd }),
            Some((cwd, None)) => {
                let source = io::Error::new(io::ErrorKind::InvalidInput, "its path is not UTF-8");
                let error = FacadeError::Folder { folder: cwd.to_owned(), source };
                (self.on_error)(&error, "run");
                return Err(error);
            }
            None => Value::Null,
        };
        self.run_with(msg, history, RunOptions::new().context(context)).await
    }

    /// Does the same with the options of the run: on a thread, or to cancel it. The thread's conversation is
    /// replaced by the built one. The tools work in the folder that the context of the run has as `cwd`.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub async fn run_with(
        &self,
        msg: &M,
        history: &[Value],
        options: RunOptions,
    ) -> Result<TurnResult, FacadeError> {
        let turn = self.turn(msg, history, options).await;
        if let Err(error) = &turn {
            match error {
                FacadeError::Model(error) => (self.on_error)(error, "llm"),
                FacadeError::Callback { .. } => (self.on_error)(error, "context"),
                FacadeError::Hook(error) => (self.on_error)(error, "hook"),
                // It was reported when it happened.
                FacadeError::Tool(_) => {}
                error => (self.on_error)(error, "run"),
            }
        }
        turn
    }

    async fn turn(&self, msg: &M, history: &[Value], options: RunOptions) -> Result<TurnResult, FacadeError> {
        let cwd = folder::named(options.get_context()).map(folder::real).transpose()?;
        let (given_json, conversation) = self.context(msg, history).await?;
        let given = conversation.into_iter().map(Merge::Put);
        let replaced = [Merge::remove_all()].into_iter().chain(given).collect();
        let input = AgentState::update().messages(Merges(replaced)).cwd(cwd);
        let mut turn = self.facade.begin(input, options);
        while let Some((event, payload)) = turn.next().await {
            match (&self.emitter, &self.on_event) {
                (Some(emitter), _) => emitter.emit(event, &payload),
                (None, Some(on_event)) => on_event(event, payload).await,
                (None, None) => {}
            }
        }
        let state = turn.end().await?;
        let (messages, new_messages_start) = whole_history(given_json, &state);
        let tools_used = state.metadata.tools_used;
        Ok(TurnResult { final_content: Some(state.final_reply), tools_used, messages, new_messages_start })
    }

    /// Builds the conversation; returns it as JSON and parsed.
    async fn context(&self, msg: &M, history: &[Value]) -> Result<(Vec<Value>, Vec<Message>), FacadeError> {
        let failed = |source: HookError| FacadeError::Callback { name: "on_build_context", source };
        let built = caught(|| (self.on_build_context)(msg, history)).await;
        let built = built.map_err(|panic| failed(panic.into()))?.map_err(failed)?;
        let read: Result<Vec<_>, _> = built.iter().map(Message::from_chat_json).collect();
        Ok((built, read.map_err(|error| failed(error.into()))?))
    }
}

/// Returns the history after a turn, with `given` as it was given, and the index of its first new message.
fn whole_history(given: Vec<Value>, state: &AgentState) -> (Vec<Value>, usize) {
    let (mut given, mut start) = (given.into_iter(), 0);
    let messages = state.messages.iter().zip(1..).map(|(message, behind)| {
        // A steering message may have been put before the last given one.
        let known = if is_steered(message) { None } else { given.next() };
        if known.is_some() {
            start = behind;
        }
        known.unwrap_or_else(|| message.to_chat_json())
    });
    (messages.collect(), start)
}
