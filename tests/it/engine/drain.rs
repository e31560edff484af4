//! Draining a run; and the number of remaining supersteps.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use superstep::{
    Answers, CompiledGraph, Cx, END, Outcome, START, State, StateGraph, Status, StreamMode, thread::Drain,
};

use crate::support::{
    Backend, Calls, Plain, Stuck, entries, failed, h, head, logging_node, names, on_every_store, say, t,
};

/// `START → a → … → END`; the node called `stop` drains the run before it says its name.
fn nodes(all: &[&'static str], calls: &Calls) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let mut last = START;
    for &name in all {
        let node = graph.add_node_with(name, calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
            calls.add(&cx);
            if cx.node().as_str() == "stop" {
                cx.drain("maintenance");
                cx.drain("a later reason");
            }
            say(cx.node().as_str())
        });
        graph.add_edge(last, node);
        last = node;
    }
    graph.add_edge(last, END);
    graph.compile().unwrap()
}

fn shown(end: &Outcome<Plain>) -> (Status, Option<&str>, String) {
    (end.status, end.drained.as_deref(), end.state.log_text())
}

on_every_store! {
    async fn a_drained_run_ends_after_its_superstep_and_a_resume_finishes_it(backend: Backend) {
        let calls = Calls::default();
        let graph = backend.keep(nodes(&["stop", "b"], &calls));
        let end = graph.thread("t").run(Plain::update()).await.unwrap();
        assert_eq!(shown(&end), (Status::Drained, Some("maintenance"), "stop".to_owned()));
        let found = head(&graph).await;
        assert_eq!((names(&found.next).as_str(), found.values.log_text().as_str()), ("b", "stop"));
        assert_eq!(found.checkpoint.unwrap().id, end.checkpoint.unwrap());

        let end = backend.keep(nodes(&["stop", "b"], &calls)).thread("t").resume().await.unwrap();
        assert_eq!(shown(&end), (Status::Completed, None, "stop b".to_owned()));
        assert_eq!(calls.all(), "stop b");
        let steps = [("loop", 2, ""), ("loop", 1, "b"), ("loop", 0, "stop"), ("input", -1, "__start__")];
        assert_eq!(h(&graph).await, entries(&steps));
    }

    async fn a_run_that_is_drained_in_its_last_superstep_finishes(backend: Backend) {
        let graph = backend.keep(nodes(&["a", "stop"], &Calls::default()));
        let end = graph.thread("t").run(Plain::update()).await.unwrap();
        assert_eq!(shown(&end), (Status::Completed, None, "a stop".to_owned()));
    }

    async fn a_drain_from_outside_drops_no_task_and_waits_for_its_siblings(backend: Backend) {
        let (drain, stuck) = (Drain::new(), Stuck::default());
        let mut graph = StateGraph::<Plain>::new("g");
        let slow = graph.add_node_with("slow", stuck.clone(), async |stuck: Stuck, _: Plain, cx: Cx| {
            tokio::select! {
                () = stuck.here() => {}
                () = cx.sleep(Duration::from_secs(9)) => {}
            }
            say("slow")
        });
        let quick = logging_node(&mut graph, "quick");
        let last = logging_node(&mut graph, "last");
        for node in [slow, quick] {
            graph.add_edge(START, node);
            graph.add_edge(node, last);
        }
        let graph = backend.keep(graph.compile().unwrap());
        let ask = async {
            stuck.reached().await;
            drain.request("bye");
        };
        let (end, ()) = tokio::join!(graph.thread("t").drain(drain.clone()).run(Plain::update()), ask);
        assert_eq!(shown(&end.unwrap()), (Status::Drained, Some("bye"), "quick slow".to_owned()));
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "quick slow last");
    }

    async fn a_run_that_is_drained_from_the_start_keeps_its_input_and_runs_nothing(backend: Backend) {
        let calls = Calls::default();
        let graph = backend.keep(nodes(&["a", "b"], &calls));
        let drained = || {
            let drain = Drain::new();
            drain.request("bye");
            t().drain(drain)
        };
        let end = graph.configured(drained()).run(say("in")).await.unwrap();
        assert_eq!(shown(&end), (Status::Drained, Some("bye"), "in".to_owned()));
        let end = graph.configured(drained()).resume().await.unwrap();
        assert_eq!(shown(&end), (Status::Drained, Some("bye"), "in".to_owned()));
        assert_eq!(calls.all(), "");
        let end = graph.thread("t").resume().await.unwrap();
        assert_eq!(shown(&end), (Status::Completed, None, "in a b".to_owned()));
        // There is nothing left to stop.
        assert_eq!(graph.configured(drained()).resume().await.unwrap().status, Status::Completed);
    }

    async fn a_question_beside_a_drain_still_waits(backend: Backend) {
        let graph = asking(&backend);
        let end = graph.thread("t").run(Plain::update()).await.unwrap();
        assert_eq!((end.status, end.drained, end.interrupts.len()), (Status::Interrupted, None, 1));
        let drain = Drain::new();
        drain.request("bye");
        let answers = Answers::new().answer("q", "yes");
        let end = graph.thread("t").answers(answers).drain(drain).resume().await.unwrap();
        assert_eq!(end.status, Status::Drained, "the answer is stored, and nothing runs");
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "yes stop");
    }
}

/// `ask`, and in parallel a node that drains the run.
fn asking(backend: &Backend) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let ask = graph.add_node("ask", async |_: Plain, cx: Cx| {
        let said: String = cx.interrupt("q", ()).await;
        say(&said)
    });
    let stop = graph.add_node("stop", async |_: Plain, cx: Cx| {
        cx.drain("bye");
        say("stop")
    });
    graph.add_edge(START, ask);
    graph.add_edge(START, stop);
    backend.keep(graph.compile().unwrap())
}

#[tokio::test]
async fn a_run_without_a_checkpointer_can_be_drained() {
    let graph = nodes(&["stop", "b"], &Calls::default());
    let end = graph.run(say("in")).await.unwrap();
    assert_eq!(shown(&end), (Status::Drained, Some("maintenance"), "in stop".to_owned()));
    let stream = graph.stream(say("in"), [StreamMode::Values]);
    assert_eq!(stream.outcome().await.unwrap().status, Status::Drained);
}

#[tokio::test]
async fn a_node_knows_how_many_supersteps_are_left() {
    let left = Arc::new(Mutex::new(Vec::new()));
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node_with("a", left.clone(), async |left: Arc<Mutex<Vec<u32>>>, _: Plain, cx: Cx| {
        left.lock().unwrap().push(cx.remaining_steps());
    });
    graph.add_edge(START, a);
    graph.add_edge(a, a);
    let graph = graph.compile().unwrap();
    failed(graph.without_thread().step_limit(3).run(Plain::update()).await);
    assert_eq!(*left.lock().unwrap(), [2, 1, 0]);
}
