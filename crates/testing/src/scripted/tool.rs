//! A scripted tool.

use std::{
    collections::VecDeque,
    panic::Location,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};
use superstep_llm::{Behaviour, Tool, ToolCx, ToolError, ToolFuture, ToolReply, ToolSpec};

use crate::expectations::{checked_at_end, difference};

/// A tool whose calls a test expects, each with its result. It is the test's half; [`tool`](Self::tool) is the agent's.
///
/// A call takes the first expectation with its arguments that is left, because calls of one round may run at the same time.
/// One without such an expectation fails with the difference. It panics when it is dropped, if a call did not match, or an
/// expected one was not made; not if its thread panics already.
///
/// # Example
/// ```
/// use serde_json::json;
/// use superstep_llm::ToolCx;
/// use superstep_testing::scripted::ScriptedTool;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let weather = ScriptedTool::named("weather").expect(json!({"city": "Oslo"})).returns("rain");
/// let tool = weather.tool(); // For the agent: `.tool(weather.tool())`.
/// assert_eq!(tool.call(json!({"city": "Oslo"}), ToolCx::new("c1")).await?.text, "rain");
/// weather.assert_done();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ScriptedTool {
    spec: ToolSpec,
    behaviour: Behaviour,
    calls: Arc<Mutex<Calls>>,
    is_over: bool,
}

#[derive(Debug, Default)]
struct Calls {
    open: VecDeque<ExpectedCall>,
    made: Vec<Value>,
    failure: Option<String>,
}

#[derive(Debug)]
struct ExpectedCall {
    /// `None` for any arguments.
    arguments: Option<Value>,
    result: Result<String, String>,
    place: &'static Location<'static>,
}

impl ScriptedTool {
    /// Creates a tool that expects no call. Its schema accepts any arguments.
    pub fn named(name: impl Into<String>) -> Self {
        let (name, description) = (name.into(), "A tool of a test.".to_owned());
        let parameters = json!({"type": "object", "properties": {}});
        let spec = ToolSpec { name, description, parameters };
        Self { spec, behaviour: Behaviour::default(), calls: Arc::default(), is_over: false }
    }

    /// Sets the schema of its arguments.
    #[must_use]
    pub fn parameters(mut self, schema: Value) -> Self {
        self.spec.parameters = schema;
        self
    }

    /// Sets the execution requirements.
    #[must_use]
    pub fn behaviour(mut self, behaviour: Behaviour) -> Self {
        self.behaviour = behaviour;
        self
    }

    /// Expects a call with these arguments.
    #[track_caller]
    pub fn expect(self, arguments: Value) -> ExpectedToolCall {
        ExpectedToolCall { tool: self, arguments: Some(arguments), place: Location::caller() }
    }

    /// Expects a call with any arguments.
    #[track_caller]
    pub fn expect_any(self) -> ExpectedToolCall {
        ExpectedToolCall { tool: self, arguments: None, place: Location::caller() }
    }

    /// Returns the tool for the agent.
    pub fn tool(&self) -> Arc<dyn Tool> {
        let (spec, behaviour, calls) = (self.spec.clone(), self.behaviour, self.calls.clone());
        Arc::new(AgentSide { spec, behaviour, calls })
    }

    /// Returns the arguments of all calls so far.
    pub fn calls(&self) -> Vec<Value> {
        lock(&self.calls).made.clone()
    }

    /// Checks that every expected call was made, and no other.
    ///
    /// # Errors
    /// The first call that does not match, as a difference; or the calls that were not made.
    pub fn check(&self) -> Result<(), String> {
        let calls = lock(&self.calls);
        if let Some(failure) = &calls.failure {
            return Err(failure.clone());
        }
        if calls.open.is_empty() {
            return Ok(());
        }
        let mut text = format!("expected calls of the tool `{}` were not made\n", self.spec.name);
        for open in &calls.open {
            text.push_str(&format!("  {}\n", open.shown()));
        }
        text.push_str(&calls.shown());
        Err(text)
    }

    /// Ends the test of the tool without a check.
    #[cfg(feature = "fixture")]
    pub(crate) fn end(mut self) {
        self.is_over = true;
    }
}

checked_at_end!(ScriptedTool, "If a call did not match, or an expected one was not made.");

/// An expected call of a tool. A result completes it.
#[derive(Debug)]
#[must_use = "a result completes an expected call"]
pub struct ExpectedToolCall {
    tool: ScriptedTool,
    arguments: Option<Value>,
    place: &'static Location<'static>,
}

impl ExpectedToolCall {
    /// The call returns this text.
    pub fn returns(self, text: impl Into<String>) -> ScriptedTool {
        self.ends(Ok(text.into()))
    }

    /// The call fails with this message, which the model reads.
    pub fn fails(self, message: impl Into<String>) -> ScriptedTool {
        self.ends(Err(message.into()))
    }

    fn ends(self, result: Result<String, String>) -> ScriptedTool {
        let Self { tool, arguments, place } = self;
        lock(&tool.calls).open.push_back(ExpectedCall { arguments, result, place });
        tool
    }
}

impl ExpectedCall {
    fn shown(&self) -> String {
        let arguments = self.arguments.as_ref().map_or("any arguments".to_owned(), Value::to_string);
        format!("{arguments}, of {}:{}", self.place.file(), self.place.line())
    }
}

impl Calls {
    /// Takes the result of a call with these arguments.
    fn take(&mut self, name: &str, arguments: &Value) -> Result<String, String> {
        self.made.push(arguments.clone());
        let fits = |open: &ExpectedCall| open.arguments.as_ref().is_none_or(|expected| expected == arguments);
        if let Some(open) = self.open.iter().position(fits).and_then(|found| self.open.remove(found)) {
            return open.result;
        }
        let number = self.made.len();
        let failure = match self.open.front() {
            Some(ExpectedCall { arguments: Some(expected), place, .. }) => {
                let place = format!("{}:{}", place.file(), place.line());
                let pretty = |value: &Value| format!("{value:#}");
                format!(
                    "call {number} of the tool `{name}` does not match what {place} expects\n{}",
                    difference("arguments", &pretty(expected), &pretty(arguments))
                )
            }
            _ => format!("call {number} of the tool `{name}` is not expected: {arguments}\n"),
        };
        self.failure.get_or_insert(failure.clone());
        Err(failure)
    }

    fn shown(&self) -> String {
        match &*self.made {
            [] => "no call was made\n".to_owned(),
            made => made.iter().fold("calls so far\n".to_owned(), |text, call| format!("{text}  {call}\n")),
        }
    }
}

fn lock(calls: &Mutex<Calls>) -> MutexGuard<'_, Calls> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The agent's half.
struct AgentSide {
    spec: ToolSpec,
    behaviour: Behaviour,
    calls: Arc<Mutex<Calls>>,
}

impl Tool for AgentSide {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn behaviour(&self) -> Behaviour {
        self.behaviour
    }

    fn call(&self, args: Value, _: ToolCx) -> ToolFuture<'_> {
        Box::pin(async move {
            let taken = lock(&self.calls).take(&self.spec.name, &args);
            taken.map(ToolReply::text).map_err(ToolError::failed)
        })
    }
}
