//! Runs that their callers drop, such as a handler of a server whose client is gone.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use superstep::{
    CompiledGraph, Cx, Durability, NodeError, START, State, StateGraph, Status, node::Persistence,
};
use tokio::sync::Notify;

use crate::support::{Plain, logging_node, on_every_store, say};

/// A payment, and the client that leaves as soon as it is made.
#[derive(Clone, Default)]
struct Payment {
    made: Arc<AtomicUsize>,
    notify: Arc<Notify>,
}

impl Payment {
    async fn pay(&self, cx: &Cx) -> Result<<Plain as State>::Update, NodeError> {
        let pay = async |_| {
            self.made.fetch_add(1, Ordering::SeqCst);
            self.notify.notify_one();
            Ok::<_, NodeError>("paid".to_owned())
        };
        Ok(say(&cx.once("pay", pay).await?))
    }
}

/// `START → begin → (pays, beside)`; `pays` may call a graph without storage that pays.
fn graph(payment: &Payment, is_called: bool) -> CompiledGraph<Plain> {
    let mut called = StateGraph::<Plain>::new("called");
    let inner = called.add_node_with("inner", payment.clone(), async |payment: Payment, _: Plain, cx: Cx| {
        payment.pay(&cx).await
    });
    called.add_edge(START, inner);
    let called = called.compile().unwrap().with_persistence(Persistence::Ephemeral);
    let mut graph = StateGraph::<Plain>::new("g");
    let begin = logging_node(&mut graph, "begin");
    let pays = match is_called {
        true => graph.add_subgraph("pays", &called),
        false => graph.add_node_with("pays", payment.clone(), async |payment: Payment, _: Plain, cx: Cx| {
            payment.pay(&cx).await
        }),
    };
    let beside = logging_node(&mut graph, "beside");
    graph.add_edge(START, begin);
    for node in [pays, beside] {
        graph.add_edge(begin, node);
    }
    graph.compile().unwrap()
}

on_every_store! {
    async fn an_effect_of_a_dropped_run_is_not_repeated(backend: Backend) {
        for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
            for is_called in [false, true] {
                let (payment, name) = (Payment::default(), format!("{durability:?} {is_called}"));
                let thread = || backend.keep(graph(&payment, is_called)).thread(&*name).durability(durability);
                let run = thread();
                tokio::select! {
                    biased;
                    () = payment.notify.notified() => {}
                    _ = run.run(Plain::update()) => {}
                }
                assert_eq!(payment.made.load(Ordering::SeqCst), 1);
                // Until a database has stored the result, the thread has its lease.
                let end = loop {
                    match thread().resume().await {
                        Err(error) if error.is_busy() => tokio::task::yield_now().await,
                        end => break end.unwrap(),
                    }
                };
                assert_eq!((end.status, payment.made.load(Ordering::SeqCst)), (Status::Completed, 1), "{name}");
                let mut words: Vec<_> = end.state.log.iter().map(String::as_str).collect();
                words.sort_unstable();
                assert_eq!(words, ["begin", "beside", "paid"]);
            }
        }
    }
}
