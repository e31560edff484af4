//! Nodes that wait for others.

use superstep::{
    Command, CompiledGraph, Cx, END, NodeOptions, NodeRef, Route, RunError, START, State, StateGraph, Status,
    WorkerRef, topology::ProblemKind,
};

use crate::support::{Plain, failed, head, logging_node, names, on_every_store, say};

/// `START → (a, b)`, `b → c`; the caller wires the targets of `a` and `c`.
fn branches(wire: impl Fn(&mut StateGraph<Plain>, NodeRef, NodeRef, NodeRef)) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| logging_node(&mut graph, name));
    graph.add_edge(START, a);
    graph.add_edge(START, b);
    graph.add_edge(b, c);
    wire(&mut graph, a, c, d);
    graph.add_edge(d, END);
    graph.compile().unwrap()
}

fn edges(graph: &mut StateGraph<Plain>, a: NodeRef, c: NodeRef, d: NodeRef) {
    graph.add_edge(a, d);
    graph.add_edge(c, d);
}

fn deferred(graph: &mut StateGraph<Plain>, a: NodeRef, c: NodeRef, d: NodeRef) {
    edges(graph, a, c, d);
    graph.configure(d, NodeOptions::new().deferred());
}

fn joined(graph: &mut StateGraph<Plain>, a: NodeRef, c: NodeRef, d: NodeRef) {
    graph.add_join([a, c], d);
}

#[derive(Route, Clone, Copy)]
enum Next {
    Again,
    Done,
}

/// `plan → b`, `plan → split ⇒ w` for each item, `j` after `b` and `w`; then `plan` again, or the end.
fn workers_joined(items: [i64; 2], rounds: usize) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let [plan, b, split, j] = ["plan", "b", "split", "j"].map(|name| logging_node(&mut graph, name));
    let w = graph.add_worker("w", async |item: i64, _: Plain, cx: Cx| match item {
        0 => say(&cx.interrupt::<String>("q", "?").await),
        item => say(&item.to_string()),
    });
    graph.add_edge(START, plan);
    graph.add_edge(plan, b);
    graph.add_edge(plan, split);
    graph.add_fan_out(split, move |_| items, w);
    graph.add_join([b, w.into()], j);
    let over = move |state: &Plain| state.log.iter().filter(|word| *word == "j").count() == rounds;
    graph.add_conditional_edges(
        j,
        move |state| if over(state) { Next::Done } else { Next::Again },
        |next| match next {
            Next::Again => plan,
            Next::Done => END,
        },
    );
    graph.compile().unwrap()
}

on_every_store! {
    async fn a_deferred_node_runs_when_nothing_else_is_left(backend: Backend) {
        let graph = backend.keep(branches(deferred));
        assert_eq!(graph.thread("t").run(Plain::update()).await.unwrap().state.log_text(), "a b c d");
        let graph = backend.keep(branches(edges));
        let twice = graph.thread("u").run(Plain::update()).await.unwrap();
        assert_eq!(twice.state.log_text(), "a b c d d");
    }

    async fn a_join_runs_once_after_all_its_sources(backend: Backend) {
        let graph = backend.keep(branches(joined));
        assert_eq!(graph.thread("t").run(Plain::update()).await.unwrap().state.log_text(), "a b c d");
        // And again in the next turn.
        assert_eq!(graph.thread("t").run(Plain::update()).await.unwrap().state.log_text(), "a b c d a b c d");
    }

    async fn the_items_of_a_worker_reach_a_join_once_in_every_round(backend: Backend) {
        let end = backend.keep(workers_joined([1, 2], 3)).thread("t").run(Plain::update()).await.unwrap();
        assert_eq!(end.state.log_text(), ["plan b split 1 2 j"; 3].join(" "));
    }

    /// One item is done and included; the other still waits.
    async fn a_join_waits_for_the_items_that_a_command_leaves_to_run(backend: Backend) {
        let graph = backend.keep(workers_joined([1, 0], 1));
        graph.thread("t").run(Plain::update()).await.unwrap();
        let asked = graph.thread("t").resume_with(Command::update(say("U"))).await.unwrap();
        assert_eq!((asked.status, asked.state.log_text().as_str()), (Status::Interrupted, "plan b split 1 U"));
        let end = graph.thread("t").answer("q", "2").resume().await.unwrap();
        assert_eq!(end.state.log_text(), "plan b split 1 U 2 j");
    }

    async fn what_waits_is_in_the_checkpoint(backend: Backend) {
        for (wire, thread) in [(joined as fn(&mut _, _, _, _), "joined"), (deferred, "deferred")] {
            failed(backend.keep(branches(wire)).thread(thread).step_limit(1).run(Plain::update()).await);
            let end = backend.keep(branches(wire)).thread(thread).resume().await.unwrap();
            assert_eq!(end.state.log_text(), "a b c d", "{thread}");
        }
    }

    async fn an_update_leaves_what_is_still_to_run(backend: Backend) {
        let graph = backend.keep(branches(joined));
        failed(graph.thread("t").step_limit(1).run(Plain::update()).await);
        assert_eq!(names(&head(&graph).await.next), "c");
        graph.thread("t").update_as("d", say("by hand")).await.unwrap();
        assert_eq!(names(&head(&graph).await.next), "c");
        graph.thread("t").update_as("c", say("for c")).await.unwrap();
        assert_eq!(names(&head(&graph).await.next), "d");
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "a b by hand for c d");
    }

    async fn an_update_after_an_input_that_waits_takes_it_along(backend: Backend) {
        let graph = backend.keep(branches(joined));
        graph.thread("t").run(say("in")).await.unwrap();
        let first = graph.thread("t").history().checkpoints().await.unwrap().pop().unwrap();
        graph.thread("t").at(first.id).update_as("c", say("by hand")).await.unwrap();
        assert_eq!(names(&head(&graph).await.next), "a b");
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "in by hand a b c d");
    }
}

#[derive(Route, Clone, Copy)]
enum Way {
    Other,
}

/// `START → (a, split)`; `j` after the nodes of `wire`. All nodes append their names to the log.
async fn log_of(wire: impl Fn(&mut StateGraph<Plain>, NodeRef, NodeRef, NodeRef)) -> String {
    let mut graph = StateGraph::<Plain>::new("g");
    let [a, split, j] = ["a", "split", "j"].map(|name| logging_node(&mut graph, name));
    graph.add_edge(START, a);
    graph.add_edge(START, split);
    wire(&mut graph, a, split, j);
    graph.compile().unwrap().run(Plain::update()).await.unwrap().state.log_text()
}

fn worker(graph: &mut StateGraph<Plain>, name: &str) -> WorkerRef<i64> {
    graph.add_worker(name, async |item: i64, _: Plain, _: Cx| say(&item.to_string()))
}

const NONE: [i64; 0] = [];

#[tokio::test]
async fn a_worker_that_got_no_item_has_reached_its_joins() {
    let beside = log_of(|graph, a, split, j| {
        let w = worker(graph, "w");
        graph.add_fan_out(split, |_| NONE, w);
        graph.add_join([a, w.into()], j);
    });
    assert_eq!(beside.await, "a split j");
    let alone = log_of(|graph, _, split, j| {
        let w = worker(graph, "w");
        graph.add_fan_out(split, |_| NONE, w);
        graph.add_join([w], j);
    });
    assert_eq!(alone.await, "a split j");
    let from_the_start = log_of(|graph, a, _, j| {
        let w = worker(graph, "w");
        graph.add_fan_out(START, |_| NONE, w);
        graph.add_join([a, w.into()], j);
    });
    assert_eq!(from_the_start.await, "a split j");
    // Without a join no node waits for it.
    let edge = log_of(|graph, _, split, j| {
        let w = worker(graph, "w");
        graph.add_fan_out(split, |_| NONE, w);
        graph.add_edge(w, j);
    });
    assert_eq!(edge.await, "a split");
}

#[tokio::test]
async fn successors_of_workers_without_items_reach_their_joins_too() {
    // The worker's own workers.
    let nested = log_of(|graph, _, split, j| {
        let (outer, inner) = (worker(graph, "outer"), worker(graph, "inner"));
        graph.add_fan_out(split, |_| NONE, outer);
        graph.add_fan_out(outer, |_| [1], inner);
        graph.add_join([outer, inner], j);
    });
    assert_eq!(nested.await, "a split j");
    // Workers that existed, without workers of their own.
    let inner_only = log_of(|graph, _, split, j| {
        let (outer, inner) = (worker(graph, "outer"), worker(graph, "inner"));
        graph.add_fan_out(split, |_| [1, 2], outer);
        graph.add_fan_out(outer, |_| NONE, inner);
        graph.add_join([outer, inner], j);
    });
    assert_eq!(inner_only.await, "a split 1 2 j");
    // Nodes after them, unless another edge leads there.
    let behind = log_of(|graph, a, split, j| {
        let (w, next) = (worker(graph, "w"), logging_node(graph, "next"));
        graph.add_fan_out(split, |_| NONE, w);
        graph.add_edge(w, next);
        graph.add_join([a, next], j);
    });
    assert_eq!(behind.await, "a split j");
    let reached_otherwise = log_of(|graph, a, split, j| {
        let (w, next) = (worker(graph, "w"), logging_node(graph, "next"));
        graph.add_fan_out(split, |_| NONE, w);
        graph.add_edge(w, next);
        graph.add_edge(a, next);
        graph.add_join([a, next], j);
    });
    assert_eq!(reached_otherwise.await, "a split next j");
}

#[tokio::test]
async fn a_join_waits_for_items_that_another_node_sent() {
    let two_splits = log_of(|graph, a, split, j| {
        let w = worker(graph, "w");
        graph.add_fan_out(split, |_| NONE, w);
        graph.add_fan_out(a, |_| [7], w);
        graph.add_join([w], j);
    });
    assert_eq!(two_splits.await, "a split 7 j");
    let mixed = log_of(|graph, _, split, j| {
        let (one, other) = (worker(graph, "one"), worker(graph, "other"));
        graph.add_fan_out(split, |_| NONE, one);
        graph.add_fan_out(split, |_| [7, 8], other);
        graph.add_join([one, other], j);
    });
    assert_eq!(mixed.await, "a split 7 8 j");
}

/// A routing node that sends nothing has sent all its items, and one that goes elsewhere does not send.
#[tokio::test]
async fn a_routing_node_that_sends_nothing_and_goes_nowhere_else_has_fanned_out() {
    for (goes, wanted) in [(false, "split j"), (true, "split other")] {
        let mut graph = StateGraph::<Plain>::new("g");
        let [other, j] = ["other", "j"].map(|name| logging_node(&mut graph, name));
        let w = worker(&mut graph, "w");
        let split = graph.add_routing_node("split", move |_: Plain, _: Cx| async move {
            let command = Command::<Plain, Way>::update(say("split"));
            if goes { command.goto(Way::Other) } else { command.send(w, 1) }
        });
        let empty = graph.add_worker("empty", async |_: i64, _: Plain, _: Cx| {});
        graph.add_edge(START, split);
        graph.add_routes(split, move |Way::Other| other);
        graph.add_sends(split, w);
        graph.add_sends(split, empty);
        graph.add_join([empty], j);
        let end = graph.compile().unwrap().run(Plain::update()).await.unwrap();
        let said: Vec<_> = end.state.log.iter().filter(|word| *word != "1").map(String::as_str).collect();
        assert_eq!(said.join(" "), wanted);
    }
}

#[test]
fn err_a_join_of_less_than_two_nodes() {
    let mut graph = StateGraph::<Plain>::new("g");
    let [a, b] = ["a", "b"].map(|name| logging_node(&mut graph, name));
    graph.add_edge(START, a);
    graph.add_join([a, a], b);
    graph.add_join([a, b], END);
    let problems = graph.compile().err().unwrap().problems;
    assert!(
        problems.iter().all(|problem| matches!(problem.kind, ProblemKind::LonelyJoin(_))),
        "{problems:?}"
    );
    assert_eq!(
        problems[0].kind.to_string(),
        "SS010: a join to `b` waits for fewer than two nodes; use `add_edge`, or add its other sources"
    );
}

#[test]
fn a_join_knows_only_nodes_of_its_graph() {
    let mut other = StateGraph::<Plain>::new("other");
    let stranger = logging_node(&mut other, "stranger");
    let mut graph = StateGraph::<Plain>::new("g");
    let [a, b] = ["a", "b"].map(|name| logging_node(&mut graph, name));
    graph.add_edge(START, a);
    graph.add_join([a, stranger], b);
    let first = line!() - 1;
    let problems = graph.compile().err().unwrap().problems;
    assert!(matches!(&problems[0].kind, ProblemKind::ForeignNode(_)), "{problems:?}");
    assert_eq!(problems[0].place.line(), first);
}

#[test]
#[should_panic(expected = "only at a node of graph `g` can its runs stop")]
fn a_graph_stops_only_at_nodes_of_its_own() {
    let mut other = StateGraph::<Plain>::new("other");
    let stranger = logging_node(&mut other, "stranger");
    StateGraph::<Plain>::new("g").stop_before(stranger);
}

#[tokio::test]
async fn a_join_whose_source_is_never_reached_ends_with_the_run() {
    let graph = branches(|graph, a, c, d| {
        graph.add_join([a, c, d], d);
    });
    let graph = graph.with_checkpointer(std::sync::Arc::new(superstep::MemoryCheckpointer::new()));
    let end = graph.thread("t").run(Plain::update()).await.unwrap();
    assert_eq!(end.state.log_text(), "a b c");
    assert!(head(&graph).await.checkpoint.unwrap().control.arrived.is_empty());
    assert!(!matches!(graph.thread("t").resume().await, Err(RunError::Restore { .. })));
}
