//! Tests of the tools that test nodes.

#[cfg(all(feature = "openai", feature = "sqlite"))]
mod agent;
mod chain;
mod cx;
mod diff;
mod misuse;
mod refused;
mod routes;
mod transition;

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use serde_json::json;
use superstep::{
    Command, CompiledGraph, Cx, END, Log, MemoryStore, NodeError, NodeFailure, NodeOptions, RetryPolicy,
    Route, START, State, StateGraph, node::CachePolicy, store::Namespace,
};

/// The state of an order.
#[derive(State, Clone, Debug, Default, PartialEq)]
struct Order {
    parts: Vec<String>,
    #[channel(append)]
    packed: Log<String>,
    #[channel(sum)]
    cents: i64,
    receipt: Option<String>,
    /// Only the next superstep sees it.
    #[channel(ephemeral)]
    hint: Option<String>,
    /// It is never stored.
    #[channel(untracked)]
    session: u32,
}

#[derive(Route, Clone, Copy, Debug, PartialEq)]
enum Next {
    Pay,
    Done,
}

/// The number of live effects.
type Charges = Arc<AtomicU32>;

async fn plan(order: Order, cx: Cx) -> Result<Command<Order, Next>, NodeError> {
    cx.emit("planning", json!({ "parts": order.parts.len() }));
    let command = Command::update(Order::update().cents(5));
    Ok(if order.cents < 100 { command.goto(Next::Pay) } else { command.goto(Next::Done) })
}

async fn pack(part: String, _: Order, cx: Cx) -> Result<OrderUpdate, NodeError> {
    if part.is_empty() {
        return Err(NodeError::new("an empty part").with_data(json!({ "part": part })));
    }
    Ok(Order::update().packed([format!("{part} by {}", cx.id("box"))]))
}

async fn pay(charges: Charges, order: Order, cx: Cx) -> Result<OrderUpdate, NodeError> {
    cx.emit_message("m", "paying");
    if !cx.interrupt::<bool>("approve", json!({ "cents": order.cents })).await {
        return Ok(Order::update());
    }
    let charge = async |_| {
        let nth = charges.fetch_add(1, Ordering::SeqCst) + 1;
        if order.cents < 0 { Err("the card is declined") } else { Ok(format!("live-{nth}")) }
    };
    let receipt: String = cx.once("charge", charge).await?;
    let rate = cx.recorded("rate", async || 2).await;
    Ok(Order::update().receipt(receipt).cents(rate))
}

/// `START → plan → pay | END`, `START ⇉ pack`, and `recover`, which handles the failures of `pay`.
fn order(charges: &Charges) -> CompiledGraph<Order> {
    let mut graph = StateGraph::<Order>::new("order");
    let plan = graph.add_routing_node("plan", plan);
    let pack = graph.add_worker("pack", pack);
    let pay = graph.add_node_with("pay", charges.clone(), pay);
    let send = graph.add_node("send", async |order: Order, _: Cx| {
        Order::update().packed([format!("{} parts", order.packed.len())])
    });
    let recover = graph.add_error_handler(pay, "recover", async |failure: NodeFailure, _: Order, _: Cx| {
        Order::update().receipt(format!("{} failed: {}", failure.node, failure.message))
    });
    let retry = RetryPolicy::attempts(3);
    graph.configure(pay, NodeOptions::new().retry(retry));
    graph.add_edge(START, plan);
    graph.add_routes(plan, |next| match next {
        Next::Pay => pay,
        Next::Done => END,
    });
    graph.add_fan_out(pay, |order: &Order| order.parts.clone(), pack);
    graph.add_join([pay, pack.into()], send);
    graph.add_edge(recover, END);
    graph.add_edge(send, END);
    graph.compile().unwrap()
}

/// An order of two parts.
fn two_parts() -> Order {
    Order { parts: vec!["lid".to_owned(), "box".to_owned()], cents: 7, ..Order::default() }
}
