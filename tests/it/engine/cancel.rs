//! Cancellation.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use superstep::{Answers, CompiledGraph, Cx, NodeOptions, START, State, StateGraph, Status, node::OnCancel};

use crate::support::{Calls, Plain, Stuck, entries, h, head, json, names, on_every_store, say, t, task};

/// Builds a line of nodes; those in `finishing` may finish although the run is cancelled, and the one called
/// `stop` cancels it.
fn nodes(names: &[&str], finishing: &[&str], calls: &Calls) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let mut last = START;
    for &name in names {
        let node = graph.add_node_with(name, calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
            calls.add(&cx);
            if cx.node().as_str() == "stop" {
                cx.cancel().cancel();
                cx.sleep(Duration::from_secs(1)).await;
            }
            say(cx.node().as_str())
        });
        if finishing.contains(&name) {
            graph.configure(node, NodeOptions::new().on_cancel(OnCancel::Finish));
        }
        graph.add_edge(last, node);
        last = node;
    }
    graph.compile().unwrap()
}

on_every_store! {
    async fn a_cancelled_run_drops_its_node_and_can_be_resumed(backend: Backend) {
        let stuck = Stuck::default();
        let graph = |stuck: Option<Stuck>| {
            let mut graph = StateGraph::<Plain>::new("g");
            let a = graph.add_node_with("a", stuck, async |stuck: Option<Stuck>, _: Plain, _: Cx| {
                if let Some(stuck) = stuck {
                    stuck.here().await;
                }
                say("a")
            });
            graph.add_edge(START, a);
            backend.keep(graph.compile().unwrap())
        };
        let config = t();
        let cancel = async {
            stuck.reached().await;
            config.get_cancel().cancel();
        };
        let with_stuck = graph(Some(stuck.clone()));
        let (end, ()) = tokio::join!(with_stuck.configured(config.clone()).run(say("in")), cancel);
        let end = end.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Cancelled, "in"));

        let graph = graph(None);
        let found = head(&graph).await;
        assert_eq!(names(&found.next), "a");
        assert_eq!(task(&found.tasks[0]), ("a".to_owned(), json(&()), "cancelled".to_owned()));
        assert_eq!(found.checkpoint.unwrap().id, end.checkpoint.unwrap());
        let end = graph.thread("t").resume().await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "in a"));
        assert_eq!(h(&graph).await, entries(&[("loop", 1, ""), ("loop", 0, "a"), ("input", -1, "__start__")]));
    }

    async fn a_run_that_is_cancelled_from_the_start_keeps_its_input(backend: Backend) {
        let calls = Calls::default();
        let graph = backend.keep(nodes(&["a"], &[], &calls));
        let config = t();
        config.get_cancel().cancel();
        let end = graph.configured(config).run(say("in")).await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Cancelled, "in"));
        assert_eq!(calls.all(), "");
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "in a");
    }

    async fn nodes_that_may_finish_do_so_and_are_even_started_after_the_cancel(backend: Backend) {
        let calls = Calls::default();
        let graph = backend.keep(nodes(&["stop", "tidy", "next"], &["stop", "tidy"], &calls));
        let end = graph.thread("t").run(Plain::update()).await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Cancelled, "stop tidy"));
        assert_eq!(names(&head(&graph).await.next), "next");
        assert_eq!(calls.all(), "stop tidy");
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "stop tidy next");
    }

    async fn a_cancelled_run_is_complete_if_its_last_node_may_finish(backend: Backend) {
        let graph = backend.keep(nodes(&["stop"], &["stop"], &Calls::default()));
        let end = graph.thread("t").run(Plain::update()).await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "stop"));
    }

    async fn a_node_that_may_finish_does_so_beside_one_that_is_dropped(backend: Backend) {
        let (calls, stuck) = (Calls::default(), Stuck::default());
        let mut graph = StateGraph::<Plain>::new("g");
        let hangs = graph.add_node_with("hangs", stuck, async |stuck: Stuck, _: Plain, _: Cx| stuck.here().await);
        let stop = graph.add_node_with("stop", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
            cx.cancel().cancel();
            cx.sleep(Duration::from_secs(1)).await;
            calls.add(&cx);
            say("stop")
        });
        graph.configure(stop, NodeOptions::new().on_cancel(OnCancel::Finish));
        graph.add_edge(START, hangs);
        graph.add_edge(START, stop);
        let graph = backend.keep(graph.compile().unwrap());
        let end = graph.thread("t").run(Plain::update()).await.unwrap();
        assert_eq!(end.status, Status::Cancelled);
        assert_eq!(calls.all(), "stop");
        let found = head(&graph).await;
        assert_eq!((names(&found.next).as_str(), found.values.log_text().as_str()), ("hangs", "stop"));
    }

    async fn a_cancel_beside_a_question_takes_effect_and_the_question_can_still_be_answered(backend: Backend) {
        let make = |slow: bool, inside: bool| {
            let mut graph = StateGraph::<Plain>::new("asks");
            let ask = graph.add_node("ask", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("q", "?").await));
            let stop = graph.add_node("stop", move |_: Plain, cx: Cx| async move {
                if slow {
                    cx.sleep(Duration::from_secs(1)).await;
                    cx.cancel().cancel();
                    std::future::pending::<()>().await;
                }
                say("stop")
            });
            graph.add_edge(START, ask);
            graph.add_edge(START, stop);
            let asks = graph.compile().unwrap();
            if !inside {
                return backend.keep(asks);
            }
            let mut graph = StateGraph::<Plain>::new("calls");
            let calls = graph.add_subgraph("calls", &asks);
            graph.add_edge(START, calls);
            backend.keep(graph.compile().unwrap())
        };
        for (thread, inside) in [("alone", false), ("inside", true)] {
            let end = make(true, inside).thread(thread).run(Plain::update()).await.unwrap();
            assert_eq!((end.status, end.interrupts.len()), (Status::Cancelled, 1), "{thread}");
            let answers = Answers::new().answer(&end.interrupts[0].id, "R");
            let end = make(false, inside).thread(thread).answers(answers).resume().await.unwrap();
            assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "R stop"), "{thread}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn spawned_work_of_a_node_ends_with_its_run() {
    let (begun, gone) = (Stuck::default(), Arc::new(()));
    let mut graph = StateGraph::<Plain>::new("g");
    let (leaves, held) = (begun.clone(), gone.clone());
    let a = graph.add_node("a", move |_: Plain, cx: Cx| {
        let (leaves, held, later) = (leaves.clone(), held.clone(), cx.clone());
        cx.spawn(async move {
            // It has a reference to the run itself.
            let _held = (held, &later);
            leaves.here().await;
        });
        async { say("a") }
    });
    graph.add_edge(START, a);
    let graph = graph.compile().unwrap();
    begun.crash(graph.run(Plain::update())).await;
    tokio::task::yield_now().await;
    // One is held here, one by the node's function.
    assert_eq!(Arc::strong_count(&gone), 2);
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_after_the_spawned_work_of_its_nodes() {
    let mut graph = StateGraph::<Plain>::new("g");
    let after = Arc::new(Mutex::new(None));
    let keep = after.clone();
    let a = graph.add_node("a", move |_: Plain, cx: Cx| {
        *keep.lock().unwrap() = Some(cx.clone());
        let later = cx.clone();
        cx.spawn(async move { later.sleep(Duration::from_secs(3)).await });
        async { say("a") }
    });
    graph.add_edge(START, a);
    let begun = tokio::time::Instant::now();
    graph.compile().unwrap().run(Plain::update()).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
    // No future would wait for it any more, so it is not started.
    let cx = after.lock().unwrap().take().unwrap();
    cx.spawn(async { panic!("it is too late") });
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_node_is_not_retried() {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", async |_: Plain, cx: Cx| {
        cx.cancel().cancel();
        cx.sleep(Duration::from_secs(1)).await;
        Err::<(), _>(superstep::NodeError::new("no"))
    });
    let retry = superstep::RetryPolicy::default();
    graph.configure(a, NodeOptions::new().retry(retry).on_cancel(OnCancel::Finish));
    graph.add_edge(START, a);
    let result = graph.compile().unwrap().run(Plain::update()).await;
    let error = crate::support::failed(result);
    assert!(matches!(&error, superstep::RunError::Node { attempts: 1, .. }), "{error}");
}
