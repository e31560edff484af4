//! The suspicions about graphs that could run, and the cases without any.

use superstep::{
    CompiledGraph, Cx, END, Log, NodeOptions, NodeRef, Route, START, State, StateGraph,
    topology::{Level, Lint, ProblemKind},
};

use crate::support::{Plain, failed, json, logging_node};

#[derive(Route, Clone, Copy)]
enum Two {
    Left,
    Right,
}

#[derive(Route, Clone, Copy)]
enum Next {
    Again,
    Done,
}

/// Returns the warnings of a graph, without their places in this file.
fn warned<S: State>(graph: &CompiledGraph<S>) -> Vec<String> {
    let text = |problem: &superstep::topology::Problem| {
        let by_sayer = matches!(problem.kind, ProblemKind::Unreachable(_));
        assert!(by_sayer || problem.place.file().ends_with("lints.rs"), "{problem}");
        problem.kind.to_string()
    };
    graph.warnings().iter().map(text).collect()
}

fn names(graph: &mut StateGraph<Plain>, names: &[&'static str]) -> Vec<NodeRef> {
    names.iter().map(|name| logging_node(graph, name)).collect()
}

#[tokio::test]
async fn a_node_whose_predecessors_end_at_different_depths_is_warned_of() {
    let mut graph = StateGraph::<Plain>::new("a13");
    let [a, b, a2, j] = names(&mut graph, &["a", "b", "a2", "j"])[..] else { unreachable!() };
    graph.add_edge(START, a);
    graph.add_edge(START, b);
    graph.add_edge(a, a2);
    graph.add_edge(a2, j);
    graph.add_edge(b, j);
    graph.add_edge(j, END);
    let graph = graph.compile().unwrap();
    assert_eq!(
        warned(&graph),
        [
            "SS020: node `j` runs more than once: `a2` leads to it in a later superstep than `b`; use `add_join` to run it \
          once after both, or defer it"
        ]
    );
    assert_eq!(graph.thread("t").run(Plain::update()).await.unwrap().state.log_text(), "a b a2 j j");
}

#[test]
fn equal_depths_joins_and_deferred_nodes_run_once() {
    let build = |join: bool, deferred: bool, long: bool| {
        let mut graph = StateGraph::<Plain>::new("once");
        let [a, b, a2, j, k] = names(&mut graph, &["a", "b", "a2", "j", "k"])[..] else { unreachable!() };
        graph.add_edge(START, a);
        graph.add_edge(START, b);
        let last = if long { a2 } else { a };
        graph.add_edge(a, a2);
        if join {
            graph.add_join([last, b], j);
        } else {
            graph.add_edge(last, j);
            graph.add_edge(b, j);
        }
        if deferred {
            graph.configure(j, NodeOptions::new().deferred());
        }
        graph.add_edge(j, k);
        warned(&graph.compile().unwrap()).len()
    };
    assert_eq!(build(false, false, true), 1, "`j` is to blame, and `k` is not");
    assert_eq!(build(false, false, false), 0);
    assert_eq!(build(true, false, true), 0);
    assert_eq!(build(false, true, true), 0);
}

fn two_ways(several: bool, again: bool, join: bool) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("two ways");
    let [ask, left, right, far, j] = names(&mut graph, &["ask", "left", "right", "far", "j"])[..] else {
        unreachable!()
    };
    graph.add_edge(START, ask);
    let map = |two| match two {
        Two::Left => left,
        Two::Right => right,
    };
    if several {
        graph.add_conditional_edges(ask, |_: &Plain| vec![Two::Left, Two::Right], map);
    } else {
        graph.add_conditional_edges(ask, |_: &Plain| Two::Left, map);
    }
    graph.add_edge(right, far);
    if again {
        graph.add_conditional_edges(
            left,
            |_: &Plain| Next::Done,
            |next| match next {
                Next::Again => ask,
                Next::Done => END,
            },
        );
    }
    if join {
        graph.add_join([left, far], j);
    } else {
        graph.add_edge(left, j);
        graph.add_edge(far, j);
    }
    graph.compile().unwrap()
}

#[test]
fn a_join_of_exclusive_routes_never_completes() {
    assert_eq!(
        warned(&two_ways(false, false, true)),
        [
            "SS021: the join to `j` never completes: a conditional edge of `ask` leads to `left` or to `far`, never to \
          both; use an edge from each instead of the join, or let the router return several routes"
        ]
    );
    assert_eq!(warned(&two_ways(true, false, true)), [""; 0], "a router may return several");
    assert_eq!(warned(&two_ways(false, true, true)), [""; 0], "it may ask again, and choose the other one");
    assert_eq!(warned(&two_ways(false, false, false)), [""; 0], "one of two edges is taken");
}

#[test]
fn a_join_with_an_unreachable_source_never_completes() {
    let mut graph = StateGraph::<Plain>::new("waits");
    let [a, lost, j] = names(&mut graph, &["a", "lost", "j"])[..] else { unreachable!() };
    graph.add_edge(START, a);
    graph.add_join([a, lost], j);
    assert_eq!(
        warned(&graph.compile().unwrap()),
        [
            "SS008: node `lost` can never run, no edge leads to it from START; add an edge or remove the node",
            "SS021: the join to `j` never completes: no edge leads to `lost`; add one, or remove it from the join",
        ]
    );
}

#[test]
fn a_cycle_without_an_exit_is_a_warning() {
    let build = |way_out: bool, self_loop: bool, items: bool| {
        let mut graph = StateGraph::<Plain>::new("circle");
        let [a, b, c] = names(&mut graph, &["a", "b", "c"])[..] else { unreachable!() };
        let worker = graph.add_worker("worker", async |_: i64, _: Plain, _: Cx| ());
        graph.add_edge(START, a);
        graph.add_conditional_edges(
            a,
            |_: &Plain| Two::Left,
            |two| match two {
                Two::Left => b,
                Two::Right if way_out => END,
                Two::Right => c,
            },
        );
        graph.add_edge(c, b);
        if self_loop {
            graph.add_edge(b, b);
        } else if items {
            graph.add_fan_out(b, |_: &Plain| [1], worker);
        } else {
            graph.add_edge(b, a);
        }
        graph.add_edge(worker, b);
        graph.lint(Lint::Unreachable, Level::Allow);
        warned(&graph.compile().unwrap())
    };
    let endless = |who: &str| {
        format!(
            "SS022: {who} forever: no route leaves the cycle; add a conditional edge with a route to END or \
             to another node"
        )
    };
    assert_eq!(build(false, false, false), [endless("nodes `a`, `b`, `c` run")]);
    assert_eq!(build(true, false, false), [""; 0]);
    assert_eq!(build(true, true, false), [endless("node `b` runs")], "a plain edge is no choice");
    assert_eq!(build(false, false, true), [""; 0], "there may be no items");
}

#[derive(State, Clone, Debug, Default)]
struct Shared {
    answer: String,
    #[channel(append)]
    log: Log<String>,
}

/// START → (a, b → c), with the declared writes of each.
fn writers(a: &[&str], b: &[&str], c: &[&str]) -> Vec<String> {
    let mut graph = StateGraph::<Shared>::new("writers");
    let nodes = ["a", "b", "c"].map(|name| graph.add_node(name, async |_: Shared, _: Cx| ()));
    let [first, second, third] = nodes;
    graph.add_edge(START, first);
    graph.add_edge(START, second);
    graph.add_edge(second, third);
    for (node, channels) in nodes.into_iter().zip([a, b, c]) {
        graph.writes(node, channels.iter().copied());
    }
    warned(&graph.compile().unwrap())
}

#[test]
fn writers_in_one_superstep_are_compared() {
    let both = "SS023: nodes `a` and `b` can run in the same superstep, and both write channel `answer`, which takes one \
                write per superstep; use a merging reducer or order the nodes with an edge";
    assert_eq!(writers(&["answer"], &["log", "answer"], &[]), [both]);
    assert_eq!(writers(&["log"], &["log"], &["log"]), [""; 0], "a merging reducer");
    assert_eq!(writers(&["answer"], &["log"], &["answer"]), [""; 0], "one after the other");
    assert_eq!(writers(&[], &["answer"], &["answer"]), [""; 0]);
}

#[test]
fn the_tasks_of_a_worker_are_compared_with_each_other() {
    let build = |channel: &str| {
        let mut graph = StateGraph::<Shared>::new("workers");
        let worker = graph.add_worker("worker", async |_: i64, _: Shared, _: Cx| ());
        graph.add_fan_out(START, |_: &Shared| [1, 2], worker);
        graph.writes(worker, [channel]);
        warned(&graph.compile().unwrap())
    };
    assert_eq!(
        build("answer"),
        [
            "SS023: the tasks of worker `worker` run in the same superstep and all write channel `answer`, which takes one \
          write per superstep; use a merging reducer or order the nodes with an edge"
        ]
    );
    assert_eq!(build("log"), [""; 0]);
}

#[test]
fn exclusive_routes_and_joins_do_not_run_together() {
    let mut graph = StateGraph::<Shared>::new("apart");
    let [ask, left, right, slow, j] =
        ["ask", "left", "right", "slow", "j"].map(|name| graph.add_node(name, async |_: Shared, _: Cx| ()));
    graph.add_edge(START, ask);
    graph.add_conditional_edges(
        ask,
        |_: &Shared| Two::Left,
        |two| match two {
            Two::Left => left,
            Two::Right => right,
        },
    );
    graph.add_edge(START, slow);
    graph.add_join([ask, slow], j);
    for node in [left, right, slow] {
        graph.writes(node, ["answer"]);
    }
    assert_eq!(warned(&graph.compile().unwrap()), [""; 0]);
}

#[test]
fn a_lint_can_be_silenced_or_made_an_error() {
    let build = |level| {
        let mut graph = StateGraph::<Plain>::new("levels");
        let a = logging_node(&mut graph, "a");
        graph.add_edge(START, a);
        graph.add_edge(a, a);
        graph.lint(Lint::Cycle, level);
        graph.compile()
    };
    assert_eq!(build(Level::Warn).unwrap().warnings().len(), 1);
    assert_eq!(build(Level::Allow).unwrap().warnings().len(), 0);
    let refused = build(Level::Deny).err().unwrap();
    assert_eq!(refused.problems.len(), 1);
    assert!(matches!(&refused.problems[0].kind, ProblemKind::Endless(nodes) if *nodes == ["a"]));
    assert_eq!(refused.problems[0].kind.lint(), Some(Lint::Cycle));
}

#[test]
fn a_channel_that_is_not_there_cannot_be_declared() {
    let mut graph = StateGraph::<Shared>::new("typo");
    let a = graph.add_node("a", async |_: Shared, _: Cx| ());
    graph.add_edge(START, a);
    graph.writes(a, ["anwser", "log"]);
    let refused = graph.compile().err().unwrap();
    assert_eq!(
        refused.problems[0].kind.to_string(),
        "SS024: node `a` cannot write channel `anwser`, which the state does not have; its channels are \
         `answer`, `log`"
    );
}

#[tokio::test]
async fn a_write_that_was_not_declared_is_refused() {
    let mut graph = StateGraph::<Shared>::new("says less");
    let a = graph.add_node("a", async |_: Shared, _: Cx| Shared::update().answer("x".to_owned()));
    graph.add_edge(START, a);
    graph.writes(a, ["log"]);
    let backend = crate::support::Backend::memory();
    let graph = backend.keep(graph.compile().unwrap());
    let error = failed(graph.thread("t").run(Shared::update()).await);
    assert_eq!(
        error.to_string(),
        "SS186: superstep 1: node `a` wrote channel `answer`, which it does not declare; add it to \
         `StateGraph::writes`, or do not write it"
    );
    let state = graph.thread("t").state().await.unwrap();
    assert_eq!(json(&state.values.answer), "");
    assert!(state.tasks[0].error.as_ref().unwrap().starts_with("SS186"));
}

/// A declaration of more writes than needed is valid.
#[tokio::test]
async fn a_declared_write_is_accepted() {
    let mut graph = StateGraph::<Shared>::new("says it");
    let a = graph.add_node("a", async |_: Shared, _: Cx| Shared::update().answer("x".to_owned()));
    graph.add_edge(START, a);
    graph.writes(a, ["log"]);
    graph.writes(a, ["answer"]);
    let run = graph.compile().unwrap().thread("t").run(Shared::update()).await.unwrap();
    assert_eq!(run.state.answer, "x");
}
