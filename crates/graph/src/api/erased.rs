//! Graphs of any state behind one trait, with JSON for inputs and states.
//!
//! ```text
//! CompiledGraph<S> ─┐
//!                   ├─▶ JsonGraph ── thread(options) ──▶ JsonThread ── run(JsonRun) ──▶ JsonOutcome
//! of_inputs(..)  ───┘                                        │ └── stream(JsonRun) ──▶ JsonStream
//!                                                            └── state() ──▶ JsonSnapshot
//! ```
//!
//! Start at [`JsonGraph`].

pub(crate) mod input;
pub(crate) mod outcome;
pub(crate) mod thread;

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use superstep_engine::Topology;
use superstep_state::Channel;

use crate::{
    Checkpointer, CompiledGraph, RunError, RunOptions, State,
    api::erased::{
        input::{InputError, ReadInput, read_as, read_update},
        thread::{JsonThread, TypedThread},
    },
    run::channel_values::values,
};

/// A compiled graph whose type of state only its methods know. Its inputs and states are JSON.
///
/// A program that serves several graphs, such as a worker or a server, has a list of them. `Arc<dyn JsonGraph>` is made from a
/// [`CompiledGraph`], or by [`of_inputs`].
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use std::sync::Arc;
///
/// use serde_json::json;
/// use superstep_graph::erased::{JsonGraph, JsonRun};
/// use superstep_graph::{MemoryCheckpointer, RunOptions, Status};
/// # use superstep_graph::{Cx, END, START, State, StateGraph};
/// # #[derive(State, Clone, Debug, Default)]
/// # struct Order { euros: u32, paid: bool }
/// # let mut graph = StateGraph::<Order>::new("orders");
/// # let pay = graph.add_node("pay", async |order: Order, cx: Cx| {
/// #     Order::update().paid(cx.interrupt::<bool>("pay", order.euros).await)
/// # });
/// # graph.add_edge(START, pay);
/// # graph.add_edge(pay, END);
/// let orders: Arc<dyn JsonGraph> = graph.compile()?.with_checkpointer(MemoryCheckpointer::new()).into();
///
/// let options = RunOptions::new().thread("order-7");
/// let asks = orders.thread(options.clone()).run(JsonRun::Input(json!({ "euros": 20 })))?.await?;
/// assert_eq!(asks.status, Status::Interrupted);
///
/// let answered = options.answer(&asks.interrupts[0].id, true);
/// let paid = orders.thread(answered).run(JsonRun::Resume)?.await?;
/// assert_eq!(json!(paid.state.values()?), json!({ "euros": 20, "paid": true }));
///
/// let unfit = orders.check(&json!({ "euros": "four" })).unwrap_err();
/// assert_eq!(unfit.to_string(), "the input does not fit the state: invalid type: string, expected u32 at `euros`");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait JsonGraph: Send + Sync {
    /// Returns the graph's name.
    fn name(&self) -> &str;

    /// Returns the graph's version, if it has one.
    fn version(&self) -> Option<&str>;

    /// Returns the shape of the graph, which draws itself.
    fn topology(&self) -> &Topology;

    /// Returns the channels of the state.
    fn channels(&self) -> &[Channel];

    /// Returns the state in which every thread starts.
    ///
    /// # Errors
    /// [`RunError::Unstorable`].
    fn initial(&self) -> Result<Map<String, Value>, RunError>;

    /// Returns the JSON Schema of inputs; `true`, which accepts everything, if they are [converted](of_inputs).
    fn input_schema(&self) -> Value;

    /// Returns the JSON Schema of states.
    fn output_schema(&self) -> Value;

    /// Checks that JSON is an input, without a run.
    ///
    /// # Errors
    /// The input does not fit.
    fn check(&self, input: &Value) -> Result<(), InputError>;

    /// Returns the same graph with its threads stored in `checkpointer`.
    fn with_checkpointer(&self, checkpointer: Arc<dyn Checkpointer>) -> Arc<dyn JsonGraph>;

    /// Returns a handle with these options, to the thread that they name.
    fn thread(&self, options: RunOptions) -> Box<dyn JsonThread>;
}

impl<S: State> From<CompiledGraph<S>> for Arc<dyn JsonGraph> {
    fn from(graph: CompiledGraph<S>) -> Self {
        Arc::new(Typed { graph, convert: None })
    }
}

/// Returns a graph whose inputs have the type `I`, which `convert` turns into updates of the state. JSON, also that of external
/// updates and commands, can then set nothing else of the state.
pub fn of_inputs<S: State, I: DeserializeOwned>(
    graph: CompiledGraph<S>,
    convert: impl Fn(I) -> S::Update + Send + Sync + 'static,
) -> Arc<dyn JsonGraph> {
    let convert: ReadInput<S> = Arc::new(move |input| read_as(input).map(&convert));
    Arc::new(Typed { graph, convert: Some(convert) })
}

/// A graph, and the conversion of its inputs, if they are not updates of the state.
struct Typed<S: State> {
    graph: CompiledGraph<S>,
    convert: Option<ReadInput<S>>,
}

impl<S: State> JsonGraph for Typed<S> {
    fn name(&self) -> &str {
        self.graph.name()
    }

    fn version(&self) -> Option<&str> {
        self.graph.version()
    }

    fn topology(&self) -> &Topology {
        self.graph.topology()
    }

    fn channels(&self) -> &[Channel] {
        self.graph.initial().channels()
    }

    fn initial(&self) -> Result<Map<String, Value>, RunError> {
        values(self.graph.initial())
    }

    fn input_schema(&self) -> Value {
        if self.convert.is_some() { Value::Bool(true) } else { self.graph.input_schema() }
    }

    fn output_schema(&self) -> Value {
        self.graph.output_schema()
    }

    fn check(&self, input: &Value) -> Result<(), InputError> {
        read_update(self.graph.initial(), self.convert.as_ref(), input).map(drop)
    }

    fn with_checkpointer(&self, checkpointer: Arc<dyn Checkpointer>) -> Arc<dyn JsonGraph> {
        let graph = self.graph.clone().with_checkpointer(checkpointer);
        Arc::new(Self { graph, convert: self.convert.clone() })
    }

    fn thread(&self, options: RunOptions) -> Box<dyn JsonThread> {
        Box::new(TypedThread { thread: self.graph.configured(options), convert: self.convert.clone() })
    }
}
