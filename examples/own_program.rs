//! A program with two graphs of its own, and the commands to run, inspect, answer, fork and replay their threads.
//!
//! Shows: graphs of different states in one program; an order that waits for approval, and a digest with one task per text.
//!
//! `cargo run -p superstep-cli --example own_program`
//!
//! ```sh
//! own_program run orders --input '{"items": [{"name": "tea", "euros": 120}]}' --thread order-7
//! own_program answer order-7 approve true
//! own_program history order-7
//! own_program run digest --input '{"texts": ["one two", "three"]}' --json
//! ```

use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use superstep::prelude::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Item {
    name: String,
    euros: u32,
}

#[derive(State, Clone, Debug, Default)]
struct Order {
    #[channel(append)]
    items: Log<Item>,
    total: u32,
    status: String,
    #[channel(append)]
    notes: Log<String>,
}

#[derive(Route, Clone, Copy)]
enum Size {
    Small,
    Large,
}

async fn price(order: Order, _: Cx) -> OrderUpdate {
    Order::update().total(order.items.iter().map(|item| item.euros).sum::<u32>())
}

async fn approve(order: Order, cx: Cx) -> OrderUpdate {
    let approved: bool = cx.interrupt("approve", &format!("pay {} €?", order.total)).await;
    Order::update().status(if approved { "approved" } else { "refused" })
}

async fn pay(order: Order, cx: Cx) -> OrderUpdate {
    if order.status == "refused" {
        return Order::update().notes(["nothing is paid"]);
    }
    let receipt = cx.recorded("receipt", async || format!("{} € paid", order.total)).await;
    Order::update().status("paid").notes([receipt])
}

fn orders() -> Result<CompiledGraph<Order>, CompileError> {
    let mut graph = StateGraph::new("orders");
    let (price, approve) = (graph.add_node("price", price), graph.add_node("approve", approve));
    let pay = graph.add_node("pay", pay);
    graph.add_edge(START, price);
    let size = |order: &Order| if order.total > 50 { Size::Large } else { Size::Small };
    graph.add_conditional_edges(price, size, |size| match size {
        Size::Small => pay,
        Size::Large => approve,
    });
    graph.add_edge(approve, pay);
    graph.add_edge(pay, END);
    graph.compile()
}

#[derive(State, Clone, Debug, Default)]
struct Digest {
    texts: Vec<String>,
    #[channel(append)]
    counts: Log<usize>,
    summary: String,
}

async fn count(text: String, _: Digest, _: Cx) -> DigestUpdate {
    Digest::update().counts([text.split_whitespace().count()])
}

async fn sum_up(digest: Digest, _: Cx) -> DigestUpdate {
    let words: usize = digest.counts.iter().sum();
    Digest::update().summary(format!("{words} words in {} texts", digest.texts.len()))
}

fn digest() -> Result<CompiledGraph<Digest>, CompileError> {
    let mut graph = StateGraph::new("digest");
    let (count, sum_up) = (graph.add_worker("count", count), graph.add_node("sum_up", sum_up));
    graph.add_fan_out(START, |digest: &Digest| digest.texts.clone(), count);
    graph.add_join([count], sum_up);
    graph.add_edge(sum_up, END);
    graph.compile()
}

fn main() -> ExitCode {
    superstep_cli::main((orders(), digest()))
}
