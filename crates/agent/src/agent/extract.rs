//! Replies of a Rust type.
//!
//! Start at [`AgentThread::extract`].

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use superstep_graph::{RunError, State};
use superstep_llm::{Message, ToolSpec};

use super::{handle::Reply, thread::AgentThread};
use crate::{AgentOutcome, AgentState, HasAgent};

impl<S: HasAgent> AgentThread<S> {
    /// Replies to a message with a value of a type. The reply of this turn must match the type's schema; see
    /// [`ReactConfig::finish`](crate::ReactConfig::finish) for the output mode.
    ///
    /// # Errors
    /// [`ExtractError`] if the run fails, or the turn ends without such a value.
    pub async fn extract<T: DeserializeOwned + JsonSchema>(&self, text: &str) -> Result<T, ExtractError> {
        let mut schema = ToolSpec::of::<T>("", "").parameters;
        bound_integers(&mut schema);
        let input = AgentState::update().messages([Message::user(text)]).output_schema(schema).cwd(None);
        let end = self.run(S::agent_update(input)).await?;
        let problem = end.state.agent().output_problem.clone();
        let reply = Reply::from(end);
        match reply.read() {
            Ok(Some(value)) => Ok(value),
            Ok(None) if reply.outcome == AgentOutcome::InvalidOutput => {
                Err(ExtractError::Invalid { problem, reply })
            }
            Ok(None) => Err(ExtractError::NoOutput { reply }),
            Err(error) => Err(ExtractError::Type { problem: error.to_string(), reply }),
        }
    }
}

impl Reply {
    /// Deserializes the reply; `None` if it has no schema, or no reply matched it.
    ///
    /// # Errors
    /// If the value cannot be deserialized.
    pub fn read<T: DeserializeOwned>(&self) -> Result<Option<T>, serde_json::Error> {
        self.output.clone().map(serde_json::from_value).transpose()
    }
}

/// Adds the bounds of each integer type of up to 32 bits to the schema, because validators ignore the format.
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
            // Other keywords do not contain schemas, whatever their value looks like.
            let schemas = fields
                .iter_mut()
                .filter(|(name, _)| !["const", "enum", "default", "examples"].contains(&name.as_str()));
            schemas.for_each(|(_, schema)| bound_integers(schema));
        }
        _ => {}
    }
}

/// The reason why there is no value.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// No reply matched the schema; `structured_output_invalid`.
    #[error("no reply matches the schema (structured_output_invalid): {problem}")]
    Invalid {
        /// The problem of the last one.
        problem: String,
        /// The turn, with the model's reply.
        reply: Reply,
    },
    /// The reply matches the schema, which does not express all requirements of the type, but cannot be
    /// deserialized. The model was not informed.
    #[error("the reply matches the schema of its type but cannot be read as that type: {problem}")]
    Type {
        /// The problem.
        problem: String,
        /// The turn, with the value as [`Reply::output`].
        reply: Reply,
    },
    /// The turn ended before there was a reply.
    #[error("the turn ended without a value: {}", reply.text)]
    NoOutput {
        /// The turn.
        reply: Reply,
    },
    /// The run failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

superstep_graph::__private::debug_by_chain!(ExtractError);
