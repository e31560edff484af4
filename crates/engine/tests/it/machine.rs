//! The outputs of the engine, input by input.

use std::sync::Arc;

use superstep_engine::{Breakpoints, Control, Input, OnCancel, Records, Report, RunLimits, Target};

use crate::support::{Machine, build, finished, graph, retry, task, wrote};

#[test]
fn a_line_of_nodes_is_one_superstep_after_the_other() {
    let mut run = Machine::start(graph("START -> a; a -> b; b -> END"), 9);
    assert_eq!(run.log(), ["commit 0: 0.0 -> [a]", "execute 1.0 a #1"]);
    assert_eq!(run.finish(1, 0), ["commit 1: 1.0 -> [b]", "execute 2.0 b #1"]);
    assert_eq!(run.finish(2, 0), ["commit 2: 2.0 -> []", "done"]);
}

#[test]
fn tasks_are_executed_and_folded_in_name_order_regardless_of_declaration_and_completion() {
    let mut run = Machine::start(graph("START -> c; START -> a; START -> b; a -> d; b -> d; c -> d"), 9);
    assert_eq!(
        run.log(),
        ["commit 0: 0.0 -> [a b c]", "execute 1.0 a #1", "execute 1.1 b #1", "execute 1.2 c #1"]
    );
    assert_eq!(run.finish(1, 2), [""; 0]);
    assert_eq!(run.finish(1, 0), [""; 0]);
    assert_eq!(run.finish(1, 1), ["commit 1: 1.0 1.1 1.2 -> [d]", "execute 2.0 d #1"]);
}

#[test]
fn a_route_leads_on_and_an_end_route_does_not() {
    let mut run = Machine::start(graph("START -> a; a -Again-> a; a -Done-> END"), 9);
    run.log();
    let report = |targets| Report { targets, ..Report::default() };
    let again = report(vec![run.to("a")]);
    assert_eq!(run.say(finished(task(1, 0), again)), ["commit 1: 1.0 -> [a]", "execute 2.0 a #1"]);
    assert_eq!(run.say(finished(task(2, 0), report(vec![Target::End]))), ["commit 2: 2.0 -> []", "done"]);
}

#[test]
fn each_item_is_a_task_after_those_of_edges_in_the_order_of_sending() {
    let mut run = Machine::start(graph("START -> p; START -> q; p => w; q => w; q -> z"), 9);
    run.log();
    let w = run.topology.find("w").unwrap();
    let sends = |count| Report { targets: vec![Target::Send(w); count], ..Report::default() };
    run.say(finished(task(1, 1), sends(1)));
    assert_eq!(
        run.say(finished(task(1, 0), sends(2))),
        [
            "commit 1: 1.0 1.1 -> [z w w w]",
            "execute 2.0 z #1",
            "execute 2.1 w #1",
            "execute 2.2 w #1",
            "execute 2.3 w #1",
        ]
    );
}

#[test]
fn a_failed_task_is_retried_by_its_policy_and_then_ends_the_run() {
    let mut run = Machine::start(graph("START -> a; START -> b"), 9);
    run.log();
    assert_eq!(run.fail(1, 0, retry()), ["execute 1.0 a #2 after 500ms"]);
    assert_eq!(run.finish(1, 1), [""; 0]);
    assert_eq!(run.fail(1, 0, retry()), ["execute 1.0 a #3 after 1s"]);
    assert_eq!(run.fail(1, 0, retry()), ["fail 1.0"]);
}

#[test]
fn a_failure_without_a_policy_is_not_retried() {
    let mut run = Machine::start(graph("START -> a"), 9);
    run.log();
    assert_eq!(run.fail(1, 0, None), ["fail 1.0"]);
}

#[test]
fn a_conflict_names_the_channel_and_the_first_two_writers() {
    let mut run = Machine::start(graph("START -> a; START -> b; START -> c"), 9);
    run.log();
    run.say(finished(task(1, 0), wrote(&[3], &[])));
    run.say(finished(task(1, 1), wrote(&[], &[7])));
    assert_eq!(run.say(finished(task(1, 2), wrote(&[3], &[7]))), ["conflict on 3: 1.0 1.2"]);
}

#[test]
fn shared_writers_of_a_channel_conflict_only_with_exclusive_ones() {
    for (first, second, conflict) in [
        (wrote(&[], &[0]), wrote(&[], &[0]), false),
        (wrote(&[0], &[]), wrote(&[1], &[]), false),
        (wrote(&[0], &[]), wrote(&[], &[0]), true),
        (wrote(&[], &[0]), wrote(&[0], &[]), true),
    ] {
        let mut run = Machine::start(graph("START -> a; START -> b"), 9);
        run.log();
        run.say(finished(task(1, 0), first));
        let log = run.say(finished(task(1, 1), second));
        assert_eq!(log[0] == "conflict on 0: 1.0 1.1", conflict, "{log:?}");
    }
}

#[test]
fn the_step_limit_counts_supersteps_that_execute_nodes() {
    let mut run = Machine::start(graph("START -> a; a -> b; b -> a"), 2);
    run.log();
    run.finish(1, 0);
    assert_eq!(run.finish(2, 0), ["commit 2: 2.0 -> [a]", "step limit: [a]"]);
    // A restored superstep whose tasks are all finished executes no task.
    let control = Control::new(4, vec!["b".into()]);
    let mut run = Machine::restore(&run.topology, &control, [(0, Report::default())], [], 1);
    assert_eq!(run.log(), ["commit 5: 5.0 -> [a]", "execute 6.0 a #1"]);
    // One with an unfinished task counts.
    let topology = Arc::new(graph("START -> a; START -> b; a -> c; b -> c"));
    let control = Control::new(0, vec!["a".into(), "b".into()]);
    let mut run = Machine::restore(&topology, &control, [(0, Report::default())], [], 1);
    assert_eq!(run.log(), ["execute 1.1 b #1"]);
    assert_eq!(run.finish(1, 1), ["commit 1: 1.0 1.1 -> [c]", "step limit: [c]"]);
}

#[test]
fn a_restored_run_executes_unfinished_tasks_with_their_remaining_attempts() {
    let topology = Arc::new(graph("START -> a; START -> b; START -> c; a -> d"));
    let control = Control::new(0, vec!["a".into(), "b".into(), "c".into()]);
    let mut run = Machine::restore(&topology, &control, [(0, Report::default())], [(2, 2)], 9);
    assert_eq!(run.log(), ["execute 1.1 b #1", "execute 1.2 c #3"]);
    run.finish(1, 1);
    assert_eq!(run.finish(1, 2), ["commit 1: 1.0 1.1 1.2 -> [d]", "execute 2.0 d #1"]);
    let mut run = Machine::restore(&topology, &control, [], [(2, 2)], 9);
    run.log();
    assert_eq!(run.fail(1, 2, retry()), ["fail 1.2"]);
}

#[test]
fn a_finished_thread_is_done_at_once() {
    let topology = Arc::new(graph("START -> a"));
    let mut run = Machine::restore(&topology, &Control::new(3, Vec::new()), [], [], 9);
    assert_eq!(run.log(), ["done"]);
}

#[test]
fn a_cancel_ends_a_run_without_running_tasks() {
    let mut run = Machine::start(graph("START -> a; START -> b"), 9);
    run.log();
    run.finish(1, 0);
    assert_eq!(run.say(Input::Cancel), ["cancelled"]);
}

#[test]
fn a_cancel_drops_some_and_waits_for_those_that_may_finish() {
    let topology = build("START -> a; START -> b; START -> c; b -> d", |node| {
        if matches!(node.name.as_str(), "b" | "c") {
            node.on_cancel = OnCancel::Finish;
        }
    });
    let mut run = Machine::start(topology, 9);
    run.log();
    assert_eq!(run.say(Input::Cancel), ["drop 1.0"]);
    assert_eq!(run.say(Input::Cancel), [""; 0]);
    assert_eq!(run.finish(1, 1), [""; 0]);
    assert_eq!(run.finish(1, 2), ["cancelled"]);
}

#[test]
fn after_a_cancel_only_tasks_that_may_finish_are_started_and_none_is_retried() {
    let topology = build("START -> a; a -> b; a -> c", |node| {
        if node.name.as_str() != "c" {
            node.on_cancel = OnCancel::Finish;
        }
    });
    let mut run = Machine::start(topology, 9);
    run.log();
    assert_eq!(run.say(Input::Cancel), [""; 0]);
    assert_eq!(run.finish(1, 0), ["commit 1: 1.0 -> [b c]", "execute 2.0 b #1"]);
    assert_eq!(run.fail(2, 0, retry()), ["fail 2.0"]);
}

#[test]
fn a_cancel_during_a_commit_takes_effect_after_it() {
    let mut run = Machine::start(graph("START -> a"), 9);
    assert_eq!(run.poll().len(), 1, "the commit of the input");
    assert_eq!(run.say(Input::Cancel), [""; 0]);
    assert_eq!(run.say(Input::Committed), ["cancelled"]);
}

#[test]
fn a_drained_run_ends_after_the_commit_of_its_superstep() {
    let mut run = Machine::start(graph("START -> a; START -> b; a -> c"), 9);
    run.log();
    assert_eq!(run.say(Input::Drain), [""; 0]);
    assert_eq!(run.finish(1, 0), [""; 0]);
    assert_eq!(run.finish(1, 1), ["commit 1: 1.0 1.1 -> [c]", "drained"]);
}

#[test]
fn a_run_that_is_drained_in_its_last_superstep_is_done() {
    let mut run = Machine::start(graph("START -> a"), 9);
    run.log();
    assert_eq!(run.say(Input::Drain), [""; 0]);
    assert_eq!(run.finish(1, 0), ["commit 1: 1.0 -> []", "done"]);
}

#[test]
fn a_drain_during_a_commit_takes_effect_after_it_and_before_the_step_limit_does() {
    let mut run = Machine::start(graph("START -> a; a -> b"), 1);
    run.log();
    run.handle(finished(task(1, 0), Report::default())).unwrap();
    assert_eq!(run.poll().len(), 1, "the commit");
    assert_eq!(run.say(Input::Drain), [""; 0]);
    assert_eq!(run.say(Input::Committed), ["drained"]);
}

#[test]
fn a_run_drained_from_the_start_executes_nothing_and_commits_finished_tasks() {
    let topology = Arc::new(graph("START -> a; a -> b"));
    let limits = || RunLimits { supersteps: 9, drained: true, ..RunLimits::default() };
    let control = Control::new(0, vec!["a".into()]);
    let mut run = Machine::restore_from(&topology, &control, Records::default(), limits());
    assert_eq!(run.log(), ["drained"]);
    let finished = Records { finished: vec![(0, Report::default())], ..Records::default() };
    let mut run = Machine::restore_from(&topology, &control, finished, limits());
    assert_eq!(run.log(), ["commit 1: 1.0 -> [b]", "drained"]);
}

#[test]
fn a_run_is_suspended_when_only_interrupted_tasks_are_left() {
    let topology = Arc::new(graph("START -> a; START -> b; a -> c"));
    let control = Control::new(0, vec!["a".into(), "b".into()]);
    let mut run = Machine::restore(&topology, &control, [], [], 9);
    run.log();
    assert_eq!(run.ask(1, 0), [""; 0]);
    assert_eq!(run.finish(1, 1), ["suspended"]);

    let limits = || RunLimits { supersteps: 9, ..RunLimits::default() };
    let finished = vec![(1, Report::default())];
    let records = Records { finished: finished.clone(), interrupted: vec![0], ..Records::default() };
    let mut run = Machine::restore_from(&topology, &control, records, limits());
    assert_eq!(run.log(), ["suspended"]);

    let answered = Records { finished, ..Records::default() };
    let mut run = Machine::restore_from(&topology, &control, answered, limits());
    assert_eq!(run.log(), ["execute 1.0 a #1"]);
    assert_eq!(run.finish(1, 0), ["commit 1: 1.0 1.1 -> [c]", "execute 2.0 c #1"]);
}

#[test]
fn a_run_stops_at_a_breakpoint_that_it_reaches_and_not_at_its_first_node() {
    let topology = Arc::new(graph("START -> a; a -> b; b -> c"));
    let at = |name: &str| topology.find(name).into_iter().collect::<Vec<_>>();
    let limits = |before: &str, after: &str| RunLimits {
        supersteps: 9,
        breakpoints: Breakpoints { before: at(before), after: at(after) },
        drained: false,
    };
    let from = |step, node: &str| Control::new(step, vec![node.into()]);
    let mut run = Machine::restore_from(&topology, &from(0, "a"), Records::default(), limits("a", ""));
    run.log();
    assert_eq!(run.finish(1, 0), ["commit 1: 1.0 -> [b]", "execute 2.0 b #1"]);
    let mut run = Machine::restore_from(&topology, &from(0, "a"), Records::default(), limits("b", "a"));
    run.log();
    assert_eq!(run.finish(1, 0), ["commit 1: 1.0 -> [b]", "suspended"]);
    let mut run = Machine::restore_from(&topology, &from(2, "c"), Records::default(), limits("", "c"));
    run.log();
    assert_eq!(run.finish(3, 0), ["commit 3: 3.0 -> []", "done"]);
}
