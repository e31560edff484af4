//! The loop of the preset `cococat`: a prompt in, the content and a number of rounds out.
//!
//! Start at [`AgentLoop`].

use serde::{Deserialize, Serialize};
use superstep_graph::{RunConfig, State};
use superstep_llm::Message;

use super::{Facade, FacadeError};
use crate::{Agent, AgentBuilder, AgentError, AgentState, ReactConfig};

/// Answers prompts, each of them a conversation of its own.
///
/// ```
/// # use std::sync::Arc;
/// # use superstep_agent::{Agent, cococat::AgentLoop};
/// # use superstep_llm::ChatModel;
/// # async fn example(model: Arc<dyn ChatModel>) -> Result<(), Box<dyn std::error::Error>> {
/// let agent = AgentLoop::new(Agent::builder(model))?;
/// let reply = agent.run("What is 2 + 3?", "ada").await?;
/// println!("{} after {} rounds of tools", reply.content, reply.iterations);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AgentLoop {
    facade: Facade,
}

/// What [`AgentLoop::run`] returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CococatReply {
    /// The final reply; also what went wrong, if the model could not be asked.
    pub content: String,
    /// Rounds of tool calls.
    pub iterations: u32,
}

impl AgentLoop {
    /// The loop around this agent, with the preset [`cococat`](ReactConfig::cococat) if it has no configuration.
    ///
    /// # Errors
    /// Those of [`AgentBuilder::build`].
    pub fn new(agent: AgentBuilder) -> Result<Self, AgentError> {
        Ok(Self { facade: Facade::new(agent, ReactConfig::cococat)? })
    }

    /// The agent inside.
    pub fn agent(&self) -> &Agent {
        &self.facade.agent
    }

    /// Answers a prompt of this user, in a conversation that begins with it and is kept nowhere.
    ///
    /// # Errors
    /// [`FacadeError`]; never for a model that cannot be asked, as long as the preset says so.
    pub async fn run(&self, prompt: &str, user_id: &str) -> Result<CococatReply, FacadeError> {
        self.run_with(prompt, user_id, RunConfig::default()).await
    }

    /// The same, on a thread, or to be cancelled. On a thread the conversation goes on.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub async fn run_with(
        &self,
        prompt: &str,
        user_id: &str,
        config: RunConfig,
    ) -> Result<CococatReply, FacadeError> {
        let input = AgentState::update().messages([Message::user(prompt)]).user_id(user_id);
        let state = self.facade.run(input, config).await?;
        Ok(CococatReply { content: state.final_reply, iterations: state.metadata.steps_taken })
    }
}
