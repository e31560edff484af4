//! The loop of the preset `cococat`: a prompt in, the content and a number of rounds out.
//!
//! Start at [`AgentLoop`].

use serde::{Deserialize, Serialize};
use superstep_graph::{RunConfig, State};
use superstep_llm::Message;

use super::{Facade, FacadeError};
use crate::{Agent, AgentBuilder, AgentError, AgentState, ReactConfig};
#[cfg(feature = "workspace-tools")]
use crate::{Dreams, memory::owner};

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
    #[cfg(feature = "workspace-tools")]
    dreams: Option<Dreams>,
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
        Ok(Self {
            facade: Facade::new(agent, ReactConfig::cococat)?,
            #[cfg(feature = "workspace-tools")]
            dreams: None,
        })
    }

    /// The same, which writes each turn down in the history of `dreams`, and then dreams if it is time, before it returns. What
    /// becomes of a dream does not reach the reply: [`Dreams::listener`] hears it, and the cursor keeps how it ended.
    ///
    /// # Errors
    /// Those of [`AgentBuilder::build`].
    #[cfg(feature = "workspace-tools")]
    pub fn with_dreams(agent: AgentBuilder, dreams: Dreams) -> Result<Self, AgentError> {
        let agent = agent.history(dreams.history().clone());
        Ok(Self { dreams: Some(dreams), ..Self::new(agent)? })
    }

    /// The agent inside.
    pub fn agent(&self) -> &Agent {
        &self.facade.agent
    }

    /// Answers a prompt of this user, in a conversation that begins with it and is kept on no thread. With dreams its turn is a line of
    /// the user's history.
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
        let input = AgentState::update().messages([Message::user(prompt)]).user_id(user_id).cwd(None);
        #[cfg(feature = "workspace-tools")]
        let after = config.clone();
        let state = self.facade.run(input, config).await?;
        #[cfg(feature = "workspace-tools")]
        if let (Some(dreams), Some(user)) = (&self.dreams, owner(&state, after.thread.as_ref())) {
            // Told and noted where it failed; the reply is as good without it.
            let _ = dreams.dream_if_due(&user, after).await;
        }
        Ok(CococatReply { content: state.final_reply, iterations: state.metadata.steps_taken })
    }
}
