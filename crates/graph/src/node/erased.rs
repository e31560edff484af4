//! Nodes without the types of their functions.
//!
//! Start at [`erase`].

use std::{future::Future, sync::Arc};

use futures::{FutureExt as _, future::BoxFuture};
use serde::de::DeserializeOwned;
use superstep_state::IntoUpdate as _;

use crate::{
    Cx, NodeError, NodeFailure, State,
    node::{NodeOutput, RoutingOutput, output::Written},
};

pub(crate) type NodeFn<S> =
    Arc<dyn Fn(S, Cx) -> BoxFuture<'static, Result<Written<S>, NodeError>> + Send + Sync>;

pub(crate) fn erase<S, F, Fut>(node: F) -> NodeFn<S>
where
    S: State,
    F: Fn(S, Cx) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: NodeOutput<S>,
{
    // An `async` block would store the future twice: captured and awaited.
    Arc::new(move |state, cx| {
        Box::pin(node(state, cx).map(|output| output.into_update().map(Written::update)))
    })
}

pub(crate) fn erase_routing<S, F, Fut>(node: F) -> NodeFn<S>
where
    S: State,
    F: Fn(S, Cx) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: RoutingOutput<S>,
{
    Arc::new(move |state, cx| Box::pin(node(state, cx).map(|output| output.into_command()?.into_written())))
}

pub(crate) fn erase_worker<I, S, F, Fut>(worker: F) -> NodeFn<S>
where
    I: DeserializeOwned,
    S: State,
    F: Fn(I, S, Cx) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: NodeOutput<S>,
{
    Arc::new(move |state, cx| {
        let item = serde_json::from_str(cx.0.item.as_deref().unwrap_or("null"));
        let future = item.map(|item| worker(item, state, cx));
        Box::pin(async move {
            let future = future.map_err(|error| NodeError::new(BadItem(error)).fatal())?;
            future.await.into_update().map(Written::update)
        })
    })
}

pub(crate) fn erase_handler<S, F, Fut>(handler: F) -> NodeFn<S>
where
    S: State,
    F: Fn(NodeFailure, S, Cx) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: NodeOutput<S>,
{
    erase(move |state, cx| handler(failure_of(&cx), state, cx))
}

pub(crate) fn erase_routing_handler<S, F, Fut>(handler: F) -> NodeFn<S>
where
    S: State,
    F: Fn(NodeFailure, S, Cx) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: RoutingOutput<S>,
{
    erase_routing(move |state, cx| handler(failure_of(&cx), state, cx))
}

fn failure_of(cx: &Cx) -> NodeFailure {
    cx.0.failure.as_deref().expect("only a failure leads to an error handler").clone()
}

/// An item that does not fit its worker: another version of the program stored it.
#[derive(Debug, thiserror::Error)]
#[error("its stored item does not fit the type that the node takes now")]
struct BadItem(#[source] serde_json::Error);
