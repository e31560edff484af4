//! What `#[tool]` expands to.

use std::{any::Any, fmt::Display, path::PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::{Subject, ToolError, ToolReply};

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

/// What an argument stands for, by the option `subject`.
#[derive(Debug)]
pub enum Stands {
    /// A path in this folder.
    Path(PathBuf),
    /// An address.
    Url,
    /// A command line.
    Command,
    /// Text that means what it says.
    Text,
}

/// The subject of an argument of a call, or of the default that its schema has for it.
pub fn subject(stands: &[(&str, Stands)], schema: &Value, argument: &str, args: &Value) -> Option<Subject> {
    let (_, stands) = stands.iter().find(|(name, _)| *name == argument)?;
    let given = match &args[argument] {
        Value::Null => &schema["properties"][argument]["default"],
        given => given,
    };
    Some(match (stands, given) {
        (Stands::Path(folder), Value::String(text)) => Subject::path(folder, text),
        (Stands::Url, Value::String(text)) => Subject::Url(text.clone()),
        (Stands::Command, Value::String(text)) => Subject::Command(text.clone()),
        (Stands::Text, Value::String(text)) => Subject::Text(text.clone()),
        (Stands::Text, Value::Null) => return None,
        // What the tool takes in the place of a path nobody knows, and a subject is one thing.
        _ => Subject::Unknown,
    })
}
