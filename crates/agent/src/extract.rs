//! Replies of a Rust type.
//!
//! Start at [`Agent::extract`].

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use superstep_graph::{RunConfig, RunError, State};
use superstep_llm::{Message, ToolSpec};

use crate::{Agent, AgentOutcome, AgentState, HasAgent, Reply};

impl<S: HasAgent> Agent<S> {
    /// Answers a message with a value of a type, whose schema the reply of this turn has to fit; see
    /// [`ReactConfig::finish`](crate::ReactConfig::finish) for how it is asked for.
    ///
    /// # Errors
    /// [`ExtractError`] if the run fails, or the turn ends without such a value.
    pub async fn extract<T: DeserializeOwned + JsonSchema>(
        &self,
        text: &str,
        config: RunConfig,
    ) -> Result<T, ExtractError> {
        let schema = ToolSpec::of::<T>("", "").parameters;
        let input = AgentState::update().messages([Message::user(text)]).output_schema(schema);
        let end = self.process_input(S::agent_update(input), config).await?;
        let problem = end.state.agent().output_problem.clone();
        let reply = Reply::from(end);
        match reply.read() {
            Ok(Some(value)) => Ok(value),
            Ok(None) if reply.outcome == Some(AgentOutcome::InvalidOutput) => {
                Err(ExtractError::Invalid { problem, reply })
            }
            Ok(None) => Err(ExtractError::NoOutput { reply }),
            Err(error) => Err(ExtractError::Invalid { problem: error.to_string(), reply }),
        }
    }
}

impl Reply {
    /// The reply as a value of a type; `None` if it has no schema, or no reply fitted it.
    ///
    /// # Errors
    /// If it is no such value.
    pub fn read<T: DeserializeOwned>(&self) -> Result<Option<T>, serde_json::Error> {
        self.output.clone().map(serde_json::from_value).transpose()
    }
}

/// Why there is no value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// No reply fitted the schema; `structured_output_invalid`.
    #[error("no reply fits the schema (structured_output_invalid): {problem}")]
    Invalid {
        /// What is wrong with the last one.
        problem: String,
        /// The turn, with what the model said.
        reply: Reply,
    },
    /// The turn ended before there was one.
    #[error("the turn ended without a value: {}", reply.final_reply)]
    NoOutput {
        /// The turn.
        reply: Reply,
    },
    /// The run failed.
    #[error(transparent)]
    Run(#[from] RunError),
}
