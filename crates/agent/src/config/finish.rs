//! How a turn gets its reply.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How the model says what the user gets, and what becomes of an answer that does not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Finish {
    /// What ends a turn whose reply is a text.
    pub by: FinishBy,
    /// The name of the finish tool.
    pub tool: String,
    /// Whether a text without calls is taken for a call of the finish tool, where that is what is to end the turn. Otherwise
    /// the model is told to call it, which counts as a retry.
    pub convert_text: bool,
    /// The JSON Schema of the reply, if it is not only a text. A turn may bring a schema of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// How a reply is given that has a schema.
    pub output: OutputMode,
    /// How often the model may try again in a turn, when its reply was not as it is to be.
    pub retries: u32,
}

/// What ends a turn whose reply is a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishBy {
    /// An answer without tool calls.
    #[default]
    PlainText,
    /// A call of the finish tool, which has the text as its argument `response`.
    Tool,
}

/// How a reply is given that has a schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OutputMode {
    /// By a call of the finish tool, whose arguments are the fields of the schema.
    #[default]
    Tool,
    /// As the text of an answer, to which the provider holds the model (`response_format`).
    Native,
    /// As the text of an answer, as the system prompt asks for it.
    Prompted,
}

impl Default for Finish {
    fn default() -> Self {
        Self {
            by: FinishBy::PlainText,
            tool: "generate_response".into(),
            convert_text: true,
            schema: None,
            output: OutputMode::Tool,
            retries: 2,
        }
    }
}
