//! Runs that store each superstep, or only at their end.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use superstep::{
    Answers, CheckpointId, Checkpointer, CompiledGraph, Cx, Durability, MemoryCheckpointer, NodeError,
    RunError, RunOptions, START, State, StateGraph, Status, StreamMode, ThreadId,
    checkpoint::{CheckpointError, Commit},
};
use superstep_testing::wrapped::{Wrapped, Wrapper};
use tokio::sync::{Notify, Semaphore};

use super::{
    crashes::{Failing, hanging},
    failures::ok_and_bad,
};
use crate::support::{
    Calls, Plain, Stuck, entries, failed, h, head, json, line, logging_node, names, on_every_store, say, t,
    told,
};

fn at(durability: Durability) -> RunOptions {
    t().durability(durability)
}

#[derive(State, Clone, Debug, Default, PartialEq)]
struct Hinted {
    #[channel(ephemeral)]
    hint: Option<String>,
    #[channel(append)]
    heard: Vec<String>,
}

/// `a → b → c`; a leaves a hint for the next nodes, and all say their hint.
fn hinted() -> CompiledGraph<Hinted> {
    let mut graph = StateGraph::<Hinted>::new("hinted");
    let mut last = START;
    for name in ["a", "b", "c"] {
        let node = graph.add_node(name, async |state: Hinted, cx: Cx| {
            let heard = format!("{}: {}", cx.node(), state.hint.unwrap_or_default());
            let update = Hinted::update().heard([heard]);
            if cx.node().as_str() == "a" { update.hint(Some("hot".to_owned())) } else { update }
        });
        graph.add_edge(last, node);
        last = node;
    }
    graph.compile().unwrap()
}

on_every_store! {
    async fn sync_and_async_store_the_same_checkpoints(backend: Backend) {
        for durability in [Durability::Sync, Durability::Async] {
            let graph = backend.keep(line(&["a", "b"]));
            graph.thread("t").delete().await.unwrap();
            let end = graph.thread("t").durability(durability).run(say("in")).await.unwrap();
            assert_eq!((end.state.log_text().as_str(), end.checkpoint), ("in a b", Some(CheckpointId(4))));
            assert_eq!(
                h(&graph).await,
                entries(&[("loop", 2, ""), ("loop", 1, "b"), ("loop", 0, "a"), ("input", -1, "__start__")]),
                "{durability:?}"
            );
        }
    }

    async fn exit_stores_the_input_and_one_checkpoint(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        let end = graph.thread("t").durability(Durability::Exit).run(say("in")).await.unwrap();
        assert_eq!((end.state.log_text().as_str(), end.checkpoint), ("in a b", Some(CheckpointId(2))));
        assert_eq!(h(&graph).await, entries(&[("loop", 2, ""), ("input", -1, "__start__")]));
        assert_eq!(head(&graph).await.values, end.state);
        let end = graph.thread("t").durability(Durability::Exit).run(say("2")).await.unwrap();
        assert_eq!(end.state.log_text(), "in a b 2 a b");
        assert_eq!(head(&backend.keep(line(&["a", "b"]))).await.values, end.state);
        assert_eq!(h(&graph).await[..2], entries(&[("loop", 6, ""), ("input", 3, "__start__")]));
    }

    async fn a_pause_in_exit_mode_stores_one_checkpoint_and_its_resume_another(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        let end = graph.thread("t").durability(Durability::Exit).break_before(["b"]).run(say("in")).await.unwrap();
        assert_eq!((end.status, end.checkpoint), (Status::Interrupted, Some(CheckpointId(2))));
        assert_eq!(h(&graph).await, entries(&[("loop", 1, "b"), ("input", -1, "__start__")]));
        let graph = backend.keep(line(&["a", "b"]));
        assert_eq!(head(&graph).await.values.log_text(), "in a");
        assert_eq!(graph.thread("t").durability(Durability::Exit).resume().await.unwrap().state.log_text(), "in a b");
        assert_eq!(
            h(&graph).await,
            entries(&[("loop", 2, ""), ("loop", 1, "b"), ("input", -1, "__start__")])
        );
        // The superstep that a run of one superstep stores is known with what its tasks wrote.
        let paused = graph.thread("t").at(CheckpointId(2)).state().await.unwrap();
        assert_eq!(paused.tasks[0].result.as_ref().map(json), Some(json(&say("b"))));
    }

    async fn a_failure_in_exit_mode_keeps_what_was_done_before_it(backend: Backend) {
        let calls = Calls::default();
        let graph = backend.keep(ok_and_bad(false, &calls));
        let error = failed(graph.thread("t").durability(Durability::Exit).run(say("in")).await);
        assert!(matches!(&error, RunError::Node { node, .. } if node.as_str() == "bad"), "{error}");
        assert_eq!(h(&graph).await, entries(&[("loop", 0, "bad ok"), ("input", -1, "__start__")]));
        let live = head(&graph).await;
        assert_eq!((live.values.log_text().as_str(), names(&live.next).as_str()), ("in ok", "bad"));
        assert!(live.tasks[0].error.as_ref().unwrap().contains("no luck"));
        let repaired = backend.keep(ok_and_bad(true, &calls));
        assert_eq!(repaired.thread("t").durability(Durability::Exit).resume().await.unwrap().state.log_text(), "in bad ok j");
        assert_eq!(calls.named("ok"), 1);
    }

    async fn a_crash_in_async_mode_costs_what_was_not_written(backend: Backend) {
        let (calls, stuck) = (Calls::default(), Stuck::default());
        let graph = backend.keep(hanging(&calls, Some(&stuck)));
        let run = graph.thread("t").durability(Durability::Async).run(say("in"));
        stuck.crash_once(run, async || names(&head(&graph).await.next) == "b").await;
        drop(graph);
        let graph = backend.keep(hanging(&calls, None));
        assert_eq!(head(&graph).await.values.log_text(), "in a");
        assert_eq!(graph.thread("t").durability(Durability::Async).resume().await.unwrap().state.log_text(), "in a b c");
        assert_eq!(calls.all(), "a b b c");
    }

    async fn a_crash_in_exit_mode_costs_the_run_and_not_its_input(backend: Backend) {
        let (calls, stuck) = (Calls::default(), Stuck::default());
        let graph = backend.keep(hanging(&calls, Some(&stuck)));
        stuck.crash(graph.thread("t").durability(Durability::Exit).run(say("in"))).await;
        drop(graph);
        let graph = backend.keep(hanging(&calls, None));
        assert_eq!(h(&graph).await, entries(&[("input", -1, "__start__")]));
        assert_eq!(graph.thread("t").durability(Durability::Exit).resume().await.unwrap().state.log_text(), "in a b c");
        assert_eq!(calls.all(), "a b a b c");
    }

    async fn a_write_that_fails_in_async_mode_fails_the_run(backend: Backend) {
        for commits in 1..4 {
            let store = Failing::new(backend.open());
            store.0.fail_after(commits);
            let graph = line(&["a", "b"]).with_checkpointer(store.clone());
            let error = failed(graph.thread("t").durability(Durability::Async).run(say("in")).await);
            assert!(matches!(&error, RunError::Checkpoint(CheckpointError::Storage { .. })), "{error}");
            let graph = backend.keep(line(&["a", "b"]));
            assert_eq!(h(&graph).await.len(), commits);
            assert_eq!(graph.thread("t").durability(Durability::Async).resume().await.unwrap().state.log_text(), "in a b");
            graph.thread("t").delete().await.unwrap();
        }
    }

    async fn exit_mode_retains_ephemeral_values_for_the_next_superstep(backend: Backend) {
        let graph = backend.keep(hinted());
        graph.thread("t").durability(Durability::Exit).break_before(["b"]).run(Hinted::update()).await.unwrap();
        let end = backend.keep(hinted()).thread("t").durability(Durability::Exit).resume().await.unwrap();
        assert_eq!(end.state.heard, ["a: ", "b: hot", "c: "]);
    }

    async fn exit_mode_retains_questions_keys_and_the_last_nodes(backend: Backend) {
        let keys = Arc::new(Mutex::new(Vec::new()));
        let asking = || {
            let mut graph = StateGraph::<Plain>::new("asking");
            let before = graph.add_node("before", async |_, _| say("before"));
            let ask = graph.add_node_with("ask", keys.clone(), async |keys: Arc<Mutex<Vec<_>>>, _: Plain, cx: Cx| {
                keys.lock().unwrap().push(cx.key());
                let answer: String = cx.interrupt("q", "well?").await;
                say(&answer)
            });
            graph.add_edge(START, before);
            graph.add_edge(before, ask);
            backend.keep(graph.compile().unwrap())
        };
        let end = asking().thread("t").durability(Durability::Exit).run(say("in")).await.unwrap();
        assert_eq!((end.status, end.interrupts.len()), (Status::Interrupted, 1));
        let graph = asking();
        assert_eq!(head(&graph).await.tasks[0].interrupts, end.interrupts);
        let answers = Answers::new().answer("q", "yes");
        let end = graph.thread("t").durability(Durability::Exit).answers(answers).resume().await.unwrap();
        assert_eq!(end.state.log_text(), "in before yes");
        let keys = keys.lock().unwrap().clone();
        assert_eq!((keys.len(), &keys[0]), (2, &keys[1]));
        // `before` and not the start, which the stored checkpoint follows.
        graph.thread("t").at(CheckpointId(2)).update(say("u")).await.unwrap();
        assert_eq!(names(&head(&graph).await.next), "ask");
    }
}

on_every_store! {
    async fn graphs_that_are_called_in_a_loop_begin_anew_in_every_mode(backend: Backend) {
        let calling = || {
            let mut inner = StateGraph::<Plain>::new("inner");
            let ask = inner.add_node("ask", async |state: Plain, cx: Cx| {
                let answer: String = cx.interrupt("q", state.x).await;
                say(&answer)
            });
            inner.add_edge(START, ask);
            let inner = inner.compile().unwrap();
            let mut graph = StateGraph::<Plain>::new("outer");
            let call = graph.add_node_with("call", inner, async |inner: CompiledGraph<Plain>, state: Plain, cx: Cx| {
                let said = cx.call(&inner, Plain::update().x(state.x)).await?.log_text();
                Ok::<_, NodeError>(say(&said).x(state.x + 1))
            });
            graph.add_edge(START, call);
            graph.add_edge(call, call);
            backend.keep(graph.compile().unwrap())
        };
        for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
            calling().thread("t").delete().await.unwrap();
            let mut end = calling().thread("t").durability(durability).run(say("in")).await.unwrap();
            for answer in ["one", "two", "three"] {
                assert_eq!(end.interrupts.len(), 1, "{durability:?}");
                let answers = Answers::new().answer("q", answer);
                end = calling().thread("t").durability(durability).answers(answers).resume().await.unwrap();
            }
            assert_eq!((end.state.log_text().as_str(), end.state.x), ("in one two three", 3), "{durability:?}");
        }
    }
}

/// A store whose commits wait for permission, after the first.
struct Gate {
    store: MemoryCheckpointer,
    open: Arc<Semaphore>,
}

impl Wrapper for Gate {
    fn store(&self) -> &dyn Checkpointer {
        &self.store
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            if expected.is_some() {
                self.open.acquire().await.expect("the gate is not closed for ever").forget();
            }
            self.store.commit(&thread, expected, next).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_in_async_mode_waits_for_a_store_that_is_far_behind() {
    let (calls, open) = (Calls::default(), Arc::new(Semaphore::new(0)));
    let mut graph = StateGraph::<Plain>::new("long");
    let a = graph.add_node_with("a", calls.clone(), async |calls: Calls, state: Plain, cx: Cx| {
        calls.add(&cx);
        say("x").x(state.x + 1)
    });
    graph.add_edge(START, a);
    graph.add_edge(a, a);
    let store = Arc::new(Wrapped(Gate { store: MemoryCheckpointer::new(), open: open.clone() }));
    let graph = graph.compile().unwrap().with_checkpointer(store);
    let mut run =
        Box::pin(graph.thread("t").durability(Durability::Async).step_limit(300).run(Plain::update()));
    assert!(tokio::time::timeout(std::time::Duration::from_secs(1), &mut run).await.is_err());
    let ahead = calls.named("a");
    assert!((10..100).contains(&ahead), "{ahead}");
    open.add_permits(1_000);
    let error = failed(run.await);
    assert!(matches!(error, RunError::StepLimit { .. }), "{error}");
    let history = graph.thread("t").history().checkpoints().await.unwrap();
    assert_eq!((history.len(), calls.named("a")), (302, 300));
}

#[tokio::test(start_paused = true)]
async fn writes_that_waited_in_async_mode_are_stored_in_their_order() {
    let open = Arc::new(Semaphore::new(0));
    let mut graph = StateGraph::<Plain>::new("order");
    let [quick, slow] = [0, 10].map(|ms| {
        graph.add_node(&format!("after {ms}"), move |_: Plain, cx: Cx| async move {
            cx.sleep(std::time::Duration::from_millis(ms)).await;
            say(cx.node().as_str())
        })
    });
    let [b, c] = ["b", "c"].map(|name| logging_node(&mut graph, name));
    graph.add_edge(START, quick);
    graph.add_edge(START, slow);
    graph.add_join([quick, slow], b);
    graph.add_edge(b, c);
    let store = Arc::new(Wrapped(Gate { store: MemoryCheckpointer::new(), open: open.clone() }));
    let graph = graph.compile().unwrap().with_checkpointer(store);
    let mut run = Box::pin(graph.thread("t").durability(Durability::Async).run(say("in")));
    assert!(tokio::time::timeout(std::time::Duration::from_secs(1), &mut run).await.is_err());
    open.add_permits(1_000);
    assert_eq!(run.await.unwrap().state.log_text(), "in after 0 after 10 b c");
    let history = graph.thread("t").history().checkpoints().await.unwrap();
    assert_eq!(history.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_wide_superstep_in_async_mode_waits_for_a_store_that_is_far_behind() {
    let (calls, open) = (Calls::default(), Arc::new(Semaphore::new(0)));
    let mut graph = StateGraph::<Plain>::new("wide");
    let counted = calls.clone();
    let w = graph.add_worker("w", move |_: i64, _: Plain, cx: Cx| {
        counted.add(&cx);
        async { say("x") }
    });
    graph.add_fan_out(START, |_| 0..300_i64, w);
    let store = Arc::new(Wrapped(Gate { store: MemoryCheckpointer::new(), open: open.clone() }));
    let graph = graph.compile().unwrap().with_checkpointer(store);
    let mut run =
        Box::pin(graph.thread("t").durability(Durability::Async).max_concurrency(1).run(Plain::update()));
    assert!(tokio::time::timeout(std::time::Duration::from_secs(1), &mut run).await.is_err());
    let ahead = calls.named("w");
    assert!((10..100).contains(&ahead), "{ahead}");
    open.add_permits(1_000);
    assert_eq!((run.await.unwrap().state.log.len(), calls.named("w")), (300, 300));
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_is_reported_once_it_is_stored() {
    for (durability, expected) in [
        (Durability::Exit, &["checkpoint input -1 -> [__start__]", "checkpoint loop 1 -> []"][..]),
        (
            Durability::Async,
            &["checkpoint input -1 -> [__start__]", "checkpoint loop 0 -> [a]", "checkpoint loop 1 -> []"],
        ),
    ] {
        let graph = line(&["a"]).with_checkpointer(Arc::new(MemoryCheckpointer::new()));
        let lines = told(&graph, say("in"), at(durability), &[StreamMode::Checkpoints]).await;
        assert_eq!(lines, expected, "{durability:?}");
    }
}

on_every_store! {
    async fn the_supersteps_of_a_called_graph_are_stored_when_its_caller_stops(backend: Backend) {
        for durability in [Durability::Sync, Durability::Exit] {
            let (calls, reached) = (Calls::default(), Arc::new(Notify::new()));
            let mut inner = StateGraph::<Plain>::new("inner");
            let mut last = START;
            for name in ["s1", "s2", "s3"] {
                let (calls, reached) = (calls.clone(), reached.clone());
                let node = inner.add_node(name, move |_: Plain, cx: Cx| {
                    calls.add(&cx);
                    let stops = name == "s3" && calls.named(name) == 1;
                    let reached = reached.clone();
                    async move {
                        if stops {
                            reached.notify_one();
                            std::future::pending::<()>().await;
                        }
                        say(name)
                    }
                });
                inner.add_edge(last, node);
                last = node;
            }
            let mut graph = StateGraph::<Plain>::new("g");
            let sub = graph.add_subgraph_with("sub", &inner.compile().unwrap(), |_: &Plain| Plain::update(), |it: &Plain| say(&it.log_text()));
            let runs = calls.clone();
            let bad = graph.add_node("bad", move |_: Plain, _: Cx| {
                let (reached, stops) = (reached.clone(), runs.named("s3") == 0);
                async move {
                    if stops {
                        reached.notified().await;
                        return Err(NodeError::new("bad").fatal());
                    }
                    Ok(say("bad"))
                }
            });
            graph.add_edge(START, bad);
            graph.add_edge(START, sub);
            let graph = backend.keep(graph.compile().unwrap());
            let thread = format!("{durability:?}");
            failed(graph.thread(&*thread).durability(durability).run(say("in")).await);
            let end = graph.thread(&*thread).durability(durability).resume().await.unwrap();
            assert_eq!((end.state.log_text().as_str(), calls.all().as_str()), ("in bad s1 s2 s3", "s1 s2 s3 s3"), "{durability:?}");
        }
    }

    async fn what_a_node_left_behind_may_call_a_graph_when_the_run_is_over(backend: Backend) {
        for durability in [Durability::Async, Durability::Exit] {
            let (go, called) = (Arc::new(Notify::new()), Arc::new(Mutex::new(None)));
            let mut graph = StateGraph::<Plain>::new("g");
            let deps = (line(&["i"]), go.clone(), called.clone());
            let a = graph.add_node("a", move |_: Plain, cx: Cx| {
                let ((inner, go, called), later) = (deps.clone(), cx.clone());
                cx.spawn(async move {
                    go.notified().await;
                    let end = later.call(&inner, Plain::update()).await.unwrap();
                    *called.lock().unwrap() = Some(end.log_text());
                });
                async { say("a") }
            });
            let b = graph.add_node_with("b", go, async |go: Arc<Notify>, _: Plain, _: Cx| {
                go.notify_one();
                say("b")
            });
            graph.add_edge(START, a);
            graph.add_edge(a, b);
            let graph = backend.keep(graph.compile().unwrap());
            assert_eq!(graph.thread(format!("{durability:?}")).durability(durability).run(Plain::update()).await.unwrap().state.log_text(), "a b");
            assert_eq!(called.lock().unwrap().as_deref(), Some("i"));
        }
    }
}
