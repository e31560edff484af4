//! Orders behind the HTTP API of LangGraph, in SQLite, for its unchanged clients.
//!
//! Shows: a graph that asks, threads and accepted runs that survive a restart, and a shutdown between two supersteps.
//!
//! `cargo run -p superstep --features server --example server`
//!
//! `curl localhost:2024/runs/wait -d '{"assistant_id": "orders", "input": {"euros": 20}, "on_completion": "keep"}'`
//!
//! `orders-page` is a page for it, by React: `npm install && npm run dev` there. Another address than `127.0.0.1:2024` is the first
//! argument.

#![expect(clippy::print_stderr, reason = "an example shows what it does")]

use std::{env, error::Error};

use serde_json::json;
use superstep::{
    prelude::*,
    server::{Server, stop_signal},
    sqlite::{SqliteCheckpointer, SqliteStore},
};
use tokio::net::TcpListener;

#[derive(State, Clone, Debug, Default)]
struct Order {
    euros: u32,
    approved: bool,
    #[channel(append)]
    log: Log<String>,
}

async fn approve(order: Order, cx: Cx) -> OrderUpdate {
    let approved: bool = cx.interrupt("approve", json!({ "pay euros": order.euros })).await;
    Order::update().approved(approved)
}

async fn pay(order: Order, _: Cx) -> OrderUpdate {
    let line = if order.approved { format!("paid {} euros", order.euros) } else { "refused".to_owned() };
    Order::update().log([line])
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut graph = StateGraph::<Order>::new("orders");
    let approve = graph.add_node("approve", approve);
    let pay = graph.add_node("pay", pay);
    graph.add_edge(START, approve);
    graph.add_edge(approve, pay);
    graph.add_edge(pay, END);

    let server = Server::new()
        .graph("orders", graph.compile()?)
        .checkpointer(SqliteCheckpointer::open("server-threads.db")?)
        .rows(SqliteStore::open("server-rows.db")?);
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:2024".to_owned());
    let listener = TcpListener::bind(address).await?;
    eprintln!("serving on http://{}", listener.local_addr()?);
    Ok(server.serve_until(listener, stop_signal()).await?)
}
