//! Calls of functions that take a `Cx`.
//!
//! Start at [`cx`].

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;
use superstep_graph::{
    CompiledGraph, Cx, END, Interrupt, RunError, START, State, StateGraph, probe::Probe, stream::CustomEvent,
};

use super::{
    NodeTestError, Transition,
    setup::{Setup, setup_methods},
};

/// The state of a graph whose one node is the called function.
#[derive(State, Clone, Debug, Default)]
struct Nothing {
    called: bool,
}

/// Begins a call of a function that takes a [`Cx`], such as the function of a node, without a graph of it.
///
/// The `Cx` is that of the one node of a graph that the call makes, so it can do all that a `Cx` can. Answers, effects, time
/// and random numbers are those of a [`node`](crate::node) test.
///
/// # Example
/// ```
/// use superstep_graph::{Cx, NodeError, State};
/// use superstep_testing::cx;
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Order {
///     cents: u32,
///     receipt: Option<String>,
/// }
///
/// async fn pay(order: Order, cx: Cx) -> Result<OrderUpdate, NodeError> {
///     cx.emit("paying", order.cents);
///     let receipt: String = cx.once("charge", async |_| Err::<_, &str>("no network in tests")).await?;
///     Ok(Order::update().receipt(receipt))
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let called = cx().effect("charge", "r-1").call(|cx| pay(Order { cents: 5, ..Order::default() }, cx)).await?;
/// let update = called.output.expect("it asks nothing").map_err(|error| error.to_string())?;
/// assert_eq!(update.receipt, Some(Some("r-1".to_owned())));
/// assert_eq!(called.events, [("paying".to_owned(), 5.into())]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cx() -> CxTest {
    CxTest { node: "node".to_owned(), setup: Setup::default() }
}

/// A call of a function that takes a `Cx`. Made by [`cx`].
#[must_use = "a test does nothing until it runs"]
pub struct CxTest {
    node: String,
    setup: Setup,
}

/// The result of a called function, and its events, effects and questions.
#[derive(Debug)]
#[non_exhaustive]
pub struct Called<T> {
    /// The result of the function; `None` if it waits for an answer, or panicked.
    pub output: Option<T>,
    /// The custom events of the function, each with its name.
    pub events: Vec<(String, Value)>,
    /// The results of its effects, by name.
    pub effects: BTreeMap<String, Value>,
    /// The errors of its effects, by name.
    pub failed_effects: BTreeMap<String, String>,
    /// The questions that have no answer.
    pub questions: Vec<Interrupt>,
    /// The panic of the function, or the reason why an answer was refused.
    pub error: Option<RunError>,
}

impl CxTest {
    /// Sets the name of the node; `node` by default.
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.node = name.into();
        self
    }

    setup_methods!();

    /// Calls the function: once, and again after each question with an answer.
    ///
    /// # Errors
    /// [`NodeTestError`] if no node can have the name, or an answer or an effect was not used.
    #[track_caller]
    pub fn call<T, F, Fut>(self, function: F) -> impl Future<Output = Result<Called<T>, NodeTestError>> + Send
    where
        T: Send + 'static,
        F: Fn(Cx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = T> + Send + 'static,
    {
        let output = Arc::new(Mutex::new(None));
        let put = {
            let output = output.clone();
            move |value| *output.lock().unwrap_or_else(PoisonError::into_inner) = Some(value)
        };
        let mut graph = StateGraph::<Nothing>::new("cx");
        let node = graph.add_node(&self.node, move |_: Nothing, cx: Cx| {
            let (called, put) = (function(cx), put.clone());
            async move { put(called.await) }
        });
        graph.add_edge(START, node);
        graph.add_edge(node, END);
        let graph = graph.compile();
        async move { self.run(graph?, &output).await }
    }

    async fn run<T>(
        self,
        graph: CompiledGraph<Nothing>,
        output: &Mutex<Option<T>>,
    ) -> Result<Called<T>, NodeTestError> {
        let probed = self.setup.probe(&graph, Probe::new(&self.node)).await?;
        let task = probed.tasks.into_iter().next_back().expect("the task of the node began");
        let transition = Transition::of(task, probed.end.err());
        let event = |event: CustomEvent<'_>| (event.name.to_owned(), event.data.clone());
        let events = transition.custom().map(event).collect();
        let Transition { effects, failed_effects, questions, error, .. } = transition;
        let output = output.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(Called { output, events, effects, failed_effects, questions, error })
    }
}
