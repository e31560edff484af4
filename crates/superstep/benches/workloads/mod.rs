//! The reference's workloads: the same nodes, edges, sizes and states as `peers/reference/workloads.py`,
//! streamed with updates in the same way.

#[cfg(feature = "agent")]
mod agent;
mod chain;
mod chat;
mod fan_out;
mod react;
mod subgraph;
mod wide;

use std::sync::Arc;

use futures::{StreamExt as _, future::BoxFuture};
use superstep::{CompiledGraph, State, Status, StreamMode, ThreadId};

use crate::saver::Saver;

/// One run from its input to its end, on the thread of this name.
pub(crate) type Run = Arc<dyn Fn(ThreadId) -> BoxFuture<'static, ()> + Send + Sync>;

/// A function that builds a workload for a saver.
pub(crate) type Workload = fn(Saver) -> Run;

pub(crate) const WORKLOADS: &[(&str, Workload)] = &[
    ("sequential_10", |saver| chain::sequential(10, saver)),
    ("sequential_1000", |saver| chain::sequential(1_000, saver)),
    ("loop_1000", |saver| chain::looped(1_000, saver)),
    ("react_plain_10x", |saver| react::run(10, saver)),
    ("react_plain_100x", |saver| react::run(100, saver)),
    ("wide_state_25x300", |saver| wide::run(300, 5, 5, saver)),
    ("wide_state_15x600", |saver| wide::run(600, 3, 5, saver)),
    ("wide_state_9x1200", |saver| wide::run(1_200, 3, 3, saver)),
    ("fanout_to_subgraph_10x", |saver| subgraph::run(10, saver)),
    ("fanout_to_subgraph_100x", |saver| subgraph::run(100, saver)),
    ("send_flat_1000", |saver| fan_out::run(1_000, saver)),
    ("chat_200", |saver| chat::run(200, saver)),
    #[cfg(feature = "agent")]
    ("agent_10x", |saver| agent::run(10, 32, saver)),
    #[cfg(feature = "agent")]
    ("agent_100x", |saver| agent::run(100, 32, saver)),
    #[cfg(feature = "agent")]
    ("agent_text_100x", |saver| agent::run(100, 3_600, saver)),
];

/// Runs `graph` to its end on a new thread and consumes each update.
fn streamed<S: State>(graph: CompiledGraph<S>, saver: Saver, input: S::Update, check: fn(&S) -> bool) -> Run {
    let graph = saver.keep(graph);
    Arc::new(move |thread| {
        let (graph, input, options) = (graph.clone(), input.clone(), saver.options(thread));
        Box::pin(async move {
            let mut events = graph.configured(options).stream(input, [StreamMode::Updates]);
            while events.next().await.is_some() {}
            let outcome = events.outcome().await.expect("the run does not fail");
            assert!(outcome.status == Status::Completed && check(&outcome.state), "the run did its work");
        })
    })
}
