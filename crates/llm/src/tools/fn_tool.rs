//! Tools made from functions.

use std::{fmt, future::Future, io, marker::PhantomData, path::Path, sync::Arc};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Behaviour, Subject, Tool, ToolCx, ToolError, ToolFuture, ToolReply, ToolSpec};

/// A tool made of a function; see [`tool_fn`].
pub struct FnTool<Args, F> {
    spec: ToolSpec,
    behaviour: Behaviour,
    changes_files: Option<bool>,
    asks: Option<QuestionOf>,
    subject: Option<SubjectOf>,
    moves: Option<InFolder>,
    run: F,
    args: PhantomData<fn(Args)>,
}

type QuestionOf = Arc<dyn Fn(&Value) -> Option<String> + Send + Sync>;
type SubjectOf = Arc<dyn Fn(&str, &Value) -> Option<Subject> + Send + Sync>;
type InFolder = Arc<dyn Fn(&Path) -> io::Result<Arc<dyn Tool>> + Send + Sync>;

/// Creates a tool from an async function with typed arguments.
///
/// # Errors
/// Arguments that match the schema of `spec` but not `Args` are [`ToolError::InvalidArguments`].
/// # Example
/// ```
/// use superstep_llm::{Tool, ToolCx, ToolError, ToolSpec, tool_fn};
///
/// #[derive(schemars::JsonSchema, serde::Deserialize)]
/// struct Add {
///     a: i64,
///     b: i64,
/// }
///
/// let add = tool_fn(ToolSpec::of::<Add>("add", "Adds two integers."), |args: Add, _cx: ToolCx| async move {
///     let sum = args.a.checked_add(args.b).ok_or_else(|| ToolError::failed("the sum is too large"))?;
///     Ok(sum.to_string())
/// });
/// assert_eq!(add.spec().parameters["required"], serde_json::json!(["a", "b"]));
/// ```
pub fn tool_fn<Args, F, Fut, R>(spec: ToolSpec, run: F) -> FnTool<Args, F>
where
    Args: DeserializeOwned,
    F: Fn(Args, ToolCx) -> Fut + Send + Sync,
    Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
    R: Into<ToolReply>,
{
    let behaviour = Behaviour::default();
    FnTool {
        spec,
        behaviour,
        changes_files: None,
        asks: None,
        subject: None,
        moves: None,
        run,
        args: PhantomData,
    }
}

impl<Args, F> FnTool<Args, F> {
    /// Sets the execution requirements.
    #[must_use]
    pub fn with_behaviour(self, behaviour: Behaviour) -> Self {
        Self { behaviour, ..self }
    }

    /// Sets whether its calls may change files: see [`Tool::changes_files`].
    #[must_use]
    pub fn with_changes_files(self, changes_files: bool) -> Self {
        Self { changes_files: Some(changes_files), ..self }
    }

    /// Sets the function that returns the question to a person before a call: see [`Tool::approval`].
    #[must_use]
    pub fn with_approval(self, asks: impl Fn(&Value) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { asks: Some(Arc::new(asks)), ..self }
    }

    /// Sets the subjects of the arguments: see [`Tool::subject`].
    #[must_use]
    pub fn with_subject(
        self,
        subject: impl Fn(&str, &Value) -> Option<Subject> + Send + Sync + 'static,
    ) -> Self {
        Self { subject: Some(Arc::new(subject)), ..self }
    }

    /// Sets the function that binds the tool to another folder: see [`Tool::in_folder`].
    #[must_use]
    pub fn with_folder(
        self,
        make: impl Fn(&Path) -> io::Result<Arc<dyn Tool>> + Send + Sync + 'static,
    ) -> Self {
        Self { moves: Some(Arc::new(make)), ..self }
    }
}

impl<Args, F> fmt::Debug for FnTool<Args, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnTool").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

impl<Args, F, Fut, R> Tool for FnTool<Args, F>
where
    Args: DeserializeOwned,
    F: Fn(Args, ToolCx) -> Fut + Send + Sync,
    Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
    R: Into<ToolReply>,
{
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn behaviour(&self) -> Behaviour {
        self.behaviour
    }

    fn approval(&self, args: &Value) -> Option<String> {
        self.asks.as_ref().and_then(|asks| asks(args))
    }

    fn changes_files(&self) -> Option<bool> {
        self.changes_files
    }

    fn subject(&self, argument: &str, args: &Value) -> Option<Subject> {
        self.subject.as_ref().and_then(|subject| subject(argument, args))
    }

    fn in_folder(&self, folder: &Path) -> io::Result<Option<Arc<dyn Tool>>> {
        self.moves.as_ref().map(|make| make(folder)).transpose()
    }

    fn call(&self, args: Value, cx: ToolCx) -> ToolFuture<'_> {
        match serde_json::from_value(args) {
            Ok(args) => {
                let answer = (self.run)(args, cx);
                Box::pin(async { answer.await.map(Into::into) })
            }
            Err(cause) => Box::pin(std::future::ready(Err(ToolError::InvalidArguments(cause.to_string())))),
        }
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(JsonSchema, Deserialize)]
    struct Trip {
        to: Place,
        nights: Option<u32>,
    }

    #[derive(JsonSchema, Deserialize)]
    struct Place {
        city: String,
    }

    #[tokio::test]
    async fn a_function_tool_gets_its_arguments_typed() {
        let tool = tool_fn(ToolSpec::of::<Trip>("book", ""), |trip: Trip, cx: ToolCx| async move {
            Ok(format!("{} {:?} {}", trip.to.city, trip.nights, cx.call_id))
        });
        let text = tool.call(json!({"to": {"city": "Paris"}}), ToolCx::new("c1")).await;
        assert_eq!(text, Ok("Paris None c1".into()));
        let error = tool.call(json!({"to": 1}), ToolCx::new("c1")).await.unwrap_err();
        assert_eq!(
            error,
            ToolError::InvalidArguments("invalid type: integer `1`, expected struct Place".into())
        );
    }
}
