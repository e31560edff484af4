//! What a node is, once its type is erased.

use std::{
    error::Error,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use serde::de::DeserializeOwned;
use superstep_engine::{ChannelSet, NodeIndex, OnCancel, Target};
use superstep_state::internal::Refuses;

use crate::{
    BadUpdate, Cx, IntoUpdate, NodeError, NodeFailure, Panicked, Retries, Route, RoutingOutput, State,
    cache::NodeCache, command::Written, discard::OnDiscard, subgraph::Subgraph,
};

/// What a node may return: an update, nothing, or a `Result` of either.
#[diagnostic::on_unimplemented(
    message = "a node of a `StateGraph<{S}>` cannot return `{Self}`",
    label = "not an update of `{S}`",
    note = "return the update type of the state (made by `#[derive(State)]`, begun with `{S}::update()`), `()`, or a \
            `Result` of either whose error implements `std::error::Error`; a node that returns a `Command` or a route is \
            declared with `add_routing_node`"
)]
pub trait NodeOutput<S: State>: IntoUpdate<S, NodeError> {}

#[diagnostic::do_not_recommend]
impl<S: State, O: IntoUpdate<S, NodeError>> NodeOutput<S> for O {}

/// What a router may return: a route, or several.
pub trait Routes {
    /// The enum of routes.
    type Route: Route;

    /// Whether it is always exactly one.
    const ONE: bool = false;

    /// Hands over each route in order.
    fn each(self, take: impl FnMut(Self::Route));
}

impl<R: Route> Routes for R {
    type Route = R;
    const ONE: bool = true;

    fn each(self, mut take: impl FnMut(R)) {
        take(self);
    }
}

impl<R: Route> Routes for Vec<R> {
    type Route = R;

    fn each(self, take: impl FnMut(R)) {
        self.into_iter().for_each(take);
    }
}

/// How a node is run.
#[derive(Clone)]
pub struct NodeOptions {
    /// After which failures it runs again, and how often.
    pub retry: Retries,
    /// How long one attempt may take. It is noticed while the node waits: what blocks its thread cannot be stopped.
    pub timeout: Option<Duration>,
    /// How long an attempt may go without a sign of life: an event that it sends, or
    /// [`Cx::heartbeat`](crate::Cx::heartbeat). The same in a graph that it calls is one too, and so is the end of a task
    /// there.
    pub idle_timeout: Option<Duration>,
    /// How many of its tasks may run at the same time, in each superstep; `None` for all, and 0 counts as 1. Others may run
    /// meanwhile, as many as [`RunConfig::max_concurrency`](crate::RunConfig::max_concurrency) lets.
    pub max_concurrency: Option<usize>,
    /// What happens to it when the run is cancelled.
    pub on_cancel: OnCancel,
    /// Whether it waits, once it is reached, until nothing else is left to run. A worker or an error handler cannot.
    pub deferred: bool,
}

impl Default for NodeOptions {
    /// No retries, no timeout, dropped when the run is cancelled.
    fn default() -> Self {
        Self {
            retry: Retries::default(),
            timeout: None,
            idle_timeout: None,
            max_concurrency: None,
            on_cancel: OnCancel::Drop,
            deferred: false,
        }
    }
}

pub(crate) type NodeFn<S> =
    Arc<dyn Fn(S, Cx) -> BoxFuture<'static, Result<Written<S>, NodeError>> + Send + Sync>;

/// Asks the state for routes and adds the target of each, looked up in the second argument, to the third.
pub(crate) type Router<S> = Arc<dyn Fn(&S, &[Target], &mut Vec<Target>) + Send + Sync>;

/// Asks the state for items and adds each, as JSON, to the second argument.
pub(crate) type FanOut<S> = Arc<dyn Fn(&S, &mut Vec<String>) -> serde_json::Result<()> + Send + Sync>;

/// A node of a compiled graph.
pub(crate) struct CompiledNode<S: State> {
    /// `None` for the start, whose task is the input.
    pub(crate) run: Option<NodeFn<S>>,
    /// What it may write; `None` if it did not say.
    pub(crate) writes: Option<ChannelSet>,
    /// Where the routes lead that it may choose itself.
    pub(crate) routes: Vec<Target>,
    pub(crate) routers: Vec<(Router<S>, Vec<Target>)>,
    /// Each with the worker that its items go to.
    pub(crate) fan_outs: Vec<(FanOut<S>, NodeIndex)>,
    pub(crate) retry: Retries,
    pub(crate) timeout: Option<Duration>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) cache: Option<NodeCache<S>>,
    /// What stays of a task that is discarded.
    pub(crate) on_discard: Option<OnDiscard<S>>,
    /// The graph that it runs, if it was added as a subgraph.
    pub(crate) subgraph: Option<Arc<dyn Subgraph<S>>>,
}

impl<S: State> Default for CompiledNode<S> {
    fn default() -> Self {
        let NodeOptions { retry, timeout, idle_timeout, .. } = NodeOptions::default();
        Self {
            run: None,
            subgraph: None,
            on_discard: None,
            writes: None,
            routes: Vec::new(),
            routers: Vec::new(),
            fan_outs: Vec::new(),
            retry,
            timeout,
            idle_timeout,
            cache: None,
        }
    }
}

/// Where a finished task leads.
#[derive(Clone, Default)]
pub(crate) struct Targets {
    /// What the engine has to know.
    pub(crate) ends: Vec<Target>,
    /// What goes along with each [`Target::Send`] among them, as JSON.
    pub(crate) items: Vec<String>,
}

impl Targets {
    /// These, and then the others.
    pub(crate) fn followed_by(mut self, others: Self) -> Self {
        if self.ends.is_empty() {
            return others;
        }
        self.ends.extend(others.ends);
        self.items.extend(others.items);
        self
    }

    /// Those of them that are to stay.
    pub(crate) fn only(self, stays: impl Fn(Target) -> bool) -> Self {
        let (mut only, mut items) = (Self::default(), self.items.into_iter());
        for end in self.ends {
            let item = if let Target::Send(_) = end { items.next() } else { None };
            if stays(end) {
                only.ends.push(end);
                only.items.extend(item);
            }
        }
        only
    }
}

impl<S: State> CompiledNode<S> {
    /// The first of these channels that it did not say it writes.
    pub(crate) fn undeclared(&self, written: ChannelSet) -> Option<usize> {
        let declared = self.writes?;
        written.iter().find(|channel| !declared.contains(*channel))
    }

    /// Whether where it leads depends on the state.
    pub(crate) fn decides(&self) -> bool {
        !self.routers.is_empty() || !self.fan_outs.is_empty()
    }

    /// Where its conditional edges and fan-outs lead, given the state that it left behind.
    pub(crate) fn targets(&self, state: &S) -> Result<Targets, Box<dyn Error + Send + Sync>> {
        let asked = catch_unwind(AssertUnwindSafe(|| {
            let Targets { mut ends, mut items } = Targets::default();
            for (router, targets) in &self.routers {
                router(state, targets, &mut ends);
            }
            for (fan_out, worker) in &self.fan_outs {
                let before = items.len();
                fan_out(state, &mut items)?;
                ends.extend(items[before..].iter().map(|_| Target::Send(*worker)));
            }
            Ok(Targets { ends, items })
        }));
        asked.unwrap_or_else(|panic| Err(Panicked::from_payload(&*panic).into()))
    }
}

pub(crate) fn erase<S, F, Fut>(node: F) -> NodeFn<S>
where
    S: State,
    F: Fn(S, Cx) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: NodeOutput<S>,
{
    // An `async` block would hold the future twice, once as it was captured and once as it is awaited.
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
        let item = serde_json::from_str(cx.item.as_deref().unwrap_or("null"));
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
    cx.failure.as_deref().expect("only a failure leads to an error handler").clone()
}

/// An item that is not what its worker takes: it was stored by another version of the program.
#[derive(Debug, thiserror::Error)]
#[error("its stored item does not fit the type that the node takes now")]
struct BadItem(#[source] serde_json::Error);

/// Another attempt would give the same.
impl Refuses for NodeError {
    fn refuse(error: BadUpdate) -> Self {
        Self::new(error).fatal()
    }
}
