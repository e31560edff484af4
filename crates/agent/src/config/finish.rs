//! The form of a turn's reply.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The way in which the model returns the reply, and the handling of invalid replies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Finish {
    /// The end of a turn whose reply is text.
    pub by: FinishBy,
    /// The name of the finish tool.
    pub tool: String,
    /// Treats a text without calls as a call of the finish tool, where that tool ends the turn. Otherwise the
    /// model is instructed to call it, which counts as a retry.
    pub convert_text: bool,
    /// The JSON Schema of the reply, if it is not plain text. A turn may provide its own schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The way to return a reply that has a schema.
    pub output: OutputMode,
    /// Maximum number of retries in a turn after an invalid reply.
    pub retries: u32,
}

/// The end of a turn whose reply is text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishBy {
    /// A response without tool calls.
    #[default]
    PlainText,
    /// A call of the finish tool, which has the text as its argument `response`.
    Tool,
}

/// The way to return a reply that has a schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OutputMode {
    /// By a call of the finish tool, whose arguments are the fields of the schema.
    #[default]
    Tool,
    /// The text of a response, constrained by the provider (`response_format`).
    Native,
    /// The text of a response, as requested by the system prompt.
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
