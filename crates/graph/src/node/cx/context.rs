//! The caller's context of one run.

use serde::{Serialize, de::DeserializeOwned};

use crate::{Cx, NodeError, RunConfig};

impl RunConfig {
    /// Sets the [`context`](Self::context): a value of the type that the nodes expect, or an equivalent map.
    #[must_use]
    pub fn with_context(self, context: impl Serialize) -> Self {
        let context = serde_json::to_value(context).expect("a context has a JSON form");
        Self { context, ..self }
    }
}

impl Cx {
    /// Returns the caller's [`RunConfig::context`] as a `T`; without one it is `null`, so that an `Option<T>`
    /// is `None`.
    ///
    /// # Errors
    /// If it does not fit `T`. The error is fatal, because a retry cannot help.
    ///
    /// # Example
    /// ```
    /// # use superstep_graph::*;
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Chat { answer: String }
    /// #[derive(serde::Deserialize)]
    /// struct User {
    ///     name: String,
    /// }
    ///
    /// async fn greet(_: Chat, cx: Cx) -> Result<ChatUpdate, NodeError> {
    ///     let user: Option<User> = cx.context()?;
    ///     let name = user.map_or("stranger".to_owned(), |user| user.name);
    ///     Ok(Chat::update().answer(format!("Hello, {name}")))
    /// }
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let mut graph = StateGraph::<Chat>::new("greet");
    /// # let greet = graph.add_node("greet", greet);
    /// # graph.add_edge(START, greet);
    /// # let graph = graph.compile()?;
    /// let config = RunConfig::default().with_context(serde_json::json!({ "name": "Ada" }));
    /// assert_eq!(graph.invoke(Chat::update(), config).await?.state.answer, "Hello, Ada");
    /// let end = graph.invoke(Chat::update(), RunConfig::default()).await?;
    /// assert_eq!(end.state.answer, "Hello, stranger");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn context<T: DeserializeOwned>(&self) -> Result<T, NodeError> {
        let unfit = |source| BadContext { wanted: std::any::type_name::<T>(), source };
        T::deserialize(&self.run.context).map_err(|source| NodeError::new(unfit(source)).fatal())
    }
}

/// A context of another type than the node expects.
#[derive(Debug, thiserror::Error)]
#[error("SS166: the context of this run is no `{wanted}`; give it another with `RunConfig::context`")]
struct BadContext {
    wanted: &'static str,
    source: serde_json::Error,
}
