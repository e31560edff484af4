//! Tests of several nodes that follow each other.
//!
//! Start at [`chain`].

use std::{fmt, ops::Deref};

use superstep_graph::{CompiledGraph, State, Status, probe::Probe};

use super::{
    NodeTestError, Transition,
    node::check,
    setup::{Setup, setup_methods},
};

/// Begins a test of the part of a graph that starts with one node: up to another, which does not run, or to the end.
///
/// The same applies as to the test of a [`node`](crate::node). The tasks of a superstep run one after the other.
///
/// # Example
/// ```
/// use superstep_graph::{END, START, State, StateGraph};
/// use superstep_testing::chain;
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Order {
///     cents: u32,
///     paid: bool,
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let mut graph = StateGraph::<Order>::new("order");
/// let plan = graph.add_node("plan", async |_: Order, _| Order::update().cents(100));
/// let tax = graph.add_node("tax", async |order: Order, _| Order::update().cents(order.cents * 119 / 100));
/// let pay = graph.add_node("pay", async |_: Order, _| Order::update().paid(true));
/// graph.add_edge(START, plan);
/// graph.add_edge(plan, tax);
/// graph.add_edge(tax, pay);
/// graph.add_edge(pay, END);
/// let graph = graph.compile()?;
///
/// let unpaid = chain(&graph, "plan").until("pay").run().await?;
/// assert_eq!(unpaid.nodes(), ["plan", "tax"]);
/// assert_eq!((unpaid[1].after.cents, unpaid[1].after.paid), (119, false));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn chain<'a, S: State>(graph: &'a CompiledGraph<S>, from: &str) -> ChainTest<'a, S> {
    ChainTest { graph, probe: Probe::new(from), until: None, setup: Setup::default() }
}

/// A test of several nodes. Made by [`chain`].
#[must_use = "a test does nothing until it runs"]
pub struct ChainTest<'a, S: State> {
    graph: &'a CompiledGraph<S>,
    probe: Probe<S>,
    until: Option<String>,
    setup: Setup,
}

impl<S: State> ChainTest<'_, S> {
    /// Stops before this node; by default it runs to the end of the graph.
    pub fn until(mut self, node: impl Into<String>) -> Self {
        self.until = Some(node.into());
        self
    }

    /// Sets the state that the first node receives; by default the initial state of the graph.
    pub fn state(mut self, state: S) -> Self {
        self.probe.state = Some(state);
        self
    }

    /// Sets the item of the first node, if it is a worker.
    pub fn item(mut self, item: impl serde::Serialize) -> Self {
        self.probe.item = Some(self.setup.json("the item", item));
        self
    }

    /// Retries failures and runs error handlers, as in a run of the graph.
    pub fn with_retries(mut self) -> Self {
        self.probe.recovers = true;
        self
    }

    setup_methods!();

    /// Runs the nodes. The chain ends early at a failure, and at a question without an answer.
    ///
    /// # Errors
    /// [`NodeTestError`] if the test does not fit the graph, or the run ends without the last node. A failure of a node is the
    /// [`error`](Transition::error) of the last transition.
    pub async fn run(self) -> Result<Chain<S>, NodeTestError> {
        let Self { graph, mut probe, until, setup } = self;
        check(graph, &probe.node, probe.item.as_ref(), false)?;
        if let Some(until) = until.as_ref().filter(|until| graph.topology().find(until).is_none()) {
            return Err(NodeTestError::unknown_node(graph, until));
        }
        let from = probe.node.clone();
        probe.until = Some(until.iter().cloned().collect());
        let probed = setup.probe(graph, probe).await?;
        if let Some(until) = until
            && matches!(probed.end, Ok(Status::Completed))
        {
            let ran = probed.tasks.into_iter().map(|task| task.node).collect();
            return Err(NodeTestError::NotReached { from, until, ran });
        }
        let (mut error, count) = (probed.end.err(), probed.tasks.len());
        let numbered = (1..).zip(probed.tasks);
        let transitions = numbered
            .map(|(nth, task)| Transition::of(task, if nth == count { error.take() } else { None }))
            .collect();
        Ok(Chain(transitions))
    }
}

/// The transitions of a chain, in the order of their starts. Its text is the text of each, with a blank line in between.
#[derive(Debug)]
pub struct Chain<S: State>(pub Vec<Transition<S>>);

impl<S: State> Chain<S> {
    /// Returns the nodes that ran, in order.
    pub fn nodes(&self) -> Vec<&str> {
        self.0.iter().map(|transition| transition.node.as_str()).collect()
    }
}

impl<S: State> Deref for Chain<S> {
    type Target = [Transition<S>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<S: State> fmt::Display for Chain<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, transition) in self.0.iter().enumerate() {
            let blank = if nth == 0 { "" } else { "\n" };
            write!(f, "{blank}{transition}")?;
        }
        Ok(())
    }
}
