//! The facade of the preset `opencode`: a query in, the final reply out.
//!
//! Start at [`ReactLoop`], or at [`AiClient`] for a single round.

use std::{collections::VecDeque, sync::Arc};

use serde::Serialize;
use serde_json::Value;
use superstep_graph::{RunOptions, State};
use superstep_llm::{Message, Tool, ToolSpec};

use super::facade::{Facade, FacadeError, Turn};
use crate::{
    AgentBuilder, AgentEvent, AgentState, ReactConfig,
    state::{AgentStateUpdate, Part, ToolStatus},
};

/// A model with tools for a single round: it may call tools in parallel, and then replies.
///
/// ```
/// # use std::sync::Arc;
/// # use superstep_agent::{Agent, facades::opencode::{AiClient, ReactLoop}};
/// # use superstep_llm::ChatModel;
/// # async fn example(model: Arc<dyn ChatModel>) -> Result<(), Box<dyn std::error::Error>> {
/// let client = AiClient::new(Agent::builder(model));
/// println!("{}", client.chat("What is 2 + 3?").await?);
///
/// let mut react = ReactLoop { max_steps: 5, ..ReactLoop::new(client) };
/// println!("{}", react.run("What does the roof of the station weigh?").await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AiClient {
    agent: AgentBuilder,
}

/// A model with tools that runs until it is done or reaches the step limit.
#[derive(Clone)]
pub struct ReactLoop {
    /// The client for model calls.
    pub client: AiClient,
    /// Maximum number of model calls.
    pub max_steps: u32,
    /// Retries failed model requests. If not set, the first failure is returned.
    pub enable_retry: bool,
    /// Refuses a third identical consecutive call.
    pub enable_doom_detection: bool,
    /// The parts of the responses of the last successful run; of the whole thread, if it ran on one.
    pub parts: Vec<Part>,
}

/// An event of a run, with the names of the design: `text-delta`, `tool-call`, …
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum StepEvent {
    /// A piece of the text.
    TextDelta {
        /// The piece.
        text: String,
    },
    /// The text of this step so far is discarded: the model is called again, or the text was tool calls.
    TextDiscarded,
    /// A tool is called.
    ToolCall {
        /// The call's id.
        id: String,
        /// The tool.
        tool: String,
        /// The arguments.
        input: Value,
    },
    /// A call has a result.
    ToolResult {
        /// The call's id.
        id: String,
        /// The result that the model receives.
        output: String,
    },
    /// A call failed.
    ToolError {
        /// The call's id.
        id: String,
        /// The error that the model receives, or the reason for not running the call.
        error: String,
    },
    /// A step ended: a response of the model that streams text, or whose calls run or are refused, and the results of the calls.
    /// The last one also ends if there is no such response.
    FinishStep {
        /// The next step.
        next: NextStep,
    },
}

/// The continuation after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NextStep {
    /// Another step.
    Continue,
    /// The end of the run.
    Stop,
}

/// The steps in the events of a turn: where one ends and the next begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    is_in_step: bool,
    /// The step has text or calls.
    has_content: bool,
    /// The agent was visited again after a step with content: another step begins with the next text or call.
    is_revisited: bool,
}

impl Steps {
    /// Returns whether a step ended before the event of this [name](AgentEvent::name), with which another one begins.
    pub fn end_before(&mut self, event: &str) -> bool {
        match event {
            "node_start" => (self.is_in_step, self.is_revisited) = (true, self.has_content),
            "llm_token" | "attempt_discarded" | "text_calls" | "tool_start" | "tool_end" | "tool_skipped" => {
                self.has_content = true;
                return std::mem::take(&mut self.is_revisited);
            }
            _ => {}
        }
        false
    }

    /// Returns whether a step ends with the turn.
    pub fn end(&mut self) -> bool {
        std::mem::take(&mut self.is_in_step)
    }
}

/// A running query whose events are consumed. Dropping it ends the run.
pub struct Running<'a> {
    turn: Turn,
    events: VecDeque<StepEvent>,
    steps: Steps,
    parts: Option<&'a mut Vec<Part>>,
}

impl Running<'_> {
    /// Returns the next event; `None` when the run has ended.
    pub async fn next(&mut self) -> Option<StepEvent> {
        loop {
            if let Some(step) = self.events.pop_front() {
                return Some(step);
            }
            match self.turn.next().await {
                Some((name, data)) => {
                    if let Some(event) = AgentEvent::read(name, &data) {
                        self.emit(event);
                    }
                }
                None if self.steps.end() => {
                    return Some(StepEvent::FinishStep { next: NextStep::Stop });
                }
                None => return None,
            }
        }
    }

    /// Returns the final reply. Remaining events are discarded.
    ///
    /// # Errors
    /// [`FacadeError`], also for an unavailable model.
    pub async fn end(self) -> Result<String, FacadeError> {
        let state = self.turn.end().await?;
        if let Some(parts) = self.parts {
            *parts = state.parts.iter().cloned().collect();
        }
        Ok(state.final_reply)
    }

    fn emit(&mut self, event: AgentEvent) {
        if self.steps.end_before(event.name()) {
            self.events.push_back(StepEvent::FinishStep { next: NextStep::Continue });
        }
        let step = match event {
            AgentEvent::LlmToken { token, .. } => {
                (!token.is_empty()).then_some(StepEvent::TextDelta { text: token })
            }
            AgentEvent::AttemptDiscarded { .. } | AgentEvent::TextCalls { .. } => {
                Some(StepEvent::TextDiscarded)
            }
            AgentEvent::ToolStart { tool, args, id } => Some(StepEvent::ToolCall { id, tool, input: args }),
            AgentEvent::ToolEnd { id, result, status: ToolStatus::Completed, .. } => {
                Some(StepEvent::ToolResult { id, output: result })
            }
            AgentEvent::ToolEnd { id, result, .. } => Some(StepEvent::ToolError { id, error: result }),
            AgentEvent::ToolSkipped { id, reason, .. } => Some(StepEvent::ToolError { id, error: reason }),
            _ => None,
        };
        self.events.extend(step);
    }
}

impl AiClient {
    /// Creates a client of this agent. Defaults to the preset [`opencode`](ReactConfig::opencode).
    pub fn new(agent: AgentBuilder) -> Self {
        Self { agent }
    }

    /// Replies to a query in a single round: see [`ReactConfig::single_round`].
    ///
    /// # Errors
    /// [`FacadeError`], also for an unavailable model.
    pub async fn chat(&self, query: &str) -> Result<String, FacadeError> {
        Ok(self.turn(query, RunOptions::new(), ReactConfig::single_round).await?.final_reply)
    }

    /// Does the same and streams events.
    ///
    /// # Errors
    /// [`FacadeError::Build`]; all others are returned by [`end`](Running::end).
    pub fn chat_stream(&self, query: &str) -> Result<Running<'static>, FacadeError> {
        let facade = self.facade(ReactConfig::single_round)?;
        Ok(running(&facade, query, RunOptions::new(), None))
    }

    async fn turn(
        &self,
        query: &str,
        options: RunOptions,
        change: impl FnOnce(ReactConfig) -> ReactConfig,
    ) -> Result<AgentState, FacadeError> {
        self.facade(change)?.run(input(query), options).await
    }

    fn facade(&self, change: impl FnOnce(ReactConfig) -> ReactConfig) -> Result<Facade, FacadeError> {
        let mut agent = self.agent.clone();
        agent.config = Some(change(agent.config.unwrap_or_else(ReactConfig::opencode)));
        Ok(Facade::new(agent, ReactConfig::opencode)?)
    }
}

impl ReactLoop {
    /// Creates a loop with 15 steps, retries and the detection of repeated calls.
    pub fn new(client: AiClient) -> Self {
        let (enable_retry, enable_doom_detection) = (true, true);
        Self { client, max_steps: 15, enable_retry, enable_doom_detection, parts: Vec::new() }
    }

    /// Replies to a query.
    ///
    /// # Errors
    /// [`FacadeError`], also for an unavailable model after its retries.
    pub async fn run(&mut self, query: &str) -> Result<String, FacadeError> {
        self.run_with(query, RunOptions::new()).await
    }

    /// Does the same with the options of the run: on a thread, where the conversation continues, or to cancel
    /// it.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub async fn run_with(&mut self, query: &str, options: RunOptions) -> Result<String, FacadeError> {
        let state = self.client.turn(query, options, self.change()).await?;
        self.parts = state.parts.iter().cloned().collect();
        Ok(state.final_reply)
    }

    /// Does the same and streams events; [`parts`](Self::parts) are set by [`end`](Running::end).
    ///
    /// # Errors
    /// [`FacadeError::Build`]; all others are returned by `end`.
    pub fn run_stream(&mut self, query: &str, options: RunOptions) -> Result<Running<'_>, FacadeError> {
        let facade = self.client.facade(self.change())?;
        Ok(running(&facade, query, options, Some(&mut self.parts)))
    }

    fn change(&self) -> impl FnOnce(ReactConfig) -> ReactConfig + use<> {
        let (max_steps, retry, doom) = (self.max_steps, self.enable_retry, self.enable_doom_detection);
        let prompt = react_system_prompt(max_steps, &self.client.agent.tools);
        move |mut config: ReactConfig| {
            config.limit.max = max_steps;
            config.parts = true;
            if config.system_prompt.is_empty() {
                config.system_prompt = prompt;
            }
            if !retry {
                config.retry.max_attempts = 1;
            }
            if !doom {
                config.loops.clear();
            }
            config
        }
    }
}

fn input(query: &str) -> AgentStateUpdate {
    AgentState::update().messages([Message::user(query)]).cwd(None)
}

fn running<'a>(
    facade: &Facade,
    query: &str,
    options: RunOptions,
    parts: Option<&'a mut Vec<Part>>,
) -> Running<'a> {
    let turn = facade.begin(input(query), options);
    Running { turn, events: VecDeque::new(), steps: Steps::default(), parts }
}

/// Returns the default system prompt of [`ReactLoop`] with these tools: think, act and observe in turn.
pub fn react_system_prompt(max_steps: u32, tools: &[Arc<dyn Tool>]) -> String {
    let role = "# Role: an assistant that answers questions with tools, step by step";
    format!("{role}\n\n{}", react_rules(max_steps, tools))
}

/// Returns the rules of that prompt without the role. The example consists of the tools.
pub fn react_rules(max_steps: u32, tools: &[Arc<dyn Tool>]) -> String {
    let example = example(tools);
    format!(
        "\
Work in rounds of Think → Act → Observe:

1. Think: say what is still unknown and which tool can tell it.
2. Act: call that tool.
3. Observe: read what it returned and decide whether it is enough.

When it is enough, stop calling tools and give the Final Answer.

{example}## Rules

- Call one or two tools at a time.
- There are at most {max_steps} steps, so plan them.
- Never make data up: every statement rests on what a tool returned.
"
    )
}

/// Number of rounds of the example.
const EXAMPLE_ROUNDS: usize = 2;

/// Returns the form of a reply with some of the tools, or nothing without tools. It has no question, because models answer that of
/// an example.
fn example(tools: &[Arc<dyn Tool>]) -> String {
    let (reading, other): (Vec<_>, Vec<_>) =
        tools.iter().partition(|tool| tool.changes_files() == Some(false));
    let tools: Vec<_> = reading.into_iter().chain(other).take(EXAMPLE_ROUNDS).collect();
    if tools.is_empty() {
        return String::new();
    }
    let round = |tool: &&Arc<dyn Tool>| {
        let ToolSpec { name, parameters, .. } = tool.spec();
        let required = parameters["required"].as_array().into_iter().flatten();
        let args: Vec<String> = required.filter_map(|arg| Some(format!("{}=…", arg.as_str()?))).collect();
        let call = format!("{name}({})", args.join(", "));
        format!("Think: … is still unknown, and {name} can tell it.\nAct: {call}\nObserve: it returned …\n\n")
    };
    let rounds: String = tools.iter().map(round).collect();
    format!("## Example\n\nThis is the form, not a question:\n\n{rounds}Final Answer: …\n\n")
}
