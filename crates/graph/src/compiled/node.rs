//! A node of a compiled graph.
//!
//! Start at [`CompiledNode`].

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use superstep_engine::{ChannelSet, EngineError, NodeIndex, NodeName, Target};
use superstep_state::{Panicked, RawJson};

use crate::{
    Retries, RunError, State,
    compiled::subgraph::Subgraph,
    node::{cache::NodeCache, discarded::OnDiscard, erased::NodeFn, options::NodeOptions, routing::Targets},
};

/// Calls a router with the state, and appends the target of each route, looked up in the second argument, to
/// the third.
pub(crate) type Router<S> = Arc<dyn Fn(&S, &[Target], &mut Vec<Target>) + Send + Sync>;

/// Calls a fan-out with the state, and appends each item, as JSON, to the second argument.
pub(crate) type FanOut<S> = Arc<dyn Fn(&S, &mut Vec<RawJson>) -> serde_json::Result<()> + Send + Sync>;

/// Returns the time limit for an item, which is JSON; `None` for that of the node.
pub(crate) type ItemTimeout = Arc<dyn Fn(&str) -> Option<Duration> + Send + Sync>;

/// Checks that JSON is an item of a worker.
pub(crate) type ItemFits = fn(&str) -> serde_json::Result<()>;

/// A node of a compiled graph.
pub(crate) struct CompiledNode<S: State> {
    /// The function; `None` for the start, whose task is the input.
    pub(crate) run: Option<NodeFn<S>>,
    /// The declared writes; `None` without a declaration.
    pub(crate) writes: Option<ChannelSet>,
    /// The targets of its own routes.
    pub(crate) routes: Vec<Target>,
    pub(crate) routers: Vec<(Router<S>, Vec<Target>)>,
    /// The fan-outs, each with its worker.
    pub(crate) fan_outs: Vec<(FanOut<S>, NodeIndex)>,
    pub(crate) retry: Retries,
    pub(crate) timeout: Option<Duration>,
    /// The time limits of single items.
    pub(crate) item_timeout: Option<ItemTimeout>,
    /// Checks that a stored item fits the type that it takes.
    pub(crate) fits: Option<ItemFits>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) cache: Option<NodeCache<S>>,
    /// The handler of discarded tasks.
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
            item_timeout: None,
            fits: None,
            idle_timeout,
            cache: None,
        }
    }
}

impl<S: State> CompiledNode<S> {
    /// Returns the first of these channels that is not declared.
    pub(crate) fn undeclared(&self, written: ChannelSet) -> Option<usize> {
        let declared = self.writes?;
        written.iter().find(|channel| !declared.contains(*channel))
    }

    /// Returns the time limit of an attempt with this item.
    ///
    /// # Errors
    /// The panic of the function that chooses it.
    #[inline]
    pub(crate) fn timeout_of(&self, item: Option<&str>) -> Result<Option<Duration>, Panicked> {
        let (Some(choose), Some(item)) = (&self.item_timeout, item) else { return Ok(self.timeout) };
        let chosen = catch_unwind(AssertUnwindSafe(|| choose(item)));
        let chosen = chosen.map_err(|panic| Panicked::from_payload(&*panic))?;
        Ok(chosen.or(self.timeout))
    }

    /// Returns whether its successors depend on the state.
    pub(crate) fn decides(&self) -> bool {
        !self.routers.is_empty() || !self.fan_outs.is_empty()
    }

    /// Returns the targets of its conditional edges and fan-outs, for the state after it.
    pub(crate) fn targets(&self, state: &S, step: i64, name: &NodeName) -> Result<Targets, RunError> {
        if !self.decides() {
            return Ok(Targets::default());
        }
        let failed = |source| RunError::Router { node: name.clone(), step, source };
        let targets = catch_unwind(AssertUnwindSafe(|| {
            let (mut ends, mut items) = (Vec::with_capacity(self.routers.len()), Vec::new());
            for (router, targets) in &self.routers {
                let before = ends.len();
                router(state, targets, &mut ends);
                if ends.len() == before {
                    return Err(RunError::Route { step, error: EngineError::NoRoute(name.clone()) });
                }
            }
            for (fan_out, worker) in &self.fan_outs {
                let before = items.len();
                fan_out(state, &mut items).map_err(|error| failed(error.into()))?;
                ends.extend(items[before..].iter().map(|_| Target::Send(*worker)));
            }
            Ok(Targets { ends, items })
        }));
        targets.unwrap_or_else(|panic| Err(failed(Panicked::from_payload(&*panic).into())))
    }
}
