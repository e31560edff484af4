//! Tests of single nodes.
//!
//! Start at [`node`].

use serde::Serialize;
use serde_json::Value;
use superstep_graph::{
    CompiledGraph, FailureKind, NodeFailure, State, node::NodeName, probe::Probe, topology::Topology,
};

use super::{
    NodeTestError, Transition,
    setup::{Setup, setup_methods},
};

/// Begins a test of one node of a graph.
///
/// The node runs as in any run of the graph: with the same `Cx`, and with the same checks of its update. Nothing is stored;
/// time, random numbers and ids are fixed. A failure is not retried and reaches no error handler, unless the test runs
/// [`with_retries`](NodeTest::with_retries). Effects run, unless their results are [given](NodeTest::effect).
///
/// # Example
/// ```
/// use superstep_graph::{Cx, END, NodeError, START, State, StateGraph};
/// use superstep_testing::{assert_transition, node};
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Order {
///     cents: u32,
///     receipt: Option<String>,
/// }
///
/// async fn pay(order: Order, cx: Cx) -> Result<OrderUpdate, NodeError> {
///     if !cx.interrupt::<bool>("approve", order.cents).await {
///         return Ok(Order::update());
///     }
///     let receipt: String = cx.once("charge", async |_| Err::<_, &str>("no network in tests")).await?;
///     Ok(Order::update().receipt(receipt))
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let mut graph = StateGraph::<Order>::new("order");
/// let pay = graph.add_node("pay", pay);
/// graph.add_edge(START, pay);
/// graph.add_edge(pay, END);
/// let graph = graph.compile()?;
///
/// let order = Order { cents: 1_995, ..Order::default() };
/// let paid = node(&graph, "pay").state(order).answer("approve", true).effect("charge", "r-1").run().await?;
/// assert_eq!(paid.after.receipt.as_deref(), Some("r-1"));
/// assert_transition!(paid, @r#"
/// node `pay` in superstep 1
/// update
///   receipt "r-1"
/// state
///   receipt null → "r-1"
/// next
///   __end__
/// effects
///   charge "r-1"
/// "#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn node<'a, S: State>(graph: &'a CompiledGraph<S>, node: &str) -> NodeTest<'a, S> {
    NodeTest { graph, probe: Probe::new(node), failure: None, setup: Setup::default() }
}

/// A test of one node. Made by [`node`].
#[must_use = "a test does nothing until it runs"]
pub struct NodeTest<'a, S: State> {
    graph: &'a CompiledGraph<S>,
    probe: Probe<S>,
    failure: Option<String>,
    setup: Setup,
}

impl<S: State> NodeTest<'_, S> {
    /// Sets the state that the node receives; by default the initial state of the graph.
    pub fn state(mut self, state: S) -> Self {
        self.probe.state = Some(state);
        self
    }

    /// Sets the item of a worker.
    pub fn item(mut self, item: impl Serialize) -> Self {
        self.probe.item = Some(self.setup.json("the item", item));
        self
    }

    /// Sets the failure that an error handler receives: the message of the error of its node, after one attempt.
    pub fn failure(mut self, message: impl Into<String>) -> Self {
        self.failure = Some(message.into());
        self
    }

    /// Retries a failure, and runs the error handler after the last one, as in a run of the graph. The transition is that of
    /// the last attempt, or of the handler.
    pub fn with_retries(mut self) -> Self {
        self.probe.recovers = true;
        self
    }

    setup_methods!();

    /// Runs the node.
    ///
    /// # Errors
    /// [`NodeTestError`] if the test does not fit the graph. A failure of the node is [`Transition::error`].
    pub async fn run(self) -> Result<Transition<S>, NodeTestError> {
        let Self { graph, mut probe, failure, setup } = self;
        check(graph, &probe.node, probe.item.as_ref(), failure.is_some())?;
        if let Some(message) = failure {
            let node = handled(graph.topology(), &probe.node).expect("it is an error handler");
            probe.failure = Some(NodeFailure::new(node, 1, FailureKind::Error, message));
        }
        let probed = setup.probe(graph, probe).await?;
        let last = probed.tasks.into_iter().next_back().expect("the task of the node began");
        Ok(Transition::of(last, probed.end.err()))
    }
}

/// Checks that a run can begin at a node.
pub(super) fn check<S: State>(
    graph: &CompiledGraph<S>,
    node: &str,
    item: Option<&Value>,
    has_failure: bool,
) -> Result<(), NodeTestError> {
    let topology = graph.topology();
    let name = node.to_owned();
    let Some(index) = topology.find(node).filter(|index| *index != topology.start()) else {
        return Err(NodeTestError::unknown_node(graph, node));
    };
    match (topology.takes_item(index), item) {
        (true, None) => return Err(NodeTestError::NoItem { node: name }),
        (false, Some(_)) => return Err(NodeTestError::NotAWorker { node: name }),
        _ => {}
    }
    match (handled(topology, node), has_failure) {
        (Some(of), false) => Err(NodeTestError::NoFailure { node: name, of }),
        (None, true) => Err(NodeTestError::NotAHandler { node: name }),
        _ => Ok(()),
    }
}

/// Returns the node whose failures this one handles.
fn handled(topology: &Topology, handler: &str) -> Option<NodeName> {
    let is_handled = |node: &&NodeName| {
        let handler_of = topology.find(node.as_str()).and_then(|node| topology.handler(node));
        handler_of.is_some_and(|found| topology.name(found).as_str() == handler)
    };
    topology.names().find(is_handled).cloned()
}
