//! A custom reducer that stores the two cheapest offers, in any order of writes.
//!
//! Shows: three sellers offer in parallel, and the result is always the same, although they end in another order than that of
//! their names. The price folds with a function: the first offer unchanged, then the lower of two.
//!
//! `cargo run -p superstep --example custom_reducer`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use superstep::{ReduceError, Reducer, prelude::*};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Offer {
    cents: u32,
    seller: String,
}

/// Stores the `N` cheapest offers. A write is one offer; the value is a list.
enum Cheapest<const N: usize> {}

impl<const N: usize> Reducer<Vec<Offer>> for Cheapest<N> {
    type Write = Offer;

    fn reduce(best: &mut Vec<Offer>, offer: Offer) -> Result<(), ReduceError> {
        if offer.cents == 0 {
            // The whole superstep fails, and the thread is unchanged.
            return Err(format!("`{}` offers it for nothing", offer.seller).into());
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
