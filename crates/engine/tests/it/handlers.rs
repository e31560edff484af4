//! Error handlers: nodes that run in place of a permanently failed node.

use std::sync::Arc;

use superstep_engine::{
    Breakpoints, Control, Input, OnCancel, Records, Report, Run, RunLimits, Target, Topology,
};

use crate::support::{Machine, build, finished, graph, retry, task, wrote};

/// Two tasks, the first of which has a handler with edges of its own.
const BESIDE: &str = "START -> a; START -> b; a -> x; a !> h; h -> y";

fn started(topology: Topology) -> Machine {
    let mut run = Machine::start(topology, 9);
    run.log();
    run
}

fn beside() -> Control {
    Control::new(0, vec!["a".into(), "b".into()])
}

#[test]
fn it_runs_in_the_slot_of_the_failed_task_and_its_edges_are_followed() {
    let mut run = started(graph(BESIDE));
    assert_eq!(run.fail(1, 0, None), ["execute 1.0 h #1"]);
    assert_eq!(run.finish(1, 0), [""; 0]);
    assert_eq!(run.finish(1, 1), ["commit 1: 1.0 1.1 -> [y]", "execute 2.0 y #1"]);
}

#[test]
fn a_handler_runs_after_all_retries_and_has_its_own_policy() {
    let mut run = started(graph(BESIDE));
    assert_eq!(run.fail(1, 0, retry()), ["execute 1.0 a #2 after 500ms"]);
    assert_eq!(run.fail(1, 0, retry()), ["execute 1.0 a #3 after 1s"]);
    assert_eq!(run.fail(1, 0, retry()), ["execute 1.0 h #1"]);
    assert_eq!(run.fail(1, 0, None), ["fail 1.0"]);
    let mut run = started(graph(BESIDE));
    assert_eq!(run.fail(1, 0, None), ["execute 1.0 h #1"]);
    assert_eq!(run.fail(1, 0, retry()), ["execute 1.0 h #2 after 500ms"]);
    assert_eq!(run.finish(1, 0), [""; 0]);
    assert_eq!(run.fail(1, 1, None), ["fail 1.1"]);
}

#[test]
fn a_failure_that_is_handled_stays_handled_in_the_next_run() {
    let topology = Arc::new(graph(BESIDE));
    let h = topology.find("h").unwrap();
    let limits = || RunLimits { supersteps: 9, ..RunLimits::default() };
    let handled = || Records { handled: vec![(0, h)], ..Records::default() };
    let restored = |records| Machine::restore_from(&topology, &beside(), records, limits());
    assert_eq!(restored(handled()).log(), ["execute 1.0 h #1", "execute 1.1 b #1"]);
    // The remaining failures belong to the handler.
    let again = Records { failed: vec![(0, 1)], ..handled() };
    assert_eq!(restored(again).log(), ["execute 1.0 h #2", "execute 1.1 b #1"]);
    let asks = Records { interrupted: vec![0], finished: vec![(1, Report::default())], ..handled() };
    assert_eq!(restored(asks).log(), ["suspended"]);
    let mut run = restored(Records { finished: vec![(0, Report::default())], ..handled() });
    assert_eq!(run.log(), ["execute 1.1 b #1"]);
    assert_eq!(run.finish(1, 1)[0], "commit 1: 1.0 1.1 -> [y]");
}

#[test]
fn where_it_went_is_checked_against_its_own_routes() {
    let topology = Arc::new(graph("START -> a; a -Up-> x; a !> h; h -Down-> y; x -> END"));
    let control = Control::new(0, vec!["a".into()]);
    let node = |name: &str| topology.find(name).unwrap();
    let restored = |slot, target| {
        let handled = vec![(slot, node("h"))];
        let finished = vec![(0, Report { targets: vec![Target::Node(node(target))], ..Report::default() })];
        let records = Records { handled, finished, ..Records::default() };
        Run::restore(topology.clone(), &control, records, RunLimits::default())
    };
    assert!(restored(0, "y").is_ok());
    for (slot, target, detail) in [
        (0, "x", "node `h` was routed to `x`, to which it has no conditional edge"),
        (1, "y", "there is no such task"),
    ] {
        let error = restored(slot, target).expect_err("it does not fit").to_string();
        let place = format!("the record of task {slot} does not fit the checkpoint of superstep 0: ");
        assert_eq!(error, place + detail);
    }
    let mut run = Machine::restore(&topology, &control, [], [], 9);
    run.log();
    run.fail(1, 0, None);
    let went = |name| Report { targets: vec![Target::Node(node(name))], ..Report::default() };
    run.handle(finished(task(1, 0), went("x"))).expect_err("that is the route of the failed node");
    assert_eq!(run.say(finished(task(1, 0), went("y")))[0], "commit 1: 1.0 -> [y]");
}

#[test]
fn writes_of_a_handler_conflict_like_those_of_its_node() {
    let mut run = started(graph(BESIDE));
    run.fail(1, 0, None);
    run.say(finished(task(1, 1), wrote(&[3], &[])));
    assert_eq!(run.say(finished(task(1, 0), wrote(&[3], &[]))), ["conflict on 3: 1.0 1.1"]);
}

#[test]
fn a_drain_lets_it_run_in_the_superstep_of_its_node() {
    let mut run = started(graph(BESIDE));
    run.say(Input::Drain);
    assert_eq!(run.finish(1, 1), [""; 0]);
    assert_eq!(run.fail(1, 0, None), ["execute 1.0 h #1"]);
    assert_eq!(run.finish(1, 0), ["commit 1: 1.0 1.1 -> [y]", "drained"]);
}

#[test]
fn after_a_cancel_it_runs_only_if_it_may_finish() {
    for (handler, log) in [(OnCancel::Drop, "cancelled"), (OnCancel::Finish, "execute 1.0 h #1")] {
        let mut run = started(build(BESIDE, |node| {
            node.on_cancel = if node.name.as_str() == "h" { handler } else { OnCancel::Finish };
        }));
        run.finish(1, 1);
        assert_eq!(run.say(Input::Cancel), [""; 0]);
        assert_eq!(run.fail(1, 0, None), [log]);
    }
}

#[test]
fn after_a_cancel_it_does_not_replace_attempts_that_are_left() {
    let topology = Arc::new(build(BESIDE, |node| node.on_cancel = OnCancel::Finish));
    let mut run = Machine::restore(&topology, &beside(), [], [], 9);
    run.log();
    assert_eq!(run.say(Input::Cancel), [""; 0]);
    assert_eq!(run.fail(1, 0, retry()), [""; 0]);
    assert_eq!(run.finish(1, 1), ["cancelled"]);
    // Another run makes them, and then it runs.
    let records = Records { failed: vec![(0, 1)], ..Records::default() };
    let limits = RunLimits { supersteps: 9, ..RunLimits::default() };
    let mut run = Machine::restore_from(&topology, &beside(), records, limits);
    assert_eq!(run.log(), ["execute 1.0 a #2", "execute 1.1 b #1"]);
    assert_eq!(run.fail(1, 0, retry())[0], "execute 1.0 a #3 after 1s");
    assert_eq!(run.fail(1, 0, retry()), ["execute 1.0 h #1"]);
}

#[test]
fn a_question_of_its_own_suspends_the_run() {
    let mut run = started(graph(BESIDE));
    run.fail(1, 0, None);
    assert_eq!(run.ask(1, 0), [""; 0]);
    assert_eq!(run.finish(1, 1), ["suspended"]);
}

#[test]
fn breakpoints_and_limits_know_both_names() {
    let topology = Arc::new(graph(BESIDE));
    let h = topology.find("h").unwrap();
    for name in ["a", "h"] {
        let after = topology.find(name).into_iter().collect();
        let breakpoints = Breakpoints { before: Vec::new(), after };
        let limits = RunLimits { supersteps: 9, breakpoints, drained: false };
        let mut run = Machine::restore_from(&topology, &beside(), Records::default(), limits);
        run.log();
        run.fail(1, 0, None);
        run.finish(1, 0);
        assert_eq!(run.finish(1, 1), ["commit 1: 1.0 1.1 -> [y]", "suspended"], "after {name}");
    }
    let records = Records { handled: vec![(0, h)], ..Records::default() };
    let mut run = Machine::restore_from(&topology, &beside(), records, RunLimits::default());
    assert_eq!(run.log(), ["step limit: [a b]"]);
}
