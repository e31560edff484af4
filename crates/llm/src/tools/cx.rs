//! The context of a tool call.

use std::{
    any::{Any, TypeId, type_name},
    collections::BTreeMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{Subject, ToolError};

/// The context of a [`Tool`](crate::Tool) call. Cheap to clone.
#[derive(Clone)]
pub struct ToolCx {
    /// The id of the call.
    pub call_id: String,
    /// A key that is equal for every attempt of the same call and different for any other call. Pass it to
    /// services that support idempotency keys.
    pub idempotency_key: String,
    /// Fires when the run is cancelled or the tool's time limit is reached; a tool that honours it returns
    /// soon after.
    pub cancel: CancellationToken,
    permits: Option<Permits>,
    output: Option<Listen>,
    sent: Option<Arc<dyn Fn() + Send + Sync>>,
    asks: Option<Questions>,
    extensions: BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

/// A function that returns whether a call may access the subject of one of its arguments.
type Permits = Arc<dyn Fn(&str, &Subject) -> bool + Send + Sync>;

/// A listener for the output of a running tool.
type Listen = Arc<dyn Fn(&str) + Send + Sync>;

/// A function that answers the questions of a running tool.
type Questions = Arc<dyn Fn(ToolQuestion) -> AnswerFuture + Send + Sync>;

/// The future of one answer to a [`ToolQuestion`].
pub type AnswerFuture = Pin<Box<dyn Future<Output = Result<ToolAnswer, ToolError>> + Send>>;

/// A question of a running tool to the user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolQuestion {
    /// The author of the question, such as ``MCP server `bank` ``.
    pub from: String,
    /// The question itself.
    pub message: String,
    /// The JSON Schema of the values that answer it, an object.
    pub schema: Value,
}

/// The user's answer to a [`ToolQuestion`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolAnswer {
    /// These values, which fit the schema of the question.
    Accept(Value),
    /// The user gives no values; the tool may continue without them.
    Decline,
    /// The user dismissed the question.
    Cancel,
}

impl ToolCx {
    /// Creates the context of a call without cancellation, listener and extensions.
    pub fn new(call_id: impl Into<String>) -> Self {
        let call_id = call_id.into();
        Self {
            idempotency_key: call_id.clone(),
            call_id,
            cancel: CancellationToken::new(),
            permits: None,
            output: None,
            sent: None,
            asks: None,
            extensions: BTreeMap::new(),
        }
    }

    /// Emits intermediate output for observers of the run: progress, or the next part of a long output. The
    /// model reads only the tool's result.
    pub fn output(&self, chunk: &str) {
        if let Some(output) = self.output.as_ref().filter(|_| !chunk.is_empty()) {
            output(chunk);
        }
    }

    /// Reports that the call has been sent to where it is executed: the next call of the tool's [`Sequence`](crate::calls::Sequence) may
    /// follow, if both overlap. A tool that never reports it is followed when it returns.
    pub fn sent(&self) {
        if let Some(sent) = &self.sent {
            sent();
        }
    }

    /// Asks the user and returns the answer, whose values match the question's schema.
    ///
    /// An agent ends the call to get an answer: [`cancel`](Self::cancel) fires, and this future does not
    /// return. When the answer is available, the agent calls the tool again from its beginning, and an equal
    /// question returns immediately. The question informs the user that the call is repeated.
    ///
    /// # Errors
    /// [`ToolError::Failed`] if questions are not supported, or the schema is not the schema of an object.
    pub async fn ask(&self, question: ToolQuestion) -> Result<ToolAnswer, ToolError> {
        match &self.asks {
            Some(asks) => asks(question).await,
            None => Err(ToolError::failed("there is no user to answer it")),
        }
    }

    /// Sets the function that answers the tool's [questions](Self::ask).
    #[must_use]
    pub fn with_asks(self, asks: impl Fn(ToolQuestion) -> AnswerFuture + Send + Sync + 'static) -> Self {
        Self { asks: Some(Arc::new(asks)), ..self }
    }

    /// Returns whether the call may access the current subject of an argument, by the rules that allowed the
    /// call. A path may lead elsewhere since that decision. A tool that resolves paths must check this before
    /// it opens the resolved path.
    pub fn permits(&self, argument: &str, subject: &Subject) -> bool {
        self.permits.as_ref().is_none_or(|permits| permits(argument, subject))
    }

    /// Sets the function that decides [`permits`](Self::permits).
    #[must_use]
    pub fn with_permits(self, permits: impl Fn(&str, &Subject) -> bool + Send + Sync + 'static) -> Self {
        Self { permits: Some(Arc::new(permits)), ..self }
    }

    /// Returns a value that the agent adds to the calls of its tools, by type. Agents of this library add the state before
    /// the round and, if present, the `ThreadId` of the run, the store as an `Arc<dyn Store>`, and the
    /// context of the run as a `serde_json::Value` if it is an object.
    ///
    /// # Errors
    /// [`ToolError::Failed`] if there is no value of this type.
    pub fn extension<T: Any + Send + Sync>(&self) -> Result<&T, ToolError> {
        let found = self.extensions.get(&TypeId::of::<T>()).and_then(|value| value.downcast_ref());
        found.ok_or_else(|| ToolError::Failed(format!("the agent gives its tools no `{}`", type_name::<T>())))
    }

    /// Sets a listener, which receives every chunk of [`output`](Self::output) as it is emitted.
    #[must_use]
    pub fn with_output(self, listen: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { output: Some(Arc::new(listen)), ..self }
    }

    /// Sets the function that is called when the tool reports that the call was [sent](Self::sent).
    #[must_use]
    pub fn with_sent(self, sent: impl Fn() + Send + Sync + 'static) -> Self {
        Self { sent: Some(Arc::new(sent)), ..self }
    }

    /// Adds a value that the tool reads with [`extension`](Self::extension). There is one value of each type.
    #[must_use]
    pub fn with_extension<T: Any + Send + Sync>(self, value: T) -> Self {
        self.with_shared(Arc::new(value))
    }

    /// Sets the value of type `T` without a copy; replaces another one of its type.
    #[must_use]
    pub fn with_shared<T: Any + Send + Sync>(mut self, value: Arc<T>) -> Self {
        self.extensions.insert(TypeId::of::<T>(), value);
        self
    }
}

impl fmt::Debug for ToolCx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolCx").field("call_id", &self.call_id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn extensions_are_found_by_their_type() {
        let cx = ToolCx::new("c1").with_extension(7_u32).with_extension("text".to_owned());
        assert_eq!((cx.extension::<u32>(), cx.extension::<String>()), (Ok(&7), Ok(&"text".to_owned())));
        let error = cx.extension::<i64>().unwrap_err();
        assert_eq!(error.to_string(), "the agent gives its tools no `i64`");
    }

    #[tokio::test]
    async fn a_question_goes_to_the_approver_if_there_is_one() {
        let question =
            ToolQuestion { from: "me".into(), message: "Sure?".into(), schema: serde_json::json!({}) };
        let nobody = ToolCx::new("c1").ask(question.clone()).await;
        assert_eq!(nobody, Err(ToolError::failed("there is no user to answer it")));
        let cx = ToolCx::new("c1")
            .with_asks(|asked| Box::pin(async move { Ok(ToolAnswer::Accept(Value::String(asked.message))) }));
        assert_eq!(cx.ask(question).await, Ok(ToolAnswer::Accept("Sure?".into())));
    }

    #[test]
    fn output_goes_to_the_listener() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = heard.clone();
        ToolCx::new("c1").output("nobody");
        let cx = ToolCx::new("c1").with_output(move |chunk| hears.lock().unwrap().push(chunk.to_owned()));
        cx.output("10 %");
        cx.output("");
        cx.clone().output("20 %");
        assert_eq!(*heard.lock().unwrap(), ["10 %", "20 %"]);
    }
}
