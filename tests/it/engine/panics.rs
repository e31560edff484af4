//! User code that panics does not crash the run's caller, and is named.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use superstep::{
    CompiledGraph, Cx, END, NodeError, NodeOptions, ReduceError, Reducer, RetryPolicy, Route, RunError,
    START, State, StateGraph, Status, error::Panicked,
};

use crate::support::{Plain, entries, failed, h, head, line, logging_node, names, on_every_store, say};

fn is_panic(error: &(dyn std::error::Error + 'static), message: &str) -> bool {
    let mut error = Some(error);
    while let Some(cause) = error {
        if let Some(Panicked(text)) = cause.downcast_ref::<Panicked>() {
            return text == message;
        }
        error = cause.source();
    }
    false
}

/// `a`, which panics immediately or after a while, alone or with a sibling.
fn panicking(later: bool, sibling: bool) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("line");
    let a = graph.add_node("a", move |_: Plain, _: Cx| {
        assert!(later, "at once");
        async move {
            tokio::task::yield_now().await;
            if later {
                panic!("later, in {}", 3);
            }
            say("never")
        }
    });
    graph.configure(a, NodeOptions::new().retry(RetryPolicy::default()));
    graph.add_edge(START, a);
    if sibling {
        let b = logging_node(&mut graph, "b");
        graph.add_edge(START, b);
    }
    graph.compile().unwrap()
}

on_every_store! {
    async fn a_panicking_node_is_a_failure_that_is_not_retried(backend: Backend) {
        for (later, sibling, message) in [
            (false, false, "at once"),
            (true, false, "later, in 3"),
            (false, true, "at once"),
            (true, true, "later, in 3"),
        ] {
            let graph = backend.keep(panicking(later, sibling));
            let error = failed(graph.thread("t").on_unfinished(superstep::OnUnfinished::Discard).run(Plain::update()).await);
            assert!(
                matches!(&error, RunError::Node { node, attempts: 1, .. } if node.as_str() == "a")
                    && is_panic(&error, message),
                "{error:?}"
            );
        }
        assert_eq!(backend.keep(line(&["a", "b"])).thread("t").resume().await.unwrap().state.log_text(), "a b b");
    }

    async fn a_panicking_router_is_a_failure_of_its_node(backend: Backend) {
        let graph = |panics: bool| {
            #[derive(Route, Clone, Copy)]
            enum Next { End }
            let mut graph = StateGraph::<Plain>::new("g");
            let a = logging_node(&mut graph, "a");
            graph.add_edge(START, a);
            let router = move |state: &Plain| {
                assert!(!panics, "no way from {}", state.log_text());
                Next::End
            };
            graph.add_conditional_edges(a, router, |_| END);
            backend.keep(graph.compile().unwrap())
        };
        let lost = graph(true);
        let error = failed(lost.thread("t").run(Plain::update()).await);
        assert!(
            matches!(&error, RunError::Router { node, step: 1, .. } if node.as_str() == "a")
                && is_panic(&error, "no way from a"),
            "{error:?}"
        );
        assert_eq!(names(&head(&lost).await.next), "a");
        assert_eq!(h(&lost).await, entries(&[("loop", 0, "a"), ("input", -1, "__start__")]));
        assert_eq!(graph(false).thread("t").resume().await.unwrap().state.log_text(), "a");
    }
}

/// Adds a number, and panics at 13.
enum Superstitious {}

impl Reducer<i64> for Superstitious {
    type Write = i64;

    fn reduce(value: &mut i64, write: i64) -> Result<(), ReduceError> {
        assert_ne!(write, 13, "bad luck");
        *value += write;
        Ok(())
    }
}

#[derive(State, Clone, Debug, Default)]
struct Luck {
    #[channel(with = Superstitious)]
    sum: i64,
}

fn lucky(numbers: &'static [i64]) -> CompiledGraph<Luck> {
    let mut graph = StateGraph::<Luck>::new("g");
    for (name, &number) in ["a", "b"].iter().zip(numbers) {
        let node = graph.add_node(name, move |_, _| async move { Luck::update().sum(number) });
        graph.add_edge(START, node);
    }
    graph.compile().unwrap()
}

on_every_store! {
    async fn a_panicking_reducer_refuses_the_write_of_its_node(backend: Backend) {
        for numbers in [&[13][..], &[1, 13]] {
            let graph = backend.keep(lucky(numbers));
            let error = failed(graph.thread("t").on_unfinished(superstep::OnUnfinished::Discard).run(Luck::update()).await);
            let culprit = ["a", "b"][numbers.len() - 1];
            assert!(
                matches!(&error, RunError::Fold { node, source, .. }
                    if node.as_str() == culprit && source.channel == "sum"),
                "{error:?}"
            );
            assert_eq!(names(&head(&graph).await.next), culprit);
        }
        let error = failed(backend.keep(lucky(&[1])).thread("t").update_as("a", Luck::update().sum(13)).await);
        assert!(matches!(&error, RunError::Fold { .. }), "{error:?}");
        assert_eq!(backend.keep(lucky(&[1, 2])).thread("t").resume().await.unwrap().state.sum, 3);
    }

    async fn an_input_on_which_a_reducer_panics_leaves_no_trace(backend: Backend) {
        let graph = backend.keep(lucky(&[1]));
        let error = failed(graph.thread("t").run(Luck::update().sum(13)).await);
        assert!(matches!(&error, RunError::Fold { step: 0, .. }), "{error:?}");
        assert_eq!(h(&graph).await, []);
    }
}

/// Panics when it is dropped, once.
struct Bomb(Arc<AtomicBool>);

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.0.swap(false, Ordering::SeqCst), "dropped");
    }
}

on_every_store! {
    /// The node ends, is interrupted, or is dropped, alone or with a sibling.
    async fn a_node_that_panics_when_it_is_dropped_takes_no_run_with_it(backend: Backend) {
        for (nth, (way, beside)) in
            ["ends", "asks", "cancels", "waits"].into_iter().flat_map(|way| [(way, false), (way, true)]).enumerate()
        {
            let armed = Arc::new(AtomicBool::new(true));
            let mut graph = StateGraph::<Plain>::new("g");
            let bomb = armed.clone();
            let a = graph.add_node("a", move |_: Plain, cx: Cx| {
                let bomb = Bomb(bomb.clone());
                async move {
                    let _bomb = bomb;
                    match way {
                        "asks" => {
                            let _: bool = cx.interrupt("q", "?").await;
                        }
                        "cancels" => {
                            cx.cancel().cancel();
                            std::future::pending::<()>().await;
                        }
                        "waits" if beside => std::future::pending::<()>().await,
                        _ => {}
                    }
                    say("a")
                }
            });
            graph.add_edge(START, a);
            if beside {
                let b = graph.add_node("b", move |_: Plain, _: Cx| async move {
                    if way == "waits" { Err(NodeError::new(std::fmt::Error).fatal()) } else { Ok(say("b")) }
                });
                graph.add_edge(START, b);
            }
            let graph = backend.keep(graph.compile().unwrap());
            let ended = graph.thread(nth.to_string()).run(say("in")).await;
            match (way, ended) {
                ("asks", Ok(end)) => assert_eq!(end.status, Status::Interrupted),
                ("cancels", Ok(end)) => assert_eq!(end.status, Status::Cancelled),
                ("waits", Err(RunError::Node { node, .. })) if beside => assert_eq!(node.as_str(), "b"),
                ("ends" | "waits", Err(error)) => assert!(is_panic(&error, "dropped"), "{error:?}"),
                (_, ended) => panic!("{way} {beside}: {:?}", ended.map(|end| end.status)),
            }
            assert!(!armed.load(Ordering::SeqCst), "{way} {beside}");
        }
    }
}
