//! superstep, on the graphs of its own benchmark.

#[path = "../../../../ours.rs"]
mod ours;

use std::sync::Arc;

use peers::{HISTORY, Scenario, msg_text, runtime};
use serde::{Deserialize, Serialize};
use superstep::{CompiledGraph, MemoryCheckpointer, Outcome, State as _};

const E: &str = "superstep";

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Message {
    role: String,
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

type Kept = Option<Arc<MemoryCheckpointer>>;
type Given = (CompiledGraph<ours::Work>, Kept, Vec<Message>);

fn main() {
    let runtime = runtime();
    for saver in ["none", "memory"] {
        let given = |graph: &CompiledGraph<ours::Work>, messages: usize| -> Given {
            let messages = (0..messages).map(|number| Message::numbered(number as i64)).collect();
            let kept: Kept = (saver == "memory").then(Arc::default);
            let graph = graph.clone();
            match &kept {
                Some(kept) => (graph.with_checkpointer(kept.clone()), Some(kept.clone()), messages),
                None => (graph, None, messages),
            }
        };
        let run = |(graph, kept, messages): Given| async move {
            let thread = graph.thread("t").step_limit(2_000);
            let outcome = thread.run(ours::Work::update().messages(messages)).await.unwrap();
            (kept, outcome)
        };
        let scenario = |name, size, steps| Scenario { engine: E, name, saver, size, steps };
        let looped = ours::looped(1_000);
        scenario("loop", 1_000, 1_000).measure(&runtime, || given(&looped, 0), run);
        let chain = ours::chain(1_000);
        scenario("chain", 1_000, 1_000).measure(&runtime, || given(&chain, 0), run);
        let fan_out = ours::fan_out(100);
        scenario("fanout", 100, 1).measure(&runtime, || given(&fan_out, 0), run);
        for size in HISTORY {
            // One message tells what the checkpoint of the input keeps.
            for (name, steps) in [("history", 100), ("history-of-one", 1)] {
                let appends = ours::appends(steps, Stopwatch);
                scenario(name, size, steps as usize).measure(
                    &runtime,
                    || given(&appends, size),
                    move |given| async move {
                        let (kept, outcome): (Kept, Outcome<ours::Work>) = run(given).await;
                        assert_eq!(outcome.state.messages.len(), size + steps as usize);
                        (kept, outcome)
                    },
                );
            }
        }
    }
}
