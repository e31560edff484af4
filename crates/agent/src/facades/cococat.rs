//! The facade of the preset `cococat`: a prompt in, the content and a number of rounds out.
//!
//! Start at [`AgentLoop`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use superstep_graph::{RunOptions, State};
use superstep_llm::Message;

use super::facade::{Facade, FacadeError};
use crate::{Agent, AgentBuilder, AgentError, AgentState, ReactConfig, hooks::AfterTurn};

/// Replies to prompts, each of them a separate conversation.
///
/// ```
/// # use std::sync::Arc;
/// # use superstep_agent::{Agent, facades::cococat::AgentLoop};
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
    after: Option<Arc<dyn AfterTurn>>,
}

/// The result of [`AgentLoop::run`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CococatReply {
    /// The final reply; also the error, if the model is unavailable.
    pub content: String,
    /// Number of tool rounds.
    pub iterations: u32,
}

impl AgentLoop {
    /// Creates the loop of this agent. Defaults to the preset [`cococat`](ReactConfig::cococat).
    ///
    /// # Errors
    /// Those of [`AgentBuilder::build`].
    pub fn new(agent: AgentBuilder) -> Result<Self, AgentError> {
        Ok(Self { facade: Facade::new(agent, ReactConfig::cococat)?, after: None })
    }

    /// Runs this after each turn, before the reply is returned: for dreams, with their history as
    /// [`AgentBuilder::history`].
    #[must_use]
    pub fn after_turn(self, after: impl AfterTurn + 'static) -> Self {
        Self { after: Some(Arc::new(after)), ..self }
    }

    /// Returns the inner agent.
    pub fn agent(&self) -> &Agent {
        &self.facade.agent
    }

    /// Replies to a prompt of this user in a new conversation without a thread. With dreams, the turn is
    /// stored in the user's history.
    ///
    /// # Errors
    /// [`FacadeError`]; not for an unavailable model, unless the configuration changes the
    /// preset's handling.
    pub async fn run(&self, prompt: &str, user_id: &str) -> Result<CococatReply, FacadeError> {
        self.run_with(prompt, user_id, RunOptions::new()).await
    }

    /// Does the same with the options of the run: on a thread, where the conversation continues, or to cancel
    /// it.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub async fn run_with(
        &self,
        prompt: &str,
        user_id: &str,
        options: RunOptions,
    ) -> Result<CococatReply, FacadeError> {
        let input = AgentState::update().messages([Message::user(prompt)]).user_id(user_id).cwd(None);
        let given = options.clone();
        let state = self.facade.run(input, options).await?;
        if let (Some(after), Some(user)) = (&self.after, state.memory_owner(given.get_thread())) {
            after.after_turn(&user, given).await;
        }
        Ok(CococatReply { content: state.final_reply, iterations: state.metadata.steps_taken })
    }
}
