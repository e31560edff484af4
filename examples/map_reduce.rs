//! A fan-out with one task per item, then one node for all results.
//!
//! Shows: three texts counted in parallel, and their counts in the order of the texts, independent of the order of completion.
//!
//! `cargo run -p superstep --example map_reduce`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, time::Duration};

use superstep::prelude::*;

#[derive(State, Clone, Debug, Default)]
struct Counting {
    texts: Vec<String>,
    #[channel(append)]
    counts: Log<usize>,
    total: usize,
}

async fn count(text: String, _: Counting, cx: Cx) -> CountingUpdate {
    // Longer texts take longer; the order of the results does not show it.
    cx.sleep(Duration::from_millis(text.len() as u64)).await;
    Counting::update().counts([text.split_whitespace().count()])
}

async fn total(state: Counting, _: Cx) -> CountingUpdate {
    Counting::update().total(state.counts.iter().sum::<usize>())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut graph = StateGraph::new("map-reduce");
    let count = graph.add_worker("count", count);
    let total = graph.add_node("total", total);
    graph.add_fan_out(START, |state: &Counting| state.texts.clone(), count);
    // Once, after the last item.
    graph.add_join([count], total);
    graph.add_edge(total, END);
    let graph = graph.compile()?;

    let texts = ["one two three four five", "six", "seven eight"].map(str::to_owned);
    let end = graph.run(Counting::update().texts(texts)).await?;
    println!("{:?} make {}", end.state.counts, end.state.total);
    assert_eq!((end.state.counts, end.state.total), ([5, 1, 2].into(), 8));
    Ok(())
}
