//! The floor of superstep's own benchmark.

#[path = "../../../../floor.rs"]
#[expect(dead_code, reason = "not every part of it is measured here")]
mod floor;

use std::sync::Arc;

use peers::{HISTORY, Scenario, msg_text, runtime};

const E: &str = "floor";

#[derive(Clone)]
struct Message {
    #[expect(dead_code, reason = "it is stored and not read")]
    role: String,
    #[expect(dead_code, reason = "it is stored and not read")]
    content: String,
}

impl Message {
    fn numbered(number: i64) -> Self {
        Self { role: "assistant".into(), content: msg_text(number as usize) }
    }
}

/// Nothing is measured from a node on here.
#[derive(Clone)]
struct Stopwatch;

impl Stopwatch {
    fn start(&self) {}
}

type Kept = Option<Arc<floor::Memory>>;

fn main() {
    let runtime = runtime();
    for saver in ["none", "memory"] {
        let given = |messages: usize| -> (Arc<floor::State>, Kept) {
            let messages = (0..messages).map(|number| Message::numbered(number as i64)).collect();
            let state = Arc::new(floor::State { messages, ..floor::State::default() });
            (state, (saver == "memory").then(Arc::default))
        };
        let measure = |name, size, steps, graph: floor::Graph, messages: usize| {
            let (graph, scenario) = (Arc::new(graph), Scenario { engine: E, name, saver, size, steps });
            scenario.measure(
                &runtime,
                || given(messages),
                |(state, kept)| {
                    let graph = graph.clone();
                    async move { (floor::run(graph, state, kept.clone()).await, kept) }
                },
            );
        };
        measure("loop", 1_000, 1_000, floor::looped(1_000), 0);
        measure("chain", 1_000, 1_000, floor::chain(1_000), 0);
        measure("fanout", 100, 1, floor::fan_out(100), 0);
        for size in HISTORY {
            measure("history", size, 100, floor::appends(100, Stopwatch), size);
        }
    }
}
