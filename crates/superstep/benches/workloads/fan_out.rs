//! Many tasks of one worker in one superstep.

use serde::{Deserialize, Serialize};
use superstep::{Cx, END, Log, START, State, StateGraph};

use super::{Run, streamed};
use crate::saver::Saver;

#[derive(State, Clone, Debug, Default)]
struct Doubled {
    items: Vec<i64>,
    #[channel(append)]
    out: Log<i64>,
}

#[derive(Serialize, Deserialize)]
struct Item {
    i: i64,
}

/// Builds `items` sends to a worker that doubles its number.
pub(crate) fn run(items: i64, saver: Saver) -> Run {
    let mut graph = StateGraph::new("send-flat");
    let work =
        graph.add_worker("work", async |item: Item, _: Doubled, _: Cx| Doubled::update().out([item.i * 2]));
    let each = |state: &Doubled| state.items.iter().map(|&i| Item { i }).collect::<Vec<_>>();
    graph.add_fan_out(START, each, work);
    graph.add_edge(work, END);
    let graph = graph.compile().expect("the graph is whole");
    streamed(graph, saver, Doubled::update().items((0..items).collect::<Vec<_>>()), |state| {
        state.out.len() == state.items.len()
    })
}
