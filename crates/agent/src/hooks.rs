//! What a program does before and after the steps of an agent.
//!
//! Start at [`Hooks`].

use std::{
    error::Error,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use futures::{FutureExt, future::BoxFuture};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_llm::{ChatModel, Message, Request, ResponseStream, Tool, ToolCx, ToolFuture};

use crate::{Msg, texts};

/// What runs before and after each step.
///
/// `reasoning` is a model call and `acting` a tool call: their hooks run inside the nodes `agent` and `tools`, so they run in
/// every graph that has those. `reply`, `observe` and `print` are what [`ReActAgent`](crate::agentscope::ReActAgent) does.
///
/// # Order
/// In the order in which they were added, each seeing what the one before made of it; a post hook also sees what its step was
/// given in the end. [`Hooks::then`] appends those of a kind of agent to those of one agent.
///
/// # Errors
/// A hook that fails or panics ends the turn: calls that did not run yet are answered so, the outcome is
/// [`AgentOutcome::HookFailed`](crate::AgentOutcome::HookFailed), and facades return the error.
///
/// # Example: look at tool results before the model does
/// ```
/// use std::future::ready;
/// use superstep_agent::{Acting, Hooks};
///
/// let mut hooks = Hooks::default();
/// hooks.acting.pre(|mut acting: Acting| async move {
///     if acting.tool == "delete" {
///         acting.denied = Some("not on my watch".to_owned());
///     }
///     Ok(Some(acting))
/// });
/// // A hook that need not wait is a closure that is ready.
/// hooks.acting.post(|_, result: String| ready(Ok(Some(result.replace("hunter2", "***")))));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Hooks {
    /// Around a whole answer to a user: the message, and the reply.
    pub reply: Around<Msg, Msg>,
    /// Around a message that is remembered without a reply.
    pub observe: Around<Msg, ()>,
    /// Around a piece of a reply that is shown.
    pub print: Around<Printed, ()>,
    /// Around a model call: what is asked, and the answer. The conversation stays as it is, whatever a hook makes of the
    /// request; the answer becomes part of it as the hooks leave it.
    pub reasoning: Around<Request, Message>,
    /// Around a tool call: the call, and its result as the model reads it, before it is cut. The model's own words stay as
    /// they are in the conversation, whatever a hook makes of the call.
    pub acting: Around<Acting, String>,
}

/// The two steps of a ReAct agent, for a program that has its own way to take one of them. What it does not override is done as
/// ever.
///
/// ```
/// # use superstep_agent::Steps;
/// # use superstep_llm::{ChatModel, Request, ResponseStream};
/// /// Thinks without chance.
/// struct Cold;
///
/// impl Steps for Cold {
///     fn reasoning<'a>(&'a self, request: Request, model: &'a dyn ChatModel) -> ResponseStream<'a> {
///         model.stream(Request { temperature: Some(0.0), ..request })
///     }
/// }
/// // Agent::builder(model).steps(Arc::new(Cold))
/// ```
pub trait Steps: Send + Sync {
    /// Answers a request, with the model or without. The model sends a request again that failed, as the configuration says.
    fn reasoning<'a>(&'a self, request: Request, model: &'a dyn ChatModel) -> ResponseStream<'a> {
        model.stream(request)
    }

    /// Runs a call that may run, with the tool or without. `args` have been checked against its schema.
    fn acting<'a>(&'a self, args: Value, cx: ToolCx, tool: &'a dyn Tool) -> ToolFuture<'a> {
        tool.call(args, cx)
    }
}

/// The hooks around one step, which makes an `O` of an `A`.
pub struct Around<A, O> {
    pre: Vec<Pre<A>>,
    post: Vec<Post<A, O>>,
}

type Pre<A> = Arc<dyn Fn(A) -> BoxFuture<'static, Hooked<A>> + Send + Sync>;
type Post<A, O> = Arc<dyn Fn(A, O) -> BoxFuture<'static, Hooked<O>> + Send + Sync>;

/// What a hook makes of the copy that it was given: something else in its place, or `None` to leave it.
pub type Hooked<T> = Result<Option<T>, HookError>;

/// Why a hook failed.
pub type HookError = Box<dyn Error + Send + Sync>;

/// A tool call that is about to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Acting {
    call_id: String,
    /// The tool that is to run.
    pub tool: String,
    /// Its arguments, which are checked after the hooks; a string with the model's words if they are no JSON.
    pub args: Value,
    /// Why it may not run; the model reads that as its result.
    pub denied: Option<String>,
}

/// A piece of a reply that is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Printed {
    /// The reply, as far as it is known.
    pub msg: Msg,
    /// Whether that is all of it.
    pub last: bool,
}

/// A hook that failed, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the hook `{hook}` failed: {message}")]
pub struct HookFailure {
    /// Which: `pre_acting`, `post_reasoning`, …
    pub hook: String,
    /// What it said, with the causes.
    pub message: String,
}

/// A tool that failed, panicked or took too long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tool `{tool}` failed: {message}")]
pub struct ToolFailure {
    /// Its name.
    pub tool: String,
    /// What the model reads of it.
    pub message: String,
}

impl Hooks {
    /// These hooks, and after them those: an agent's own come before those of its kind.
    #[must_use]
    pub fn then(mut self, those: &Self) -> Self {
        self.reply.append(&those.reply);
        self.observe.append(&those.observe);
        self.print.append(&those.print);
        self.reasoning.append(&those.reasoning);
        self.acting.append(&those.acting);
        self
    }
}

impl<A: Clone + Send + 'static, O: Clone + Send + 'static> Around<A, O> {
    /// Adds a hook that runs before the step and may replace what it is given.
    pub fn pre<F, Fut>(&mut self, hook: F)
    where
        F: Fn(A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Hooked<A>> + Send + 'static,
    {
        self.pre.push(Arc::new(move |given| Box::pin(hook(given))));
    }

    /// Adds a hook that runs after the step and may replace what came of it.
    pub fn post<F, Fut>(&mut self, hook: F)
    where
        F: Fn(A, O) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Hooked<O>> + Send + 'static,
    {
        self.post.push(Arc::new(move |given, output| Box::pin(hook(given, output))));
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pre.is_empty() && self.post.is_empty()
    }

    /// What the step is given after all of its pre hooks; `step` names it in failures.
    pub(crate) async fn before(&self, step: &str, mut given: A) -> Result<A, HookFailure> {
        for hook in &self.pre {
            let copy = given.clone();
            let made = run(|| hook(copy)).await.map_err(|message| failure("pre", step, message))?;
            given = made.unwrap_or(given);
        }
        Ok(given)
    }

    /// What comes of the step after all of its post hooks.
    pub(crate) async fn after(&self, step: &str, given: &A, mut output: O) -> Result<O, HookFailure> {
        for hook in &self.post {
            let (given, copy) = (given.clone(), output.clone());
            let made = run(|| hook(given, copy)).await.map_err(|message| failure("post", step, message))?;
            output = made.unwrap_or(output);
        }
        Ok(output)
    }

    fn append(&mut self, those: &Self) {
        self.pre.extend(those.pre.iter().cloned());
        self.post.extend(those.post.iter().cloned());
    }
}

/// What a hook gave, or what it said when it failed.
async fn run<T>(hook: impl FnOnce() -> BoxFuture<'static, Hooked<T>>) -> Result<Option<T>, String> {
    caught(hook).await.map_err(|panic| panic.to_string())?.map_err(|error| with_causes(&*error))
}

/// A panic in the program's code.
#[derive(Debug, thiserror::Error)]
#[error("it panicked: {0}")]
pub(crate) struct Panicked(String);

/// What the program's code gave, or what it said when it panicked.
pub(crate) async fn caught<T>(run: impl FnOnce() -> BoxFuture<'static, T>) -> Result<T, Panicked> {
    let panicked = |panic: Box<dyn std::any::Any + Send>| Panicked(texts::panic(&*panic));
    let running = catch_unwind(AssertUnwindSafe(run)).map_err(panicked)?;
    AssertUnwindSafe(running).catch_unwind().await.map_err(panicked)
}

fn failure(when: &str, step: &str, message: String) -> HookFailure {
    HookFailure { hook: format!("{when}_{step}"), message }
}

fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl Acting {
    pub(crate) fn new(call_id: &str, tool: &str, args: Value) -> Self {
        Self { call_id: call_id.to_owned(), tool: tool.to_owned(), args, denied: None }
    }

    /// The same call, which may not run for this reason.
    #[must_use]
    pub fn denied(self, reason: impl Into<String>) -> Self {
        Self { denied: Some(reason.into()), ..self }
    }

    /// The id of the call.
    pub fn call_id(&self) -> &str {
        &self.call_id
    }
}

impl<A, O> Clone for Around<A, O> {
    fn clone(&self) -> Self {
        Self { pre: self.pre.clone(), post: self.post.clone() }
    }
}

impl<A, O> Default for Around<A, O> {
    fn default() -> Self {
        Self { pre: Vec::new(), post: Vec::new() }
    }
}

impl<A, O> std::fmt::Debug for Around<A, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (pre, post) = (self.pre.len(), self.post.len());
        f.debug_struct("Around").field("pre", &pre).field("post", &post).finish()
    }
}
