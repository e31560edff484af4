//! Parts of a state as inputs, outputs and arguments of nodes.
//!
//! Start at [`View`].

use crate::{CompiledGraph, Outcome, RunConfig, RunError, State, View};

impl<S: State> CompiledGraph<S> {
    /// Runs the graph like [`invoke`](Self::invoke), with an input and an outcome that have a part of the
    /// state only.
    pub async fn invoke_as<I, V>(&self, input: I, config: RunConfig) -> Result<Outcome<V>, RunError>
    where
        I: Into<S::Update>,
        V: View<S>,
    {
        Ok(self.invoke(input.into(), config).await?.view())
    }
}
