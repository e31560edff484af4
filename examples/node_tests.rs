//! Tests of single nodes, of a chain of nodes and of a conditional edge, without a thread and without a run of the whole graph.
//!
//! Shows: the text of a transition, which a test compares with `assert_transition!`; the same node with an answer and with the
//! given result of an effect; a table of routes.
//!
//! `cargo run -p superstep --example node_tests`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use superstep::prelude::*;
use superstep_testing::{chain, node, route_table};

#[derive(State, Clone, Debug, Default)]
struct Refund {
    cents: u32,
    #[channel(append)]
    log: Log<String>,
    receipt: Option<String>,
}

#[derive(Route, Clone, Copy)]
enum Next {
    Pay,
    Reject,
}

fn check(refund: &Refund) -> Next {
    if refund.cents < 10_000 { Next::Pay } else { Next::Reject }
}

async fn read(refund: Refund, _: Cx) -> RefundUpdate {
    Refund::update().log([format!("a refund of {} cents", refund.cents)])
}

async fn pay(refund: Refund, cx: Cx) -> Result<RefundUpdate, NodeError> {
    cx.emit("asking", refund.cents);
    if !cx.interrupt::<bool>("approve", refund.cents).await {
        return Ok(Refund::update().log(["not approved"]));
    }
    // A real one calls a bank.
    let receipt: String = cx.once("transfer", async |_| Err::<_, &str>("no bank in an example")).await?;
    Ok(Refund::update().receipt(receipt).log(["paid"]))
}

fn refunds() -> Result<CompiledGraph<Refund>, Box<dyn Error>> {
    let mut graph = StateGraph::new("refunds");
    let read = graph.add_node("read", read);
    let pay = graph.add_node("pay", pay);
    let reject = graph.add_node("reject", async |_: Refund, _| Refund::update().log(["too much"]));
    graph.add_edge(START, read);
    graph.add_conditional_edges(read, check, |next| match next {
        Next::Pay => pay,
        Next::Reject => reject,
    });
    graph.add_edge(pay, END);
    graph.add_edge(reject, END);
    Ok(graph.compile()?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let graph = refunds()?;
    let refund = |cents| Refund { cents, ..Refund::default() };

    // In a test: `assert_transition!(graph, "pay", refund(500), @"")`, filled in by `cargo insta review`.
    println!("{}", node(&graph, "pay").state(refund(500)).run().await?);

    let paid = node(&graph, "pay").state(refund(500)).answer("approve", true).effect("transfer", "r-1");
    let paid = paid.run().await?;
    println!("{paid}");
    assert_eq!(paid.after.receipt.as_deref(), Some("r-1"));

    let failed = node(&graph, "pay").state(refund(500)).answer("approve", true).run().await?;
    println!("{failed}");
    assert!(failed.error_text().is_some_and(|error| error.contains("no bank")));

    let read = chain(&graph, "read").until("pay").state(refund(500)).run().await?;
    assert_eq!(read.nodes(), ["read"]);

    let table = route_table(&graph, "read", [("small", refund(500)), ("large", refund(50_000))])?;
    print!("{table}");
    assert_eq!(table, "small → pay\nlarge → reject\n");
    Ok(())
}
