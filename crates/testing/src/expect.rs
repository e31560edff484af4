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

mod request;
mod shown;

use std::{
    collections::VecDeque,
    panic::Location,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use serde_json::Value;

pub(crate) use self::{request::Wanted, shown::difference};
use crate::script::{Answer, Progress, calls, txt};

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

    /// Ends the test of the model, as a drop does.
    ///
    /// # Panics
    /// If a call did not match, or an expected one was not made.
    #[track_caller]
    pub fn assert_done(mut self) {
        self.is_over = true;
        if let Err(text) = self.check() {
            panic!("{text}");
        }
    }
}

impl Drop for Expect {
    fn drop(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            end(self.check());
        }
    }
}

/// Panics with the text of an unmet expectation; prints it if the thread panics already, which may be its consequence.
#[expect(clippy::print_stderr, reason = "a failing test shows it")]
pub(crate) fn end(checked: Result<(), String>) {
    match checked {
        Ok(()) => {}
        Err(text) if thread::panicking() => eprintln!("{text}"),
        Err(text) => panic!("{text}"),
    }
}

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

/// The expected calls that were not made yet, and the first failure.
#[derive(Debug, Default)]
pub(crate) struct Expectations {
    /// `None` if the script has no expectations.
    open: Option<VecDeque<Wanted>>,
    /// The number of calls so far.
    calls: usize,
    /// The number of ids of tool calls so far.
    ids: usize,
    last: Value,
    failure: Option<String>,
}

impl Expectations {
    /// Creates an empty list, which expects no call.
    pub(crate) fn none() -> Self {
        Self { open: Some(VecDeque::new()), ..Self::default() }
    }

    /// Returns `true` if calls are compared with expectations.
    pub(crate) fn are_on(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) fn push(&mut self, wanted: Wanted) {
        self.open.get_or_insert_default().push_back(wanted);
    }

    pub(crate) fn call_ids(&mut self, count: usize) -> Vec<String> {
        let first = self.ids + 1;
        self.ids += count;
        (first..).take(count).map(|id| format!("call_{id}")).collect()
    }

    /// Compares a call with the next expected one, and takes that if it matches.
    ///
    /// # Errors
    /// The first failure of all calls.
    pub(crate) fn meet(&mut self, body: &Value) -> Result<(), String> {
        let Some(open) = &mut self.open else { return Ok(()) };
        self.calls += 1;
        self.last = body.clone();
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let differs = match open.front() {
            Some(wanted) => wanted.compare(body).err().map(|text| {
                format!("model call {} does not match what {} expects\n{text}", self.calls, wanted.place())
            }),
            None => Some(format!("model call {} is not expected\n", self.calls)),
        };
        match differs {
            None => drop(open.pop_front()),
            Some(text) => self.failure = Some(format!("{text}{}", shown::conversation(body))),
        }
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Returns the first failure, or the calls that were not made.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let open: Vec<_> = self.open.iter().flatten().collect();
        if open.is_empty() {
            return Ok(());
        }
        let mut text = match open.len() {
            1 => "an expected model call was not made\n".to_owned(),
            count => format!("{count} expected model calls were not made\n"),
        };
        for (call, wanted) in (self.calls + 1..).zip(open) {
            text.push_str(&format!("  call {call}, of {}: {wanted}\n", wanted.place()));
        }
        match self.calls {
            0 => text.push_str("no call was made\n"),
            calls => {
                text.push_str(&format!("call {calls} was the last one\n{}", shown::conversation(&self.last)))
            }
        }
        Err(text)
    }
}
