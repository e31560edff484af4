//! Hooks before and after the steps of an agent.
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

use crate::{config::prompts, repair::msg::Msg, state::HookFailure};

/// The hooks before and after each step.
///
/// `reasoning` is a model call and `acting` a tool call: their hooks run inside of the nodes `agent` and
/// `tools`, in every graph with these nodes. `reply`, `observe` and `print` are the operations of
/// [`ReActAgent`](crate::facades::agentscope::ReActAgent).
///
/// # Order
/// In the order of registration; each hook receives the result of the one before. A post hook also
/// receives the final input of its step. [`Hooks::then`] appends shared hooks to those of one agent.
///
/// # Errors
/// A hook that fails or panics ends the turn: calls that did not run yet get an error result, the
/// outcome is [`AgentOutcome::HookFailed`](crate::AgentOutcome::HookFailed), and facades return the error.
///
/// # Cancellation
/// A cancellation stops a running hook and starts none. A response or result that the post hooks have
/// not completely processed is not stored: the turn ends without the response, and the call is answered as interrupted.
///
/// # Example: inspect tool results before the model does
/// ```
/// use std::future::ready;
/// use superstep_agent::hooks::{Acting, Hooks};
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
    /// Around a whole reply to a user: the message, and the reply.
    pub reply: Around<Msg, Msg>,
    /// Around a message that is stored without a reply.
    pub observe: Around<Msg, ()>,
    /// Around a printed piece of a reply.
    pub print: Around<Printed, ()>,
    /// Around a model call: the request, and the response. Changes of the request do not affect the
    /// conversation; the response is stored as the hooks return it. With a post hook, the text of a response that
    /// broke off is not stored, regardless of the configuration.
    pub reasoning: Around<Request, Message>,
    /// Around a tool call: the call, and its result before truncation. Changes of the call do not affect the
    /// model's message in the conversation.
    pub acting: Around<Acting, String>,
}

/// The two steps of a ReAct agent, for a program that implements one of them itself. The default methods have
/// the normal behaviour.
///
/// ```
/// # use superstep_agent::hooks::Steps;
/// # use superstep_llm::{ChatModel, Request, ResponseStream};
/// /// A model call with temperature 0.
/// struct Cold;
///
/// impl Steps for Cold {
///     fn reasoning<'a>(&'a self, request: Request, model: &'a dyn ChatModel) -> ResponseStream<'a> {
///         model.stream(Request { temperature: Some(0.0), ..request })
///     }
/// }
/// // Agent::builder(model).steps(Cold)
/// ```
pub trait Steps: Send + Sync {
    /// Returns the response to a request, with or without the model. `model` retries failed requests by the
    /// configuration.
    fn reasoning<'a>(&'a self, request: Request, model: &'a dyn ChatModel) -> ResponseStream<'a> {
        model.stream(request)
    }

    /// Executes a permitted call, with or without the tool. `args` match the tool's schema.
    fn acting<'a>(&'a self, args: Value, cx: ToolCx, tool: &'a dyn Tool) -> ToolFuture<'a> {
        tool.call(args, cx)
    }
}

impl<S: Steps + ?Sized> Steps for Arc<S> {
    fn reasoning<'a>(&'a self, request: Request, model: &'a dyn ChatModel) -> ResponseStream<'a> {
        (**self).reasoning(request, model)
    }

    fn acting<'a>(&'a self, args: Value, cx: ToolCx, tool: &'a dyn Tool) -> ToolFuture<'a> {
        (**self).acting(args, cx, tool)
    }
}

/// The hooks around one step with the input `A` and the output `O`.
pub struct Around<A, O> {
    pre: Vec<PreHook<A>>,
    post: Vec<PostHook<A, O>>,
}

type PreHook<A> = Arc<dyn Fn(A) -> BoxFuture<'static, Hooked<A>> + Send + Sync>;
type PostHook<A, O> = Arc<dyn Fn(A, O) -> BoxFuture<'static, Hooked<O>> + Send + Sync>;

/// A hook's result: a replacement of its input, or `None` to leave it unchanged.
pub type Hooked<T> = Result<Option<T>, HookError>;

/// The error of a hook.
pub type HookError = Box<dyn Error + Send + Sync>;

/// A tool call that is about to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Acting {
    call_id: String,
    /// The tool.
    pub tool: String,
    /// The arguments of the call, which are validated after the hooks; a string with the model's text if they are not
    /// valid JSON.
    pub args: Value,
    /// The reason for denying it, which the model receives as the result.
    pub denied: Option<String>,
}

/// A printed piece of a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Printed {
    /// The reply so far.
    pub msg: Msg,
    /// The reply is complete.
    pub last: bool,
}

/// A tool that failed, panicked or timed out.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("the tool `{tool}` failed: {message}")]
pub struct ToolFailure {
    /// The name of the tool.
    pub tool: String,
    /// The error that the model receives.
    pub message: String,
}

superstep_graph::__private::debug_by_chain!(ToolFailure);

impl Hooks {
    /// Appends hooks: an agent's own run before the shared ones.
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
    /// Adds a hook that runs before the step and may replace its input.
    pub fn pre<F, Fut>(&mut self, hook: F)
    where
        F: Fn(A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Hooked<A>> + Send + 'static,
    {
        self.pre.push(Arc::new(move |input| Box::pin(hook(input))));
    }

    /// Adds a hook that runs after the step and may replace its output.
    pub fn post<F, Fut>(&mut self, hook: F)
    where
        F: Fn(A, O) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Hooked<O>> + Send + 'static,
    {
        self.post.push(Arc::new(move |input, output| Box::pin(hook(input, output))));
    }

    /// Returns whether there are no hooks.
    pub fn is_empty(&self) -> bool {
        self.pre.is_empty() && self.post.is_empty()
    }

    /// Returns whether there are post hooks.
    pub(crate) fn has_post(&self) -> bool {
        !self.post.is_empty()
    }

    /// Runs all pre hooks and returns the step's input; `step` is its name in failures.
    pub(crate) async fn before(&self, step: &str, mut input: A) -> Result<A, HookFailure> {
        for hook in &self.pre {
            let copy = input.clone();
            let made = run(|| hook(copy)).await.map_err(|message| failure("pre", step, message))?;
            input = made.unwrap_or(input);
        }
        Ok(input)
    }

    /// Runs all post hooks and returns the step's output.
    pub(crate) async fn after(&self, step: &str, input: &A, mut output: O) -> Result<O, HookFailure> {
        for hook in &self.post {
            let (input, copy) = (input.clone(), output.clone());
            let made = run(|| hook(input, copy)).await.map_err(|message| failure("post", step, message))?;
            output = made.unwrap_or(output);
        }
        Ok(output)
    }

    fn append(&mut self, those: &Self) {
        self.pre.extend(those.pre.iter().cloned());
        self.post.extend(those.post.iter().cloned());
    }
}

/// Runs a hook; returns its result, or the message of its error or panic.
async fn run<T>(hook: impl FnOnce() -> BoxFuture<'static, Hooked<T>>) -> Result<Option<T>, String> {
    caught(hook).await.map_err(|panic| panic.to_string())?.map_err(|error| with_causes(&*error))
}

/// A panic in the program's code.
#[derive(Debug, thiserror::Error)]
#[error("it panicked: {0}")]
pub(crate) struct Panicked(String);

/// Runs the program's code and catches a panic.
pub(crate) async fn caught<T>(run: impl FnOnce() -> BoxFuture<'static, T>) -> Result<T, Panicked> {
    let panicked = |panic: Box<dyn std::any::Any + Send>| Panicked(prompts::panic(&*panic));
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

    /// Denies the call for this reason.
    #[must_use]
    pub fn denied(self, reason: impl Into<String>) -> Self {
        Self { denied: Some(reason.into()), ..self }
    }

    /// Returns the id of the call.
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
