//! What a model may call.

use std::{borrow::Cow, fmt, future::Future, marker::PhantomData, pin::Pin};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// What a model is told of a [`Tool`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name it is called by.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// The JSON Schema of its arguments, an object.
    pub parameters: Value,
}

impl ToolSpec {
    /// The spec of a tool whose arguments are `Args`, a struct with named fields.
    ///
    /// The schema has its parts in place and says nothing of dialects: every provider reads it.
    pub fn of<Args: JsonSchema>(name: impl Into<String>, description: impl Into<String>) -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        });
        let mut schema = settings.into_generator().into_root_schema_for::<Args>();
        // The title is the name of a Rust type; the description stands in the spec.
        schema.remove("title");
        schema.remove("description");
        Self { name: name.into(), description: description.into(), parameters: schema.to_value() }
    }
}

/// The most characters of a tool's name.
pub(crate) const LONGEST_TOOL_NAME: usize = 64;

/// Whether every provider takes it as the name of a tool.
pub(crate) fn is_tool_name(name: &str) -> bool {
    let fits = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    !name.is_empty() && name.len() <= LONGEST_TOOL_NAME && name.chars().all(fits)
}

/// How a [`Tool`] wants to be treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// Its calls run alone, whatever else the model called at the same time.
    pub exclusive: bool,
    /// It is asked the same again and again until something changes: repeating it is no loop.
    pub poll: bool,
    /// Its result is the answer to the user: the model is not asked again.
    pub answers: bool,
    /// Calling it twice with one idempotency key does no harm, so that a call whose outcome is unknown may be repeated.
    pub idempotent: bool,
}

/// What a [`Tool`] gets beside its arguments.
#[derive(Clone, Debug)]
pub struct ToolCx {
    /// The id of the call it answers.
    pub call_id: String,
    /// Equal for every attempt of the same call, different for any other call: hand it to services that take one.
    pub idempotency_key: String,
    /// Fires when the run is cancelled or the tool's time is up; a tool that honours it returns soon after.
    pub cancel: CancellationToken,
}

/// What became of a tool call that failed: the text is what the model reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The arguments are valid JSON but not what the tool takes.
    #[error("{0}")]
    InvalidArguments(String),
    /// A rule or a person forbids the call.
    #[error("{0}")]
    Denied(String),
    /// The tool tried and failed.
    #[error("{0}")]
    Failed(String),
}

impl ToolError {
    /// A failure with any message.
    pub fn failed(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Failed(message.into().into_owned())
    }
}

/// The future of one tool call: the text the model reads, or why there is none.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<String, ToolError>> + Send + 'a>>;

/// The future of [`Tool::reconcile`].
pub type ReconcileFuture<'a> = Pin<Box<dyn Future<Output = Option<Result<String, ToolError>>> + Send + 'a>>;

/// Something a model may call.
pub trait Tool: Send + Sync {
    /// Name, description and argument schema.
    fn spec(&self) -> &ToolSpec;

    /// How it wants to be treated.
    fn behaviour(&self) -> Behaviour {
        Behaviour::default()
    }

    /// What a person is asked before this call runs, a few lines of text; `None` if nobody needs to be asked.
    ///
    /// Asked only for arguments that pass the schema. The executor asks; the tool does not.
    fn approval(&self, args: &Value) -> Option<String> {
        let _ = args;
        None
    }

    /// What came of the call with this idempotency key, if the tool can tell: it was begun, and the process stopped before
    /// its result was stored. `None` if not; then the model is told that nobody knows.
    fn reconcile<'a>(&'a self, idempotency_key: &'a str) -> ReconcileFuture<'a> {
        let _ = idempotency_key;
        Box::pin(std::future::ready(None))
    }

    /// Runs one call. `args` has been checked against the schema of [`Tool::spec`].
    fn call(&self, args: Value, cx: ToolCx) -> ToolFuture<'_>;
}

/// A tool made of a function; see [`tool_fn`].
pub struct FnTool<Args, F> {
    spec: ToolSpec,
    behaviour: Behaviour,
    run: F,
    args: PhantomData<fn(Args)>,
}

/// Makes a tool of an async function with typed arguments.
///
/// # Errors    Arguments that pass the schema of `spec` but are no `Args` are [`ToolError::InvalidArguments`].
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
pub fn tool_fn<Args, F, Fut>(spec: ToolSpec, run: F) -> FnTool<Args, F>
where
    Args: DeserializeOwned,
    F: Fn(Args, ToolCx) -> Fut + Send + Sync,
    Fut: Future<Output = Result<String, ToolError>> + Send + 'static,
{
    FnTool { spec, behaviour: Behaviour::default(), run, args: PhantomData }
}

impl<Args, F> FnTool<Args, F> {
    /// The same tool, to be treated like this.
    #[must_use]
    pub fn with_behaviour(self, behaviour: Behaviour) -> Self {
        Self { behaviour, ..self }
    }
}

impl<Args, F> fmt::Debug for FnTool<Args, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnTool").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

impl<Args, F, Fut> Tool for FnTool<Args, F>
where
    Args: DeserializeOwned,
    F: Fn(Args, ToolCx) -> Fut + Send + Sync,
    Fut: Future<Output = Result<String, ToolError>> + Send + 'static,
{
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn behaviour(&self) -> Behaviour {
        self.behaviour
    }

    fn call(&self, args: Value, cx: ToolCx) -> ToolFuture<'_> {
        match serde_json::from_value(args) {
            Ok(args) => Box::pin((self.run)(args, cx)),
            Err(cause) => Box::pin(std::future::ready(Err(ToolError::InvalidArguments(cause.to_string())))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Not for the model.
    #[derive(JsonSchema, Deserialize)]
    struct Trip {
        /// Where to.
        to: Place,
        nights: Option<u32>,
    }

    #[derive(JsonSchema, Deserialize)]
    struct Place {
        city: String,
    }

    fn cx() -> ToolCx {
        let cancel = CancellationToken::new();
        ToolCx { call_id: "c1".into(), idempotency_key: "k".into(), cancel }
    }

    #[test]
    fn a_schema_is_inlined_and_free_of_noise() {
        assert_eq!(
            ToolSpec::of::<Trip>("book", "Books a trip.").parameters,
            json!({
                "type": "object",
                "properties": {
                    "to": {
                        "description": "Where to.",
                        "type": "object",
                        "properties": {"city": {"type": "string"}},
                        "required": ["city"],
                    },
                    "nights": {"type": ["integer", "null"], "format": "uint32", "minimum": 0},
                },
                "required": ["to"],
            })
        );
    }

    #[tokio::test]
    async fn a_function_tool_gets_its_arguments_typed() {
        let tool = tool_fn(ToolSpec::of::<Trip>("book", ""), |trip: Trip, cx: ToolCx| async move {
            Ok(format!("{} {:?} {}", trip.to.city, trip.nights, cx.call_id))
        });
        let text = tool.call(json!({"to": {"city": "Paris"}}), cx()).await;
        assert_eq!(text, Ok("Paris None c1".into()));
        let error = tool.call(json!({"to": 1}), cx()).await.unwrap_err();
        assert_eq!(
            error,
            ToolError::InvalidArguments("invalid type: integer `1`, expected struct Place".into())
        );
    }
}
