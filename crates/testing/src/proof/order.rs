//! The graph of the runs: a fan-out beside another effect, a join, a question, and a subgraph.
//!
//! ```text
//! accept ─┬─► charge ──────────────┬─► approve (asks) ─► ship: label ─► send
//!         └─► pack, once for each item ─┘ (join)
//! ```

use std::{sync::Arc, time::Duration};

use superstep_graph::{
    CompiledGraph, Cx, END, Log, MemoryCheckpointer, NodeError, NodeRef, START, State, StateGraph, ThreadId,
};

use super::journal::Journal;

/// The number of items of an order.
const ITEMS: u32 = 3;

#[derive(State, Clone, Debug, Default, PartialEq)]
pub struct Order {
    /// The ids of the inputs.
    #[channel(append)]
    pub inputs: Log<String>,
    #[channel(append)]
    pub log: Log<String>,
    /// The results of the effects, which are their keys.
    #[channel(append)]
    pub receipts: Log<String>,
}

#[derive(State, Clone, Debug, Default)]
struct Parcel {
    input: String,
    #[channel(append)]
    log: Log<String>,
    #[channel(append)]
    receipts: Log<String>,
}

impl Order {
    fn input(&self) -> String {
        self.inputs.last().cloned().unwrap_or_default()
    }
}

/// The usual time that the other side takes for an effect, so that most faults happen in the middle of tasks.
pub const WORK: Duration = Duration::from_millis(40);

/// The other side of the effects.
#[derive(Clone)]
pub enum Outside {
    /// Writes effects down, each of which takes this time.
    Journal(Arc<Journal>, Duration),
    /// Does nothing.
    Nowhere,
}

/// Executes an effect once, and returns its key.
async fn effect(outside: &Outside, cx: &Cx, input: &str, name: &str) -> Result<String, NodeError> {
    let thread = cx.thread().map(ThreadId::root);
    let done = cx.once(name, async |key: String| {
        if let (Outside::Journal(journal, work), Some(thread)) = (outside, &thread) {
            journal.execute(thread, &format!("{input}/{name}"), &key);
            tokio::time::sleep(*work).await;
        }
        Ok::<_, NodeError>(key)
    });
    done.await
}

/// Creates the graph without a checkpointer.
pub fn graph(outside: &Outside) -> CompiledGraph<Order> {
    let mut parcel = StateGraph::<Parcel>::new("parcel");
    let label = parcel.add_node("label", async |_: Parcel, _: Cx| Parcel::update().log(["label".to_owned()]));
    let send =
        parcel.add_node_with("send", outside.clone(), async |outside: Outside, parcel: Parcel, cx: Cx| {
            let receipt = effect(&outside, &cx, &parcel.input, "send").await?;
            Ok::<_, NodeError>(Parcel::update().log(["send".to_owned()]).receipts([receipt]))
        });
    parcel.add_edge(START, label);
    parcel.add_edge(label, send);
    parcel.add_edge(send, END);
    let parcel = parcel.compile().unwrap();

    let mut graph = StateGraph::<Order>::new("order");
    let accept = graph.add_node("accept", async |_: Order, _: Cx| Order::update().log(["accept".to_owned()]));
    let charge =
        graph.add_node_with("charge", outside.clone(), async |outside: Outside, order: Order, cx: Cx| {
            let receipt = effect(&outside, &cx, &order.input(), "charge").await?;
            Ok::<_, NodeError>(Order::update().log(["charge".to_owned()]).receipts([receipt]))
        });
    let pack = graph.add_worker_with(
        "pack",
        outside.clone(),
        async |outside: Outside, item: u32, order: Order, cx: Cx| {
            let name = format!("pack {item}");
            let receipt = effect(&outside, &cx, &order.input(), &name).await?;
            Ok::<_, NodeError>(Order::update().log([name]).receipts([receipt]))
        },
    );
    let approve = graph.add_node("approve", async |_: Order, cx: Cx| {
        let answer: String = cx.interrupt("approve", "ship it?").await;
        Order::update().log([format!("approved: {answer}")])
    });
    let ship = graph.add_subgraph_with(
        "ship",
        &parcel,
        |order: &Order| Parcel::update().input(order.input()),
        |parcel: &Parcel| {
            let log: Vec<_> = parcel.log.iter().cloned().collect();
            let receipts: Vec<_> = parcel.receipts.iter().cloned().collect();
            Order::update().log(log).receipts(receipts)
        },
    );
    graph.add_edge(START, accept);
    graph.add_edge(accept, charge);
    graph.add_fan_out(accept, |_: &Order| 0..ITEMS, pack);
    graph.add_join([charge, NodeRef::from(pack)], approve);
    graph.add_edge(approve, ship);
    graph.add_edge(ship, END);
    graph.compile().unwrap()
}

/// Returns the log of a thread after runs that nothing disturbs, and the number of its receipts.
pub async fn expected(inputs: usize) -> (Vec<String>, usize) {
    let graph = graph(&Outside::Nowhere).with_checkpointer(MemoryCheckpointer::new());
    let mut log = Vec::new();
    let mut receipts = 0;
    for nth in 0..inputs {
        graph.thread("t").run(Order::update().inputs([nth.to_string()])).await.unwrap();
        let end = graph.thread("t").answer("approve", "yes").resume().await.unwrap();
        log = end.state.log.iter().cloned().collect();
        receipts = end.state.receipts.len();
    }
    (log, receipts)
}
