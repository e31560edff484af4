//! Nodes that see a part of the state.
//!
//! Start at [`StateGraph::add_view_node`].

use std::future::Future;

use crate::{Cx, NodeRef, State, StateGraph, View, node::NodeOutput};

impl<S: State> StateGraph<S> {
    /// Declares a node that sees a part of the state. Its writes are not restricted.
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

    /// Declares a node that sees a part of the state, with dependencies; each task gets a clone of them.
    #[track_caller]
    pub fn add_view_node_with<D, V, F, Fut>(&mut self, name: &str, deps: D, node: F) -> NodeRef
    where
        D: Clone + Send + Sync + 'static,
        V: View<S>,
        F: Fn(D, V, Cx) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: NodeOutput<S>,
    {
        self.add_view_node(name, move |view, cx| node(deps.clone(), view, cx))
    }
}
