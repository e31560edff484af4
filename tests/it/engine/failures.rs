//! The state after a failure.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use superstep::{
    Command, CompiledGraph, Cx, END, NodeError, Route, RunError, START, State, StateGraph,
    checkpoint::CheckpointError,
};

use crate::support::{
    Calls, Plain, PlainUpdate, Stuck, entries, failed, h, head, json, line, logging_node, names,
    on_every_store, say, task,
};

#[derive(Route, Clone, Copy)]
enum Only {
    Way,
}

/// `START → (ok, bad) → j`, a join; bad is slower than ok, and fails unless it is repaired.
pub(super) fn ok_and_bad(repaired: bool, calls: &Calls) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let ok = graph.add_node_with("ok", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
        calls.add(&cx);
        say("ok")
    });
    let bad = graph.add_node_with("bad", calls.clone(), move |calls: Calls, _, cx: Cx| async move {
        calls.add(&cx);
        cx.sleep(Duration::from_millis(10)).await;
        if repaired { Ok(say("bad")) } else { Err(NodeError::new("no luck")) }
    });
    let j = logging_node(&mut graph, "j");
    graph.add_edge(START, ok);
    graph.add_edge(START, bad);
    graph.add_join([ok, bad], j);
    graph.add_edge(j, END);
    graph.compile().unwrap()
}

on_every_store! {
    async fn a_finished_sibling_of_a_failure_is_retained_and_seen_at_the_head(backend: Backend) {
        let graph = backend.keep(ok_and_bad(false, &Calls::default()));
        let error = failed(graph.thread("t").run(Plain::update()).await);
        assert!(
            matches!(&error, RunError::Node { node, step: 1, attempts: 1, source }
                if node.as_str() == "bad" && source.to_string() == "no luck"),
            "{error}"
        );
        let tasks = [
            ("bad".to_owned(), json(&()), format!("{error}: no luck")),
            ("ok".to_owned(), json(&say("ok")), String::new()),
        ];
        let live = head(&graph).await;
        assert_eq!((live.values.log_text().as_str(), names(&live.next).as_str()), ("ok", "bad"));
        assert_eq!(live.tasks.iter().map(task).collect::<Vec<_>>(), tasks);

        let id = live.checkpoint.unwrap().id;
        let stored = graph.thread("t").at(id).state().await.unwrap();
        assert_eq!((stored.values.log_text().as_str(), names(&stored.next).as_str()), ("", "bad ok"));
        assert_eq!(stored.tasks.iter().map(task).collect::<Vec<_>>(), tasks);
        assert_eq!(h(&graph).await, entries(&[("loop", 0, "bad ok"), ("input", -1, "__start__")]));
    }

    async fn an_update_in_the_failed_nodes_name_keeps_what_its_sibling_did(backend: Backend) {
        let calls = Calls::default();
        let graph = backend.keep(ok_and_bad(false, &calls));
        failed(graph.thread("t").run(Plain::update()).await);
        graph.thread("t").update_as("bad", say("mended")).await.unwrap();
        let live = head(&graph).await;
        assert_eq!((live.values.log_text().as_str(), names(&live.next).as_str()), ("ok mended", "j"));
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "ok mended j");
        assert_eq!(h(&graph).await[1..2], entries(&[("update", 1, "j")]));
    }

    async fn a_resume_runs_only_what_did_not_finish(backend: Backend) {
        let calls = Calls::default();
        failed(backend.keep(ok_and_bad(false, &calls)).thread("t").run(Plain::update()).await);
        let end = backend.keep(ok_and_bad(true, &calls)).thread("t").resume().await.unwrap();
        assert_eq!(calls.all(), "bad ok bad");
        assert_eq!(end.state.log_text(), "bad ok j");
    }

    async fn a_second_run_on_a_busy_thread_is_refused(backend: Backend) {
        let stuck = Stuck::default();
        let mut graph = StateGraph::<Plain>::new("line");
        let a = graph.add_node_with("a", stuck.clone(), async |stuck: Stuck, _: Plain, _: Cx| stuck.here().await);
        graph.add_edge(START, a);
        let graph = backend.keep(graph.compile().unwrap());
        let first = tokio::spawn({
            let graph = graph.clone();
            async move { graph.thread("t").run(say("in0")).await }
        });
        stuck.reached().await;
        for result in [
            graph.thread("t").run(say("in1")).await,
            graph.thread("t").resume().await,
            backend.keep(line(&["a"])).thread("t").run(say("in1")).await,
        ] {
            let error = failed(result);
            assert!(matches!(&error, RunError::Checkpoint(CheckpointError::Busy { .. })), "{error}");
        }
        line(&["a"]).with_checkpointer(backend.open()).thread("u").run(say("x")).await.unwrap();
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        let end = backend.keep(line(&["a"])).thread("t").resume().await.unwrap();
        assert_eq!(end.state.log_text(), "in0 a");
        assert_eq!(
            h(&graph).await,
            entries(&[("loop", 1, ""), ("loop", 0, "a"), ("input", -1, "__start__")])
        );
    }
}

/// A map with this key has no JSON form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Key {
    part: i64,
}

#[derive(State, Clone, Debug, Default)]
struct Odd {
    #[channel(union)]
    map: BTreeMap<Key, i64>,
}

on_every_store! {
    async fn a_value_without_a_json_form_is_refused_with_the_nodes_name(backend: Backend) {
        let mut graph = StateGraph::<Odd>::new("g");
        let a = graph.add_node("a", async |_: Odd, _: Cx| Odd::update().map([(Key { part: 1 }, 2)]));
        graph.add_edge(START, a);
        let graph = graph.compile().unwrap();
        let end = graph.run(Odd::update()).await.unwrap();
        assert_eq!(end.state.map.len(), 1, "without a checkpointer nothing needs a JSON form");

        let graph = backend.keep(graph);
        let error = failed(graph.thread("t").run(Odd::update()).await);
        assert_eq!(
            error.to_string(),
            "SS106: superstep 1: the write of node `a` to `map` cannot be stored as JSON and read back \
             unchanged"
        );
        let head = head(&graph).await;
        assert_eq!(names(&head.next), "a");
        assert_eq!(task(&head.tasks[0]).2, format!("{error}: at `/{{\"part\":1}}`: key must be a string"));
    }

    async fn a_thread_whose_next_node_is_gone_is_refused_by_name(backend: Backend) {
        failed(backend.keep(line(&["a", "b", "c"])).thread("t").step_limit(1).run(say("in")).await);
        let without_b = backend.keep(line(&["a", "c"]));
        let before = h(&without_b).await;
        let error = failed(without_b.thread("t").resume().await);
        assert_eq!(
            error.to_string(),
            "SS114: graph `line` cannot resume from this checkpoint: the checkpoint of superstep 1 has pending nodes that the graph does not have: `b`; add the nodes again, or update the thread as \
             another node"
        );
        assert_eq!(h(&without_b).await, before);
        assert_eq!(head(&without_b).await.values.log_text(), "in a");
        // The advice of the error holds.
        without_b.thread("t").update_as("a", Plain::update()).await.unwrap();
        assert_eq!(without_b.thread("t").resume().await.unwrap().state.log_text(), "in a c");
    }

    /// `a` has reached the join; in the new graph the join has an additional source.
    async fn a_thread_that_reached_a_join_which_is_gone_is_refused_by_name(backend: Backend) {
        let graph = |more: bool| {
            let mut graph = StateGraph::<Plain>::new("g");
            let [a, b, c, d, j] = ["a", "b", "c", "d", "j"].map(|name| logging_node(&mut graph, name));
            for node in [a, b] {
                graph.add_edge(START, node);
            }
            graph.add_edge(b, c);
            graph.add_edge(c, d);
            graph.add_join(if more { vec![a, c, d] } else { vec![a, c] }, j);
            backend.keep(graph.compile().unwrap())
        };
        failed(graph(false).thread("t").step_limit(1).run(Plain::update()).await);
        let refused = "SS114: graph `g` cannot resume from this checkpoint: at the checkpoint of superstep \
                       1 nodes have reached the join of `a`, `c` to `j`, which the graph does not have; add \
                       it again with the same sources, or update the thread as another node";
        assert_eq!(failed(graph(true).thread("t").resume().await).to_string(), refused);
        let error = failed(graph(true).thread("t").resume_with(Command::update(say("U"))).await);
        assert_eq!(error.to_string(), refused);
        // The advice of the error holds.
        graph(true).thread("t").update_as("a", say("A")).await.unwrap();
        assert_eq!(graph(true).thread("t").resume().await.unwrap().state.log_text(), "a b A c d j");
    }

    /// `a` is done and went to `x`; `bad` fails. The new graph has no `x`, or no edge to it from `a`.
    async fn a_finished_task_that_led_to_a_node_which_is_gone_is_refused_by_name(backend: Backend) {
        let graph = |x: bool, leads: bool| {
            let mut graph = StateGraph::<Plain>::new("g");
            let [a, next] = ["a", "next"].map(|name| logging_node(&mut graph, name));
            let bad = graph.add_node("bad", move |_: Plain, _: Cx| async move {
                if leads { Err(NodeError::new("no luck").fatal()) } else { Ok(say("bad")) }
            });
            let x = if x { logging_node(&mut graph, "x") } else { next };
            for node in [a, bad] {
                graph.add_edge(START, node);
            }
            graph.add_edge(bad, next);
            if leads {
                graph.add_conditional_edges(a, |_| Only::Way, move |_| x);
            } else {
                graph.add_conditional_edges(a, |_| Only::Way, move |_| next);
            }
            backend.keep(graph.compile().unwrap())
        };
        let gone = "SS114: graph `g` cannot resume from this checkpoint: the checkpoint of superstep 0 \
                    has pending nodes that the graph does not have: `x`; add the nodes again, or update the \
                    thread as another node";
        let no_way = "SS114: graph `g` cannot resume from this checkpoint: the record of task 0 does not \
                      fit the checkpoint of superstep 0: node `a` was routed to `x`, to which it has no \
                      conditional edge";
        for (thread, x, refused) in [("gone", false, gone), ("no way", true, no_way)] {
            failed(graph(true, true).thread(thread).run(Plain::update()).await);
            let graph = graph(x, false);
            assert_eq!(failed(graph.thread(thread).resume().await).to_string(), refused);
            assert_eq!(failed(graph.thread(thread).resume_with(Command::update(say("U"))).await).to_string(), refused);
            // The advice of the error holds.
            graph.thread(thread).update_as("bad", say("B")).await.unwrap();
            assert_eq!(graph.thread(thread).resume().await.unwrap().state.log_text(), "a B next");
        }
    }

    async fn new_code_runs_in_a_thread_that_an_older_graph_began(backend: Backend) {
        failed(backend.keep(line(&["a", "b"])).thread("t").step_limit(1).run(say("in")).await);
        let end = backend.keep(line(&["a", "b", "new"])).thread("t").resume().await.unwrap();
        assert_eq!(end.state.log_text(), "in a b new");
    }
}

#[derive(State, Clone, Debug, Default)]
struct Measured {
    last: f64,
    #[channel(sum)]
    sum: f64,
    note: Option<String>,
}

on_every_store! {
    async fn a_float_that_is_no_number_is_refused_before_it_makes_the_thread_unreadable(backend: Backend) {
        let graph = |value: f64| {
            let mut graph = StateGraph::<Measured>::new("g");
            let a = graph.add_node("a", move |_, _| async move { Measured::update().last(value).note(None) });
            graph.add_edge(START, a);
            backend.keep(graph.compile().unwrap())
        };
        for value in [f64::NAN, f64::INFINITY] {
            let error = failed(graph(value).thread("t").on_unfinished(superstep::OnUnfinished::Discard).run(Measured::update()).await);
            assert!(matches!(&error, RunError::Encode { node, channel, .. }
                if node.as_str() == "a" && channel.as_deref() == Some("last")), "{error}");
        }
        assert_eq!(names(&head(&graph(0.0)).await.next), "a");
        assert_eq!(graph(1.5).thread("t").resume().await.unwrap().state.last, 1.5);
    }

    async fn a_write_that_makes_a_sum_no_number_is_refused(backend: Backend) {
        let mut graph = StateGraph::<Measured>::new("g");
        let a = graph.add_node("a", async |_: Measured, _: Cx| Measured::update().sum(f64::MAX));
        graph.add_edge(START, a);
        graph.add_edge(a, a);
        let graph = backend.keep(graph.compile().unwrap());
        let error = failed(graph.thread("t").run(Measured::update()).await);
        assert!(matches!(&error, RunError::Fold { step: 2, source, .. } if source.channel == "sum"), "{error}");
        assert_eq!(head(&graph).await.values.sum, f64::MAX);
    }
}

/// `?` converts any type that converts into a boxed error: text, boxes, and the errors of other crates.
#[tokio::test]
async fn a_node_fails_with_anything_that_converts_into_a_boxed_error() {
    fn boxed(how: u8) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("boxed {how}").into())
    }
    async fn fails(how: &'static str) -> Result<PlainUpdate, NodeError> {
        match how {
            "text" => Err("just text")?,
            "string" => Err(format!("text of {how}"))?,
            "box" => boxed(1)?,
            _ => Err(std::io::Error::other("an error"))?,
        }
        Ok(Plain::update())
    }
    for (how, wanted) in
        [("text", "just text"), ("string", "text of string"), ("box", "boxed 1"), ("error", "an error")]
    {
        let mut graph = StateGraph::<Plain>::new("g");
        let a = graph.add_node("a", move |_: Plain, _: Cx| fails(how));
        graph.add_edge(START, a);
        let error = graph.compile().unwrap().run(Plain::update()).await.unwrap_err();
        assert!(format!("{error:?}").ends_with(wanted), "{error:?}");
    }
}
