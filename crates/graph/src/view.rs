//! Parts of a state: what goes in, what comes out, and what a node sees.
//!
//! Start at [`View`].

use std::future::Future;

use crate::{CompiledGraph, Cx, NodeOutput, NodeRef, Outcome, RunConfig, RunError, State, StateGraph, View};

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
