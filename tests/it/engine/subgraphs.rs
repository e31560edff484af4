//! E: nested graphs.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::json;
use superstep::{
    Answers, CompiledGraph, Cx, END, FailureKind, NodeError, NodeFailure, NodeOptions, Route, RunError,
    START, State, StateGraph, Status, ThreadId, call::Seen, node::Persistence,
};

use crate::support::{
    Backend, Calls, Plain, failed, head, id_at, id_prefixes, line, names, on_every_store, say,
};

#[derive(Route, Clone, Copy)]
enum Loop {
    Again,
    Enough,
}

/// The state of an inner graph.
#[derive(State, Clone, Debug, Default, PartialEq)]
pub(super) struct Inner {
    #[channel(append)]
    pub(super) said: superstep::Log<String>,
    pub(super) x: i64,
}

impl Inner {
    fn words(&self) -> Vec<String> {
        self.said.iter().cloned().collect()
    }
}

/// Adds a node that says its name and is counted.
fn counted(graph: &mut StateGraph<Plain>, calls: &Calls, name: &'static str) -> superstep::NodeRef {
    graph.add_node_with(name, calls.clone(), async move |calls: Calls, _: Plain, cx: Cx| {
        calls.add(&cx);
        say(name)
    })
}

/// `s1 → s2`, where `s2` asks `q` and says the answer.
pub(super) fn asking(calls: &Calls) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("sub");
    let s1 = counted(&mut graph, calls, "s1");
    let s2 = graph.add_node_with("s2", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
        calls.add(&cx);
        let answer: String = cx.interrupt("q", "sub?").await;
        say(&answer)
    });
    graph.add_edge(START, s1);
    graph.add_edge(s1, s2);
    graph.add_edge(s2, END);
    graph.compile().unwrap()
}

/// `p → sub`.
pub(super) fn parent(calls: &Calls, sub: &CompiledGraph<Plain>) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("parent");
    let p = counted(&mut graph, calls, "p");
    let sub = graph.add_subgraph("sub", sub);
    graph.add_edge(START, p);
    graph.add_edge(p, sub);
    graph.add_edge(sub, END);
    graph.compile().unwrap()
}

async fn children(backend: &Backend) -> Vec<String> {
    let children = backend.open().children(&"t".into()).await.unwrap();
    children.iter().map(|child| child.path().to_string()).collect()
}

on_every_store! {
    async fn a_subgraph_asks_and_goes_on_where_it_was(backend: Backend) {
        let calls = Calls::default();
        let make = || backend.keep(parent(&calls, &asking(&calls)));
        let asked = make().thread("t").run(say("in")).await.unwrap();
        assert_eq!((asked.status, asked.state.log_text().as_str()), (Status::Interrupted, "in p"));
        assert_eq!(id_prefixes(&asked.interrupts), ["sub:2.0/s2:2.0:q"]);
        let [interrupt] = &asked.interrupts[..] else { panic!("one question") };
        assert_eq!((interrupt.node.as_str(), interrupt.key.as_str()), ("s2", "q"));
        assert_eq!(interrupt.question, json!("sub?"));
        let waiting = head(&make()).await;
        assert_eq!((names(&waiting.next), &waiting.tasks[0].interrupts), ("sub".to_owned(), &asked.interrupts));
        assert_eq!(children(&backend).await, ["sub:0@3"]);

        // Another process.
        let end = make().thread("t").answer("q", "R").resume().await.unwrap();
        // What was there before is not folded twice.
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "in p s1 R"));
        assert_eq!(calls.all(), "p s1 s2 s2");
        let sub = backend.open().history(&ThreadId::from("t\u{1f}sub:0@3"), Default::default()).await.unwrap();
        let main = backend.open().history(&"t".into(), Default::default()).await.unwrap();
        assert_eq!((sub.len(), main.len()), (4, 4));
    }

    async fn who_watches_a_graph_sees_each_of_its_states_and_that_it_waits(backend: Backend) {
        let (calls, seen) = (Calls::default(), Arc::new(Mutex::new(Vec::new())));
        let make = || {
            let mut graph = StateGraph::<Plain>::new("parent");
            let with = (asking(&calls), seen.clone());
            type With = (CompiledGraph<Plain>, Arc<Mutex<Vec<String>>>);
            let p = graph.add_node_with("p", with, async |(sub, seen): With, _: Plain, cx: Cx| {
                let watch = move |told: Seen<'_, Plain>| {
                    seen.lock().unwrap().push(match told {
                        Seen::State(state) => state.log_text(),
                        told => format!("{told:?}"),
                    });
                };
                Ok::<_, NodeError>(say(&cx.call(&sub, say("in")).watch(watch).await?.log_text()))
            });
            graph.add_edge(START, p);
            backend.keep(graph.compile().unwrap())
        };
        let asked = make().thread("t").run(Plain::update()).await.unwrap();
        assert_eq!(asked.status, Status::Interrupted);
        assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), ["in", "in s1", "Waits"]);
        // It goes on with what it had.
        let end = make().thread("t").answer("q", "R").resume().await.unwrap();
        assert_eq!(end.state.log_text(), "in s1 R");
        assert_eq!(*seen.lock().unwrap(), ["in s1", "in s1 R"]);
    }

    async fn a_graph_that_is_called_in_a_node_does_not_run_its_finished_steps_again(backend: Backend) {
        let calls = Calls::default();
        let make = || {
            let mut graph = StateGraph::<Plain>::new("parent");
            let deps = (asking(&calls), calls.clone());
            let node = graph.add_node_with("node", deps, async |(sub, calls), _: Plain, cx: Cx| {
                calls.add(&cx);
                let ended: Plain = cx.call(&sub, say("begin")).key("k").await?;
                let again: String = cx.interrupt("after", ()).await;
                Ok::<_, NodeError>(say(&format!("{} {again}", ended.log_text())))
            });
            graph.add_edge(START, node);
            backend.keep(graph.compile().unwrap())
        };
        let asked = make().thread("t").run(Plain::update()).await.unwrap();
        assert_eq!(id_prefixes(&asked.interrupts), ["node:1.0:k/s2:2.0:q"]);
        let asked = make().thread("t").answer(id_at(&asked.interrupts, "node:1.0:k/s2:2.0:q"), "R").resume().await.unwrap();
        assert_eq!(id_prefixes(&asked.interrupts), ["node:1.0:after"]);
        let end = make().thread("t").answer("after", "E").resume().await.unwrap();
        assert_eq!(end.state.log_text(), "begin s1 R E");
        assert_eq!(calls.all(), "node s1 s2 node s2 node");
    }

    async fn a_graph_is_stored_for_a_task_for_a_thread_or_not_at_all(backend: Backend) {
        for (persistence, expected, kept) in [
            (Persistence::PerTask, [vec!["in", "n"], vec!["in", "n"]], &["sub:0@2", "sub:0@5"][..]),
            (Persistence::PerNode, [vec!["in", "n"], vec!["in", "n", "in", "n"]], &["sub"]),
            (Persistence::Ephemeral, [vec!["in", "n"], vec!["in", "n"]], &[]),
        ] {
            let mut sub = StateGraph::<Inner>::new("sub");
            let n = sub.add_node("n", async |_: Inner, _: Cx| Inner::update().said(["n".to_owned()]));
            sub.add_edge(START, n);
            let sub = sub.compile().unwrap().with_persistence(persistence);
            let mut graph = StateGraph::<Plain>::new("parent");
            let node = graph.add_subgraph_with(
                "sub",
                &sub,
                |_: &Plain| Inner::update().said(["in".to_owned()]),
                |sub: &Inner| say(&sub.words().join(",")),
            );
            graph.add_edge(START, node);
            let graph = backend.keep(graph.compile().unwrap());
            backend.open().delete(&"t".into()).await.unwrap();
            for (nth, expected) in expected.iter().enumerate() {
                let end = graph.thread("t").run(Plain::update()).await.unwrap();
                assert_eq!(end.state.log.iter().nth(nth), Some(&expected.join(",")), "{persistence:?}");
            }
            assert_eq!(children(&backend).await, kept, "{persistence:?}");
        }
    }

    async fn a_graph_that_is_not_stored_begins_anew_with_the_answers(backend: Backend) {
        let calls = Calls::default();
        let make = || backend.keep(parent(&calls, &asking(&calls).with_persistence(Persistence::Ephemeral)));
        let asked = make().thread("t").run(say("in")).await.unwrap();
        assert_eq!(id_prefixes(&asked.interrupts), ["sub:2.0/s2:2.0:q"]);
        let end = make().thread("t").answer("q", "R").resume().await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "in p s1 R"));
        assert_eq!(calls.all(), "p s1 s2 s1 s2");
        assert_eq!(children(&backend).await, [""; 0]);
    }

    async fn a_question_two_graphs_down_is_answered_from_the_top(backend: Backend) {
        let calls = Calls::default();
        let make = || {
            let mut inner = StateGraph::<Inner>::new("inner");
            let i1 = inner.add_node_with("i1", calls.clone(), async |calls: Calls, state: Inner, cx: Cx| {
                calls.add(&cx);
                Inner::update().x(state.x + 1)
            });
            let i2 = inner.add_node_with("i2", calls.clone(), async |calls: Calls, state: Inner, cx: Cx| {
                calls.add(&cx);
                let more: i64 = cx.interrupt("more", ()).await;
                Inner::update().x(state.x + more)
            });
            inner.add_edge(START, i1);
            inner.add_edge(i1, i2);
            let mut mid = StateGraph::<Inner>::new("mid");
            let m1 = mid.add_node_with("m1", calls.clone(), async |calls: Calls, _: Inner, cx: Cx| calls.add(&cx));
            let inner = mid.add_subgraph("inner", &inner.compile().unwrap());
            mid.add_edge(START, m1);
            mid.add_edge(m1, inner);
            let mut outer = StateGraph::<Plain>::new("outer");
            let o1 = outer.add_node_with("o1", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| calls.add(&cx));
            let mid = outer.add_subgraph_with(
                "mid",
                &mid.compile().unwrap(),
                |state: &Plain| Inner::update().x(state.x),
                |mid: &Inner| Plain::update().x(mid.x),
            );
            let o2 = outer.add_node_with("o2", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| calls.add(&cx));
            outer.add_edge(START, o1);
            outer.add_edge(o1, mid);
            outer.add_edge(mid, o2);
            backend.keep(outer.compile().unwrap())
        };
        let asked = make().thread("t").run(Plain::update()).await.unwrap();
        assert_eq!(id_prefixes(&asked.interrupts), ["mid:2.0/inner:2.0/i2:2.0:more"]);
        assert_eq!(calls.all(), "o1 m1 i1 i2");
        let end = make().thread("t").answer(id_at(&asked.interrupts, "mid:2.0/inner:2.0/i2:2.0:more"), 5).resume().await.unwrap();
        assert_eq!((end.status, end.state.x), (Status::Completed, 6));
        assert_eq!(calls.all(), "o1 m1 i1 i2 i2 o2");
    }

    async fn an_answer_of_the_wrong_type_leaves_the_question_in_the_subgraph(backend: Backend) {
        let calls = Calls::default();
        for persistence in [Persistence::PerTask, Persistence::Ephemeral] {
            backend.open().delete(&"t".into()).await.unwrap();
            let make = || backend.keep(parent(&calls, &asking(&calls).with_persistence(persistence)));
            make().thread("t").run(say("in")).await.unwrap();
            let error = failed(make().thread("t").answer("q", 7).resume().await);
            assert_eq!(
                error.to_string(),
                "SS120: superstep 2: the answer to `q` does not have the type that node `s2` expects: \
                 invalid type: integer `7`, expected a string; answer it again"
            );
            assert_eq!(id_prefixes(&head(&make()).await.tasks[0].interrupts), ["sub:2.0/s2:2.0:q"]);
            let stale = failed(make().thread("t").answer("s2:2.0:q", "R").resume().await);
            assert!(matches!(stale, RunError::UnknownInterrupt { .. }), "{stale}");
            let end = make().thread("t").answer("q", "R").resume().await.unwrap();
            assert_eq!(end.state.log_text(), "in p s1 R");
        }
    }

    async fn a_subgraph_that_asks_the_same_again_gets_each_answer_once(backend: Backend) {
        for persistence in [Persistence::PerTask, Persistence::Ephemeral] {
            backend.open().delete(&"t".into()).await.unwrap();
            let make = || {
                let mut sub = StateGraph::<Plain>::new("sub");
                let ask = sub.add_node("ask", async |_: Plain, cx: Cx| {
                    let answer: String = cx.interrupt("age", ()).await;
                    say(&answer)
                });
                sub.add_edge(START, ask);
                sub.add_conditional_edges(
                    ask,
                    |state: &Plain| if state.log_text().ends_with("42") { Loop::Enough } else { Loop::Again },
                    |route| match route {
                        Loop::Again => ask,
                        Loop::Enough => END,
                    },
                );
                let sub = sub.compile().unwrap().with_persistence(persistence);
                backend.keep(parent(&Calls::default(), &sub))
            };
            let mut run = make().thread("t").run(Plain::update()).await.unwrap();
            for (step, answered) in (1..).zip(["abc", "x", "42"]) {
                assert_eq!(id_prefixes(&run.interrupts), [format!("sub:2.0/ask:{step}.0:age")]);
                // Without an answer it is asked again, and not answered with the one before.
                let again = make().thread("t").resume().await.unwrap();
                assert_eq!(again.interrupts, run.interrupts);
                run = make().thread("t").answer("age", answered).resume().await.unwrap();
            }
            assert_eq!((run.status, run.state.log_text().as_str()), (Status::Completed, "p abc x 42"));
        }
    }

    async fn several_graphs_ask_at_once_and_are_answered_one_by_one(backend: Backend) {
        let calls = Calls::default();
        let make = || {
            let mut sub = StateGraph::<Inner>::new("sub");
            for name in ["a", "b"] {
                let node = sub.add_node_with(name, calls.clone(), async move |calls: Calls, state: Inner, cx: Cx| {
                    calls.add(&cx);
                    let answer: String = cx.interrupt(name, state.x).await;
                    Inner::update().said([answer])
                });
                sub.add_edge(START, node);
            }
            let sub = sub.compile().unwrap();
            let mut graph = StateGraph::<Plain>::new("parent");
            let worker = graph.add_worker("w", move |item: i64, _: Plain, cx: Cx| {
                let sub = sub.clone();
                async move {
                    let ended = cx.call(&sub, Inner::update().x(item)).await?;
                    Ok::<_, NodeError>(say(&ended.words().join("+")))
                }
            });
            graph.add_fan_out(START, |_: &Plain| [1, 2], worker);
            backend.keep(graph.compile().unwrap())
        };
        let asked = make().thread("t").run(Plain::update()).await.unwrap();
        assert_eq!(id_prefixes(&asked.interrupts), ["w:1.0/a:1.0:a", "w:1.0/b:1.1:b", "w:1.1/a:1.0:a", "w:1.1/b:1.1:b"]);
        let ambiguous = failed(make().thread("t").answer("a", "?").resume().await);
        assert_eq!(
            ambiguous.to_string(),
            format!(
                "SS119: the answer `a` is ambiguous; answer once, by the id of the interrupt: `{}`, `{}`",
                id_at(&asked.interrupts, "w:1.0/a:1.0:a"),
                id_at(&asked.interrupts, "w:1.1/a:1.0:a"),
            )
        );
        let both = Answers::new()
            .answer(id_at(&asked.interrupts, "w:1.0/b:1.1:b"), "0b")
            .answer(id_at(&asked.interrupts, "w:1.1/a:1.0:a"), "1a");
        let asked = make().thread("t").answers(both).resume().await.unwrap();
        assert_eq!(id_prefixes(&asked.interrupts), ["w:1.0/a:1.0:a", "w:1.1/b:1.1:b"]);
        let asked = make().thread("t").answer(id_at(&asked.interrupts, "w:1.1/b:1.1:b"), "1b").resume().await.unwrap();
        assert_eq!(id_prefixes(&asked.interrupts), ["w:1.0/a:1.0:a"]);
        let end = make().thread("t").answer("a", "0a").resume().await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "0a+0b 1a+1b"));
        // Only the answered task ran again.
        assert_eq!((calls.named("a"), calls.named("b")), (4, 4));
    }

    async fn two_graphs_that_one_task_calls_at_once_both_reach_their_questions(backend: Backend) {
        let calls = Calls::default();
        let make = || {
            let sub = asking(&calls);
            let mut graph = StateGraph::<Plain>::new("parent");
            let node = graph.add_node_with("node", sub, async |sub, _: Plain, cx: Cx| {
                let left = cx.call(&sub, Plain::update()).key("left").into_future();
                let right = cx.call(&sub, say("r")).key("right").into_future();
                let (left, right): (Plain, Plain) = futures::try_join!(left, right)?;
                Ok::<_, NodeError>(say(&format!("{} {}", left.log_text(), right.log_text())))
            });
            graph.add_edge(START, node);
            backend.keep(graph.compile().unwrap())
        };
        let asked = make().thread("t").run(Plain::update()).await.unwrap();
        assert_eq!(id_prefixes(&asked.interrupts), ["node:1.0:left/s2:2.0:q", "node:1.0:right/s2:2.0:q"]);
        let asked = make().thread("t").answer(id_at(&asked.interrupts, "node:1.0:right/s2:2.0:q"), "R").resume().await.unwrap();
        assert_eq!(id_prefixes(&asked.interrupts), ["node:1.0:left/s2:2.0:q"]);
        let end = make().thread("t").answer("q", "L").resume().await.unwrap();
        assert_eq!(end.state.log_text(), "s1 L r s1 R");
        assert_eq!(calls.named("s1"), 2);
    }

    async fn the_step_limit_of_a_subgraph_is_counted_by_itself(backend: Backend) {
        let make = || {
            let mut sub = StateGraph::<Plain>::new("sub");
            let node = sub.add_node("loop", async |state: Plain, _: Cx| Plain::update().x(state.x + 1));
            sub.add_edge(START, node);
            let enough = |state: &Plain| if state.x >= 6 { Loop::Enough } else { Loop::Again };
            sub.add_conditional_edges(node, enough, |route| match route {
                Loop::Again => node,
                Loop::Enough => END,
            });
            let mut graph = StateGraph::<Plain>::new("parent");
            let sub = graph.add_subgraph("sub", &sub.compile().unwrap());
            graph.add_edge(START, sub);
            backend.keep(graph.compile().unwrap())
        };
        let error = failed(make().thread("t").step_limit(5).run(Plain::update()).await);
        assert_eq!(
            superstep::error::chain(&error),
            "SS101: superstep 1: node `sub` failed after 1 attempt: SS105: 5 supersteps did not finish the run, `loop` \
             would be next; raise `step_limit`, or check that the graph's cycles end"
        );
        assert_eq!(head(&make()).await.values.x, 0);
        // It goes on where it was.
        assert_eq!(make().thread("t").step_limit(1).resume().await.unwrap().state.x, 6);
        assert_eq!(make().thread("other").step_limit(6).run(Plain::update()).await.unwrap().state.x, 6);
    }
}

#[tokio::test]
async fn a_thread_named_like_that_of_a_subgraph_is_refused() {
    let graph = Backend::memory().keep(line(&["a"]));
    let error = failed(graph.thread("t\u{1f}sub:0@1").run(Plain::update()).await);
    assert_eq!(
        error.to_string(),
        "SS150: thread `t/sub:0@1` has the name of a subgraph's thread, with the character U+001F in it, \
         and cannot be run directly; run the graph that calls it, or use a name without that character"
    );
}

#[tokio::test]
async fn a_subgraph_works_without_a_checkpointer() {
    let calls = Calls::default();
    let graph = parent(&calls, &line(&["a", "b"]));
    assert_eq!(graph.run(say("in")).await.unwrap().state.log_text(), "in p a b");
    let error = failed(parent(&calls, &asking(&calls)).run(say("in")).await);
    assert!(matches!(error, RunError::NowhereToWait { .. }), "{error}");
}

#[tokio::test]
async fn an_error_handler_calls_under_the_key_of_the_node_that_failed() {
    let ids = Arc::new(Mutex::new(Vec::new()));
    let mut inner = StateGraph::<Plain>::new("inner");
    let node =
        inner.add_node_with("i", ids.clone(), async |ids: Arc<Mutex<Vec<_>>>, state: Plain, cx: Cx| {
            ids.lock().unwrap().push(cx.id("x"));
            if state.x == 0 { Err(NodeError::new("no x")) } else { Ok(say("fine")) }
        });
    inner.add_edge(START, node);
    let inner = inner.compile().unwrap();
    let mut graph = StateGraph::<Plain>::new("outer");
    let a = graph.add_node_with("a", inner.clone(), async |inner, _: Plain, cx: Cx| {
        cx.call(&inner, Plain::update()).await?;
        Ok::<_, NodeError>(say("a"))
    });
    graph.add_error_handler_with(a, "h", inner, async |inner, _: NodeFailure, _: Plain, cx: Cx| {
        Ok::<_, NodeError>(say(&cx.call(&inner, Plain::update().x(1)).await?.log_text()))
    });
    graph.add_edge(START, a);
    let graph = Backend::memory().keep(graph.compile().unwrap());
    assert_eq!(graph.thread("t").run(Plain::update()).await.unwrap().state.log_text(), "fine");
    let ids = ids.lock().unwrap().clone();
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test(start_paused = true)]
async fn a_question_of_a_timed_out_attempt_is_not_repeated_by_its_error_handler() {
    let mut hanging = StateGraph::<Plain>::new("hanging");
    let hangs = hanging.add_node("hangs", async |_: Plain, _: Cx| std::future::pending::<()>().await);
    hanging.add_edge(START, hangs);
    let graphs = (asking(&Calls::default()), hanging.compile().unwrap());
    type Graphs = (CompiledGraph<Plain>, CompiledGraph<Plain>);
    let mut graph = StateGraph::<Plain>::new("outer");
    let a = graph.add_node_with("a", graphs, async |(asks, hangs): Graphs, _: Plain, cx: Cx| {
        let (asks, hangs) = (cx.call(&asks, say("in")).key("asks"), cx.call(&hangs, say("in")).key("hangs"));
        let (asks, hangs) = (asks.into_future(), hangs.into_future());
        futures::try_join!(asks, hangs)?;
        Ok::<_, NodeError>(say("a"))
    });
    graph.configure(a, NodeOptions::new().timeout(Duration::from_secs(1)));
    graph.add_error_handler(a, "h", async |failure: NodeFailure, _: Plain, _: Cx| {
        assert_eq!(failure.kind, FailureKind::Timeout);
        say("h")
    });
    graph.add_edge(START, a);
    let end = Backend::memory().keep(graph.compile().unwrap()).thread("t").run(say("in")).await.unwrap();
    assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "in h"));
}
