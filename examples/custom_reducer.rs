//! A reducer of your own: the two cheapest offers stay, in whatever order they come.
//!
//! See: three sellers offer side by side, and what stays is the same every time, although they end in another order than
//! their names have. The price folds with a function: the first offer as it is, then the lower of two.
//!
//! `cargo run -p superstep --example custom_reducer`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use superstep::{Cx, ReduceError, Reducer, START, State, StateGraph};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Offer {
    cents: u32,
    seller: String,
}

/// Keeps the `N` cheapest offers. What is written is one offer; the value is a list.
enum Cheapest<const N: usize> {}

impl<const N: usize> Reducer<Vec<Offer>> for Cheapest<N> {
    type Write = Offer;

    fn reduce(best: &mut Vec<Offer>, offer: Offer) -> Result<(), ReduceError> {
        if offer.cents == 0 {
            // The whole superstep is refused then, and the thread stays as it was.
            return Err(format!("`{}` gives it away; nobody does", offer.seller).into());
        }
        best.push(offer);
        best.sort();
        best.truncate(N);
        Ok(())
    }
}

#[derive(State, Clone, Debug, Default)]
struct Market {
    #[channel(with = Cheapest<2>)]
    best: Vec<Offer>,
    #[channel(fold_with = std::cmp::min)]
    price: Option<u32>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut graph = StateGraph::<Market>::new("market");
    for (seller, cents, slow_ms) in [("anna", 320, 30), ("bert", 250, 20), ("cleo", 290, 10)] {
        let node = graph.add_node(seller, move |_: Market, cx: Cx| async move {
            cx.sleep(Duration::from_millis(slow_ms)).await;
            Market::update().best(Offer { cents, seller: seller.to_owned() }).price(cents)
        });
        graph.add_edge(START, node);
    }
    let end = graph.compile()?.run(Market::update()).await?;
    for Offer { cents, seller } in &end.state.best {
        println!("{seller} asks {cents}");
    }
    println!("the price is {:?}", end.state.price);
    Ok(())
}
