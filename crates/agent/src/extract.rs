//! Replies of a Rust type.
//!
//! Start at [`Agent::extract`].

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
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
        let mut schema = ToolSpec::of::<T>("", "").parameters;
        bound_integers(&mut schema);
        let input = AgentState::update().messages([Message::user(text)]).output_schema(schema).cwd(None);
        let end = self.process_input(S::agent_update(input), config).await?;
        let problem = end.state.agent().output_problem.clone();
        let reply = Reply::from(end);
        match reply.read() {
            Ok(Some(value)) => Ok(value),
            Ok(None) if reply.outcome == Some(AgentOutcome::InvalidOutput) => {
                Err(ExtractError::Invalid { problem, reply })
            }
            Ok(None) => Err(ExtractError::NoOutput { reply }),
            Err(error) => Err(ExtractError::Type { problem: error.to_string(), reply }),
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

/// Says of each integer of up to 32 bits which values its type has: its format, which no validator reads, says it to people only.
/// Larger bounds are numbers that not every provider can read.
fn bound_integers(schema: &mut Value) {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().for_each(bound_integers),
        Value::Object(fields) => {
            let bounds: Option<[Value; 2]> = match fields.get("format").and_then(Value::as_str) {
                Some("int8") => Some([i8::MIN.into(), i8::MAX.into()]),
                Some("int16") => Some([i16::MIN.into(), i16::MAX.into()]),
                Some("int32") => Some([i32::MIN.into(), i32::MAX.into()]),
                Some("uint8") => Some([u8::MIN.into(), u8::MAX.into()]),
                Some("uint16") => Some([u16::MIN.into(), u16::MAX.into()]),
                Some("uint32") => Some([u32::MIN.into(), u32::MAX.into()]),
                _ => None,
            };
            if let Some([least, most]) = bounds {
                fields.entry("minimum").or_insert(least);
                fields.entry("maximum").or_insert(most);
            }
            // What is under the others is no schema, whatever it looks like.
            let schemas = fields
                .iter_mut()
                .filter(|(name, _)| !["const", "enum", "default", "examples"].contains(&name.as_str()));
            schemas.for_each(|(_, schema)| bound_integers(schema));
        }
        _ => {}
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
    /// The reply fits the schema of the type, which does not say all that the type wants, and is no such value. The model was
    /// not told.
    #[error("the reply fits the schema of its type and is no such value: {problem}")]
    Type {
        /// What is wrong with it.
        problem: String,
        /// The turn, with the value as [`Reply::output`].
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
