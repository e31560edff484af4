//! Parts of a state: what goes in, what comes out, and what a node sees.
//!
//! Start at [`View`].

use std::future::Future;

use crate::{CompiledGraph, Cx, NodeOutput, NodeRef, Outcome, RunConfig, RunError, State, StateGraph};

/// Some channels of a state, as a struct of its own. Write `#[derive(View)]`.
///
/// A node that takes a view sees those channels and no others, and a caller who takes one gets no more. What goes in is an
/// update; `#[derive(Input)]` makes one of a struct that has a field for each channel that callers may write.
///
/// ```
/// use superstep_graph::{Cx, Input, RunConfig, START, State, StateGraph, View};
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Chat {
///     question: String,
///     answer: String,
///     seen: i64,
/// }
///
/// #[derive(Input, View, Debug)]
/// #[input(of = Chat)]
/// #[view(of = Chat)]
/// struct Ask {
///     question: String,
/// }
///
/// #[derive(View, Debug, PartialEq)]
/// #[view(of = Chat)]
/// struct Reply {
///     answer: String,
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let mut graph = StateGraph::<Chat>::new("chat");
/// let node = graph.add_view_node("node", async |ask: Ask, _: Cx| {
///     Chat::update().answer(ask.question + "!").seen(1)
/// });
/// graph.add_edge(START, node);
/// let ask = Ask { question: "hi".into() };
/// let end = graph.compile()?.invoke_as::<Ask, Reply>(ask, RunConfig::default()).await?;
/// assert_eq!(end.state, Reply { answer: "hi!".into() });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no view of the state `{S}`",
    label = "not a view of `{S}`",
    note = "derive it: `#[derive(View)] #[view(of = {S})]` on a struct with some of its channels"
)]
pub trait View<S> {
    /// What the view shows of `state`.
    fn view(state: &S) -> Self;
}

impl<S: State> StateGraph<S> {
    /// Declares a node that sees a part of the state. What it may write is not restricted.
    #[track_caller]
    pub fn add_view_node<V, F, Fut>(&mut self, name: &str, node: F) -> NodeRef
    where
        V: View<S>,
        F: Fn(V, Cx) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: NodeOutput<S>,
    {
        self.add_node(name, move |state, cx| node(V::view(&state), cx))
    }
}

impl<S: State> CompiledGraph<S> {
    /// Like [`invoke`](Self::invoke), with an input and an outcome that have a part of the state only.
    ///
    /// # Errors
    /// Those of [`invoke`](Self::invoke).
    pub async fn invoke_as<I, V>(&self, input: I, config: RunConfig) -> Result<Outcome<V>, RunError>
    where
        I: Into<S::Update>,
        V: View<S>,
    {
        Ok(self.invoke(input.into(), config).await?.view())
    }
}

impl<S: State> Outcome<S> {
    /// The same outcome, with a part of the state only.
    pub fn view<V: View<S>>(self) -> Outcome<V> {
        let Self { state, status, checkpoint, interrupts, drained } = self;
        Outcome { state: V::view(&state), status, checkpoint, interrupts, drained }
    }
}
