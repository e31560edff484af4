//! The loop of the preset `opencode`: a query in, the final answer out.
//!
//! Start at [`ReactLoop`], or at [`AiClient`] for a single round.

use std::collections::VecDeque;

use serde::Serialize;
use serde_json::Value;
use superstep_graph::{RunConfig, State};
use superstep_llm::Message;

use super::{Facade, FacadeError, Turn};
use crate::{AgentBuilder, AgentState, AgentStateUpdate, Part, ReactConfig};

/// A model with tools that is asked once: it may call tools, at the same time, and then answers.
///
/// ```
/// # use std::sync::Arc;
/// # use superstep_agent::{Agent, opencode::{AiClient, ReactLoop}};
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

/// A model with tools that goes on until it is done, or has no steps left.
#[derive(Clone)]
pub struct ReactLoop {
    /// Who is asked.
    pub client: AiClient,
    /// How many model calls there may be.
    pub max_steps: u32,
    /// Whether a model request that failed is sent again. If not, the first failure is returned.
    pub enable_retry: bool,
    /// Whether a third identical call in a row is refused.
    pub enable_doom_detection: bool,
    /// The parts of the answers of the last run that did not fail; of the whole thread, if it ran on one.
    pub parts: Vec<Part>,
}

/// What is told of a run, by the names of the design: `text-delta`, `tool-call`, …
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum StepEvent {
    /// A piece of the text.
    TextDelta {
        /// The piece.
        text: String,
    },
    /// The text of this step so far is void: the model is asked again, or it was tool calls.
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
        /// What the model reads.
        output: String,
    },
    /// A call has none.
    ToolError {
        /// The call's id.
        id: String,
        /// What the model reads, or in a word why the call was not run.
        error: String,
    },
    /// A step is over: an answer of the model, with its calls.
    FinishStep {
        /// What comes next.
        next: NextStep,
    },
}

/// What comes after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NextStep {
    /// Another one.
    Continue,
    /// The end.
    Stop,
}

/// A run that goes on while its events are told. It ends if this is dropped.
pub struct Running<'a> {
    turn: Turn,
    told: VecDeque<StepEvent>,
    is_in_step: bool,
    parts: Option<&'a mut Vec<Part>>,
}

impl Running<'_> {
    /// The next event; `None` when the run is over.
    pub async fn next(&mut self) -> Option<StepEvent> {
        loop {
            if let Some(told) = self.told.pop_front() {
                return Some(told);
            }
            match self.turn.next().await {
                Some((event, data)) => self.tell(event, &data),
                None if std::mem::take(&mut self.is_in_step) => {
                    return Some(StepEvent::FinishStep { next: NextStep::Stop });
                }
                None => return None,
            }
        }
    }

    /// The final answer. What was not told yet is not.
    ///
    /// # Errors
    /// [`FacadeError`]; a model that cannot be asked is one.
    pub async fn end(self) -> Result<String, FacadeError> {
        let state = self.turn.end().await?;
        if let Some(parts) = self.parts {
            *parts = state.parts.iter().cloned().collect();
        }
        Ok(state.final_reply)
    }

    fn tell(&mut self, event: &str, data: &Value) {
        let text = |field: &str| data[field].as_str().unwrap_or_default().to_owned();
        let told = match event {
            "node_start" if std::mem::replace(&mut self.is_in_step, true) => {
                StepEvent::FinishStep { next: NextStep::Continue }
            }
            "llm_token" if !text("token").is_empty() => StepEvent::TextDelta { text: text("token") },
            "attempt_discarded" | "text_calls" => StepEvent::TextDiscarded,
            "tool_start" => {
                StepEvent::ToolCall { id: text("id"), tool: text("tool"), input: data["args"].clone() }
            }
            "tool_end" if data["status"] == "completed" => {
                StepEvent::ToolResult { id: text("id"), output: text("result") }
            }
            "tool_end" => StepEvent::ToolError { id: text("id"), error: text("result") },
            "tool_skipped" => StepEvent::ToolError { id: text("id"), error: text("reason") },
            _ => return,
        };
        self.told.push_back(told);
    }
}

impl AiClient {
    /// The agent that is asked; its configuration is the preset [`opencode`](ReactConfig::opencode) if it has none.
    pub fn new(agent: AgentBuilder) -> Self {
        Self { agent }
    }

    /// Answers a query in a single round: see [`ReactConfig::single_round`].
    ///
    /// # Errors
    /// [`FacadeError`]; a model that cannot be asked is one.
    pub async fn chat(&self, query: &str) -> Result<String, FacadeError> {
        Ok(self.turn(query, RunConfig::default(), ReactConfig::single_round).await?.final_reply)
    }

    /// The same, told step by step.
    ///
    /// # Errors
    /// [`FacadeError::Build`]; all others come at the [`end`](Running::end).
    pub fn chat_stream(&self, query: &str) -> Result<Running<'static>, FacadeError> {
        let facade = self.facade(ReactConfig::single_round)?;
        Ok(running(&facade, query, RunConfig::default(), None))
    }

    async fn turn(
        &self,
        query: &str,
        config: RunConfig,
        change: impl FnOnce(ReactConfig) -> ReactConfig,
    ) -> Result<AgentState, FacadeError> {
        self.facade(change)?.run(input(query), config).await
    }

    fn facade(&self, change: impl FnOnce(ReactConfig) -> ReactConfig) -> Result<Facade, FacadeError> {
        let mut agent = self.agent.clone();
        agent.config = Some(change(agent.config.unwrap_or_else(ReactConfig::opencode)));
        Ok(Facade::new(agent, ReactConfig::opencode)?)
    }
}

impl ReactLoop {
    /// The loop with 15 steps, retries and the detection of doom loops.
    pub fn new(client: AiClient) -> Self {
        let (enable_retry, enable_doom_detection) = (true, true);
        Self { client, max_steps: 15, enable_retry, enable_doom_detection, parts: Vec::new() }
    }

    /// Answers a query.
    ///
    /// # Errors
    /// [`FacadeError`]; a model that cannot be asked is one, once its retries are exhausted.
    pub async fn run(&mut self, query: &str) -> Result<String, FacadeError> {
        self.run_with(query, RunConfig::default()).await
    }

    /// The same, on a thread, or to be cancelled. On a thread the conversation goes on.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub async fn run_with(&mut self, query: &str, config: RunConfig) -> Result<String, FacadeError> {
        let state = self.client.turn(query, config, self.change()).await?;
        self.parts = state.parts.iter().cloned().collect();
        Ok(state.final_reply)
    }

    /// The same, told step by step; [`parts`](Self::parts) are there at its [`end`](Running::end).
    ///
    /// # Errors
    /// [`FacadeError::Build`]; all others come at the end.
    pub fn run_stream(&mut self, query: &str, config: RunConfig) -> Result<Running<'_>, FacadeError> {
        let facade = self.client.facade(self.change())?;
        Ok(running(&facade, query, config, Some(&mut self.parts)))
    }

    fn change(&self) -> impl FnOnce(ReactConfig) -> ReactConfig + use<> {
        let (max_steps, retry, doom) = (self.max_steps, self.enable_retry, self.enable_doom_detection);
        move |mut config: ReactConfig| {
            config.limit.max = max_steps;
            config.parts = true;
            if config.system_prompt.is_empty() {
                config.system_prompt = react_system_prompt(max_steps);
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
    config: RunConfig,
    parts: Option<&'a mut Vec<Part>>,
) -> Running<'a> {
    Running { turn: facade.begin(input(query), config), told: VecDeque::new(), is_in_step: false, parts }
}

/// What [`ReactLoop`] tells the model if its configuration has no system prompt: to think, act and observe in turn.
pub fn react_system_prompt(max_steps: u32) -> String {
    format!("# Role: an assistant that analyses fund investments, step by step\n\n{}", react_rules(max_steps))
}

/// The same without whom the model is to be.
pub fn react_rules(max_steps: u32) -> String {
    format!(
        "\
Work in rounds of Think → Act → Observe:

1. Think: say what is still unknown and which tool can tell it.
2. Act: call that tool.
3. Observe: read what it returned and decide whether it is enough.

When it is enough, stop calling tools and give the Final Answer.

## Example

User: How did my savings plan do last month? Was anything odd?

Think: I need the orders of that month.
Act: get_action(fund_code=\"001551\", period=\"1m\")
Observe: ten orders, two of them for less than the others.

Think: a limit may have cut those two.
Act: get_restriction(fund_code=\"001551\", date=\"2024-11-15\")
Observe: at most 2000 a day at that time.

Final Answer: Ten orders were placed; two were filled in part, because of a daily limit.

## Rules

- Call one or two tools at a time.
- There are at most {max_steps} steps, so plan them.
- Never make data up: every statement rests on what a tool returned.
"
    )
}
