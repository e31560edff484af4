//! A guard, and its argument.
//!
//! Start at [`Guard`].

pub(super) mod built_in;

use std::{error::Error, fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use superstep_graph::error::chain;
use tokio::time::timeout;

use crate::{
    AgentState,
    config::prompts,
    hooks::around::caught,
    state::{
        Messages,
        guarding::{GuardAt, Verdict},
    },
};

/// A check of a text, which may block or replace it.
///
/// A guard of the input or the output is a node of the agent's graph, named `guard_` and its name. Its verdicts are
/// stored, so that a resumed or replayed turn does not run it again for the same text.
///
/// # Order
/// Guards at the same place decide as if they ran one after the other in the order in which they were added, although they run at the same
/// time: the first one that blocks or replaces a text decides, and those behind it check the new text.
///
/// # Errors
/// A guard that fails, panics or exceeds its [`timeout`](Self::timeout) blocks.
///
/// # Example: a guard of one's own
/// ```
/// use superstep_agent::guards::{Guard, GuardAt, Verdict, View};
///
/// let guard = Guard::new("polite", GuardAt::Output, async |view: View| {
///     Ok(match view.text.contains("stupid") {
///         true => Verdict::Block { reply: "I have no polite answer.".to_owned() },
///         false => Verdict::Pass,
///     })
/// });
/// // Agent::builder(model).guard(guard.hold())
/// ```
#[derive(Clone)]
pub struct Guard {
    name: String,
    at: GuardAt,
    hold: bool,
    timeout: Duration,
    run: Run,
    /// The agent whose turns it guards; `None` for all of a conversation.
    member: Option<String>,
}

type Run = Arc<dyn Fn(View) -> BoxFuture<'static, Result<Verdict, GuardError>> + Send + Sync>;

/// The error of a guard.
pub type GuardError = Box<dyn Error + Send + Sync>;

/// The argument of a guard.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct View {
    /// The place of the text.
    pub at: GuardAt,
    /// The checked text: a message of the user, the answer, or the arguments of a tool call as JSON. An answer
    /// that is a call of the finish tool has its arguments.
    pub text: String,
    /// The tool of the call; `None` at another place.
    pub tool: Option<String>,
    /// The conversation. An answer is not a part of it yet.
    pub messages: Messages,
    /// The user whose memory is used; empty for the thread's own.
    pub user_id: String,
}

/// The time limit of a guard, unless it sets another one.
const TIMEOUT: Duration = Duration::from_secs(30);

impl Guard {
    /// Creates a guard. Its name has at most 100 letters, digits, `-` and `_`, and is unique in the agent.
    pub fn new<F, Fut>(name: impl Into<String>, at: GuardAt, run: F) -> Self
    where
        F: Fn(View) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Verdict, GuardError>> + Send + 'static,
    {
        let run: Run = Arc::new(move |view| Box::pin(run(view)));
        Self { name: name.into(), at, hold: false, timeout: TIMEOUT, run, member: None }
    }

    /// Holds the text of the model back from the stream: an answer is streamed as one piece once all guards of the output have accepted it,
    /// and a response with tool calls once it is complete. Of a blocked answer nothing is streamed. Only a guard of the output can hold.
    #[must_use]
    pub fn hold(self) -> Self {
        Self { hold: true, ..self }
    }

    /// Sets the time limit of one check. Defaults to 30 seconds.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the place of the texts that it checks.
    pub fn at(&self) -> GuardAt {
        self.at
    }

    /// Returns the guard for a conversation in which its agent has this name.
    pub(crate) fn of(self, member: &str) -> Self {
        Self { name: format!("{member}_{}", self.name), member: Some(member.to_owned()), ..self }
    }

    /// Returns whether it is one of the agent itself, not of one behind it.
    pub(crate) fn is_own(&self) -> bool {
        self.member.is_none()
    }

    /// Returns whether it guards the agent that has the conversation.
    pub(crate) fn guards(&self, active: &str) -> bool {
        self.member.as_deref().is_none_or(|member| member == active)
    }

    /// Returns whether it holds the answer back.
    pub(crate) fn holds(&self) -> bool {
        self.hold && self.at == GuardAt::Output
    }

    /// Returns whether the name can be a part of the name of a node.
    pub(crate) fn has_valid_name(&self) -> bool {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !self.name.is_empty() && self.name.len() <= 100 && self.name.bytes().all(is_valid)
    }

    /// Runs it.
    ///
    /// # Errors
    /// The message of a failure.
    pub(crate) async fn run(&self, view: View) -> Result<Verdict, String> {
        match timeout(self.timeout, caught(|| (self.run)(view))).await {
            Ok(Ok(verdict)) => verdict.map_err(|error| chain(&*error)),
            Ok(Err(panic)) => Err(panic.to_string()),
            Err(_) => Err(format!("no verdict within {} ms", self.timeout.as_millis())),
        }
    }

    /// Returns the reason to deny a tool call, and the error of a guard that failed; `None` if it may run.
    pub(crate) async fn denial(&self, view: View) -> Option<(String, String)> {
        let failed = |failure: String| Some((prompts::guard_failed(&self.name, &failure), failure));
        match self.run(view).await {
            Ok(Verdict::Pass) => None,
            Ok(Verdict::Block { reply }) if reply.is_empty() => {
                Some((prompts::guarded(&self.name), String::new()))
            }
            Ok(Verdict::Block { reply }) => Some((reply, String::new())),
            Ok(Verdict::Rewrite(_)) => failed("arguments of a tool call cannot be replaced".to_owned()),
            Err(failure) => failed(failure),
        }
    }
}

impl View {
    /// Creates the view of a text.
    pub(crate) fn of(state: &AgentState, at: GuardAt, text: &str) -> Self {
        let (messages, user_id) = (state.messages.clone(), state.user_id.clone());
        Self { at, text: text.to_owned(), tool: None, messages, user_id }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name)
            .field("at", &self.at)
            .field("hold", &self.hold)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
