//! The loop of the preset `opencode`: a query in, the final answer out.
//!
//! Start at [`ReactLoop`], or at [`AiClient`] for a single round.

use superstep_graph::{RunConfig, State};
use superstep_llm::Message;

use super::{Facade, FacadeError};
use crate::{AgentBuilder, AgentState, Part, ReactConfig};

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

    async fn turn(
        &self,
        query: &str,
        config: RunConfig,
        change: impl FnOnce(ReactConfig) -> ReactConfig,
    ) -> Result<AgentState, FacadeError> {
        let mut agent = self.agent.clone();
        agent.config = Some(change(agent.config.unwrap_or_else(ReactConfig::opencode)));
        let facade = Facade::new(agent, ReactConfig::opencode)?;
        facade.run(AgentState::update().messages([Message::user(query)]), config).await
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
        let (max_steps, retry, doom) = (self.max_steps, self.enable_retry, self.enable_doom_detection);
        let change = |mut config: ReactConfig| {
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
        };
        let state = self.client.turn(query, config, change).await?;
        self.parts = state.parts.iter().cloned().collect();
        Ok(state.final_reply)
    }
}

/// What [`ReactLoop`] tells the model if its configuration has no system prompt: to think, act and observe in turn.
pub fn react_system_prompt(max_steps: u32) -> String {
    format!(
        "\
# Role: an assistant that analyses fund investments, step by step

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
