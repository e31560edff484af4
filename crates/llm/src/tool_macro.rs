//! What `#[tool]` expands to.

use std::{any::Any, fmt::Display};

use serde::Serialize;
use serde_json::Value;

use crate::{ToolError, ToolReply};

/// What a tool may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the result of a tool",
    label = "no text, not `Serialize`, and no `ToolReply`",
    note = "return text, something that is `Serialize`, a `ToolReply`, or a `Result` of these"
)]
pub trait IntoReply {
    /// Text as it is, everything else as JSON.
    fn into_reply(self) -> Result<ToolReply, ToolError>;
}

impl IntoReply for ToolReply {
    fn into_reply(self) -> Result<ToolReply, ToolError> {
        Ok(self)
    }
}

impl<T: Serialize> IntoReply for T {
    fn into_reply(self) -> Result<ToolReply, ToolError> {
        match serde_json::to_value(self) {
            Ok(Value::String(text)) => Ok(text.into()),
            Ok(value) => Ok(value.to_string().into()),
            Err(error) => Err(ToolError::Failed(format!("the result has no JSON form: {error}"))),
        }
    }
}

/// The reply of a tool that cannot fail.
pub fn plain<R: IntoReply>(returned: R) -> Result<ToolReply, ToolError> {
    returned.into_reply()
}

/// The reply of a tool that can.
pub fn fallible<R: IntoReply, E: Display + Any>(returned: Result<R, E>) -> Result<ToolReply, ToolError> {
    returned
        .map_err(|error| match (&error as &dyn Any).downcast_ref::<ToolError>() {
            Some(error) => error.clone(),
            None => ToolError::Failed(error.to_string()),
        })?
        .into_reply()
}
