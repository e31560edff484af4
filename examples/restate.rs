//! A graph as a service of Restate: registered, run, asked and answered.
//!
//! Shows: a run that ends with a question, its answer, and the history of the thread, all on the cluster.
//!
//! It needs a server of Restate on this machine, see docs/restate.md; `RESTATE_INGRESS` and `RESTATE_ADMIN` name another one.
//!
//! `cargo run -p superstep --features restate --example restate`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use superstep::{
    prelude::*,
    restate::{Endpoint, Restate},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[derive(State, Clone, Debug, Default)]
struct Order {
    #[channel(append)]
    items: Log<String>,
    is_approved: bool,
}

async fn approve(order: Order, cx: Cx) -> OrderUpdate {
    let is_approved: bool = cx.interrupt("approve", format!("send {} items?", order.items.len())).await;
    Order::update().is_approved(is_approved)
}

fn orders() -> Result<CompiledGraph<Order>, CompileError> {
    let mut graph = StateGraph::new("orders");
    let approve = graph.add_node("approve", approve);
    graph.add_edge(START, approve);
    graph.add_edge(approve, END);
    graph.compile()
}

fn url(variable: &str, default: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| default.to_owned())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The service: any number of these processes may run.
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    let endpoint = Endpoint::builder().graph(orders()?).build()?;
    let serving = tokio::spawn(endpoint.serve_on(listener, stop.clone()));

    // Its caller.
    let restate = Restate::connect(&url("RESTATE_INGRESS", "http://127.0.0.1:8080"))?;
    let restate = restate.admin(&url("RESTATE_ADMIN", "http://127.0.0.1:9070"))?;
    restate.register(&format!("http://{address}")).await?;
    let order = restate.thread("orders", "order-7");
    let asks = order.clone().input_id("in-1").run(Order::update().items(["tea", "milk"])).await?;
    println!("{}: {}", asks.status, asks.interrupts[0].question);
    let done = order.answer(&asks.interrupts[0].id, true).await?;
    println!("{}: {}", done.status, serde_json::to_string(&done.values)?);

    // Its thread, read like one of a database.
    for checkpoint in order.stored(&orders()?)?.history().checkpoints().await? {
        println!("checkpoint {} of superstep {}", checkpoint.id, checkpoint.control.step);
    }
    stop.cancel();
    serving.await??;
    Ok(())
}
