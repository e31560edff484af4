//! The calls that a test expects of a model, each with its reply.
//!
//! ```text
//! let (model, expect) = ScriptedModel::pair();        the model is for the agent, the other half for the test
//! expect.user("hi").reply_tool_call("read_file", json!({"path": "a"}));
//! expect.tool_result("read_file", "hello").reply_text("It says hello.");
//! … the agent runs …                                  `expect.assert_done()`, or the end of its scope
//! ```
//!
//! Start at [`Expect`].

use std::{
    panic::Location,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;

use crate::{
    expectations::{Wanted, checked_at_end},
    progress::Progress,
    script::{Answer, calls, txt},
};

/// The test's half of a scripted model: see [`ScriptedModel::pair`](crate::scripted::ScriptedModel::pair) and
/// [`WireServer::pair`](crate::wire::WireServer::pair).
///
/// Each method begins the next expected call; calls are expected in this order. A call that does not match gets no reply of the
/// script but an error that is not retried, and fails the test. It panics when it is dropped, if a call did not match, or an
/// expected one was not made; not if its thread panics already.
///
/// # Example
/// ```
/// use serde_json::json;
/// use superstep_llm::{Message, Request, ToolCall, complete};
/// use superstep_testing::scripted::ScriptedModel;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let (model, expect) = ScriptedModel::pair();
/// expect.user("What is in a.txt?").reply_tool_call("read_file", json!({"path": "a.txt"}));
/// expect.tool_result("read_file", "hello").reply_text("It says hello.");
///
/// let mut messages = vec![Message::user("What is in a.txt?")];
/// let called = complete(&model, Request { messages: messages.clone(), ..Request::default() }).await?.message;
/// let result = Message::tool(&called.tool_calls[0].id, "hello");
/// messages.extend([called, result]);
/// let said = complete(&model, Request { messages, ..Request::default() }).await?.message;
/// assert_eq!(said.content, "It says hello.");
/// expect.assert_done();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Expect {
    progress: Arc<Mutex<Progress>>,
    is_over: bool,
}

impl Expect {
    pub(crate) fn new(progress: Arc<Mutex<Progress>>) -> Self {
        Self { progress, is_over: false }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Expects a call with any conversation.
    #[track_caller]
    pub fn call(&self) -> Expected<'_> {
        Expected { expect: self, wanted: Wanted::at(Location::caller()) }
    }

    /// Expects a call whose last message of the user is this text.
    #[track_caller]
    pub fn user(&self, text: impl Into<String>) -> Expected<'_> {
        self.call().user(text)
    }

    /// Expects a call with this result of a tool, after the last message of the model.
    #[track_caller]
    pub fn tool_result(&self, tool: impl Into<String>, text: impl Into<String>) -> Expected<'_> {
        self.call().tool_result(tool, text)
    }

    /// Checks that every expected call was made, and no other.
    ///
    /// # Errors
    /// The first call that does not match, as a difference; or the calls that were not made.
    pub fn check(&self) -> Result<(), String> {
        self.progress().check()
    }
}

checked_at_end!(Expect, "If a call did not match, or an expected one was not made.");

/// An expected call. A reply completes it; without one it is not expected.
#[derive(Debug)]
#[must_use = "a reply completes an expected call"]
pub struct Expected<'a> {
    expect: &'a Expect,
    wanted: Wanted,
}

impl Expected<'_> {
    /// Requires that the last message of the user is this text.
    pub fn user(mut self, text: impl Into<String>) -> Self {
        self.wanted.user(text.into(), false);
        self
    }

    /// Requires that the last message of the user contains this text.
    pub fn user_contains(mut self, text: impl Into<String>) -> Self {
        self.wanted.user(text.into(), true);
        self
    }

    /// Requires this result of a tool, after the last message of the model. Several are for a round of several calls.
    pub fn tool_result(mut self, tool: impl Into<String>, text: impl Into<String>) -> Self {
        self.wanted.result(tool.into(), text.into(), false);
        self
    }

    /// Requires a result of a tool that contains this text, after the last message of the model.
    pub fn tool_result_contains(mut self, tool: impl Into<String>, text: impl Into<String>) -> Self {
        self.wanted.result(tool.into(), text.into(), true);
        self
    }

    /// Requires that the model may call these tools, and no others, in any order.
    pub fn tools<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.wanted.tools(names.into_iter().map(Into::into).collect());
        self
    }

    /// Requires that the instructions before the conversation contain this text.
    pub fn system_contains(mut self, text: impl Into<String>) -> Self {
        self.wanted.system(text.into());
        self
    }

    /// Replies with a text.
    pub fn reply_text(self, text: &str) {
        self.reply(txt(text));
    }

    /// Replies with a tool call. Its id is `call_1`, that of the next `call_2`, and so on.
    pub fn reply_tool_call(self, tool: &str, arguments: Value) {
        self.reply_tool_calls([(tool, arguments)]);
    }

    /// Replies with several tool calls.
    pub fn reply_tool_calls<'a>(self, tools: impl IntoIterator<Item = (&'a str, Value)>) {
        let tools: Vec<_> =
            tools.into_iter().map(|(tool, arguments)| (tool, arguments.to_string())).collect();
        let ids = self.expect.progress().call_ids(tools.len());
        let tools = ids.iter().zip(&tools).map(|(id, (tool, arguments))| (&**id, *tool, &**arguments));
        self.reply(calls(tools));
    }

    /// Replies with any answer: a slow or broken stream, an HTTP status.
    pub fn reply(self, answer: Answer) {
        self.expect.progress().expect(self.wanted, answer);
    }
}
