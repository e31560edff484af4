//! The caller's context of one run.

use serde::de::DeserializeOwned;

use crate::{Cx, NodeError};

impl Cx {
    /// Returns the run's context, the value of [`Thread::context`](crate::Thread::context), as a `T`. Without one it is read from `null`, so an
    /// `Option<T>` is `None`.
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
    /// assert_eq!(graph.without_thread().context(serde_json::json!({ "name": "Ada" })).run(Chat::update()).await?.state.answer, "Hello, Ada");
    /// let end = graph.run(Chat::update()).await?;
    /// assert_eq!(end.state.answer, "Hello, stranger");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn context<T: DeserializeOwned>(&self) -> Result<T, NodeError> {
        let unfit = |source| BadContext { wanted: std::any::type_name::<T>(), source };
        T::deserialize(&self.0.run.context).map_err(|source| NodeError::new(unfit(source)).fatal())
    }
}

/// A context of another type than the node expects.
#[derive(Debug, thiserror::Error)]
#[error("SS166: the context of this run cannot be read as `{wanted}`; pass another with `Thread::context`")]
struct BadContext {
    wanted: &'static str,
    source: serde_json::Error,
}
