//! Error handlers: nodes that run in place of a failed node.

use std::{future::Future, panic::Location};

use super::state_graph::StateGraph;
use crate::{
    Cx, NodeFailure, Route, State,
    node::{
        NodeOutput, RoutingOutput,
        erased::{NodeFn, erase_handler, erase_routing_handler},
        refs::{NodeRef, RoutingRef},
    },
};

impl<S: State> StateGraph<S> {
    /// Declares a node that runs in place of `node` after its permanent failure: after its retries, after a
    /// timeout, or after a panic.
    ///
    /// It runs in the same superstep, with the state of `node`, and its update is folded in place of
    /// `node`'s. Then its own edges are followed, not those of `node`. It receives a [`NodeFailure`], which
    /// is stored: after a crash the handler runs again, and `node` does not. If the handler fails too, the
    /// run fails, unless it has its own handler.
    ///
    /// It is a regular node with its own [`NodeOptions`](crate::NodeOptions), except that no edge can lead to
    /// it. Interrupts are not failures and never reach it. A cancelled run that leaves attempts does not begin it.
    ///
    /// ```
    /// # use superstep_graph::{Cx, END, NodeError, NodeFailure, START, State, StateGraph};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Page { html: String, note: Option<String> }
    /// # let mut graph = StateGraph::<Page>::new("pages");
    /// let fetch = graph.add_node("fetch", async |_: Page, _: Cx| Err::<(), _>(NodeError::new("no route to host")));
    /// let fallback = graph.add_error_handler(fetch, "fallback", async |failure: NodeFailure, _: Page, _: Cx| {
    ///     Page::update().note(format!("{} failed: {}", failure.node, failure.message))
    /// });
    /// graph.add_edge(START, fetch);
    /// graph.add_edge(fallback, END);
    /// ```
    #[track_caller]
    pub fn add_error_handler<F, Fut>(&mut self, node: impl Into<NodeRef>, name: &str, handler: F) -> NodeRef
    where
        F: Fn(NodeFailure, S, Cx) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: NodeOutput<S>,
    {
        self.handle(node.into(), name, erase_handler(handler))
    }

    /// Declares an error handler with dependencies; each task gets a clone of them.
    #[track_caller]
    pub fn add_error_handler_with<D, F, Fut>(
        &mut self,
        node: impl Into<NodeRef>,
        name: &str,
        deps: D,
        handler: F,
    ) -> NodeRef
    where
        D: Clone + Send + Sync + 'static,
        F: Fn(D, NodeFailure, S, Cx) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: NodeOutput<S>,
    {
        self.add_error_handler(node, name, move |failure, state, cx| {
            handler(deps.clone(), failure, state, cx)
        })
    }

    /// Declares an error handler that chooses the next nodes, like a node of
    /// [`add_routing_node`](Self::add_routing_node).
    #[track_caller]
    pub fn add_routing_error_handler<F, Fut>(
        &mut self,
        node: impl Into<NodeRef>,
        name: &str,
        handler: F,
    ) -> RoutingRef<<Fut::Output as RoutingOutput<S>>::Route>
    where
        F: Fn(NodeFailure, S, Cx) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: RoutingOutput<S>,
    {
        let handler = self.handle(node.into(), name, erase_routing_handler(handler));
        self.chooses(!<Fut::Output as RoutingOutput<S>>::Route::ALL.is_empty());
        RoutingRef::new(handler)
    }

    /// Declares an error handler that chooses the next nodes, with dependencies; each task gets a clone of them.
    #[track_caller]
    pub fn add_routing_error_handler_with<D, F, Fut>(
        &mut self,
        node: impl Into<NodeRef>,
        name: &str,
        deps: D,
        handler: F,
    ) -> RoutingRef<<Fut::Output as RoutingOutput<S>>::Route>
    where
        D: Clone + Send + Sync + 'static,
        F: Fn(D, NodeFailure, S, Cx) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: RoutingOutput<S>,
    {
        self.add_routing_error_handler(node, name, move |failure, state, cx| {
            handler(deps.clone(), failure, state, cx)
        })
    }

    #[track_caller]
    fn handle(&mut self, node: NodeRef, name: &str, run: NodeFn<S>) -> NodeRef {
        let (handler, of) = (self.declare(name, run, false), self.endpoint(node));
        let place = Location::caller();
        let spec = self.topology.nodes.last_mut().expect("it was just declared");
        (spec.handles, spec.place) = (Some(of), place);
        handler
    }
}
