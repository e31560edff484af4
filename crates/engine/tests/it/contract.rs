//! A driver that breaks the contract gets an error, and the run continues unchanged.

use superstep_engine::{EngineError, Input, Report, RetryPolicy, Target};

use crate::support::{Machine, finished, graph, task};

fn refused(run: &mut Machine, input: Input) -> EngineError {
    let error = run.handle(input).expect_err("the input does not fit");
    assert_eq!(run.poll(), [], "a refused input has no effect");
    error
}

#[test]
fn tasks_that_do_not_run_cannot_end() {
    let mut run = Machine::start(graph("START -> a; START -> b"), 9);
    run.log();
    run.finish(1, 0);
    for id in [task(1, 0), task(1, 2), task(0, 0), task(2, 1)] {
        assert_eq!(refused(&mut run, finished(id, Report::default())), EngineError::NotRunning(id));
        let failed = Input::Failed { task: id, retry: Some(RetryPolicy::default()), jitter_share: 0.5 };
        assert_eq!(refused(&mut run, failed), EngineError::NotRunning(id));
    }
    assert_eq!(run.finish(1, 1), ["commit 1: 1.0 1.1 -> []", "done"]);
}

#[test]
fn nothing_can_be_committed_that_was_not_requested() {
    let mut run = Machine::start(graph("START -> a"), 9);
    run.log();
    assert_eq!(refused(&mut run, Input::Committed), EngineError::NoCommit);
    assert_eq!(run.finish(1, 0), ["commit 1: 1.0 -> []", "done"]);
}

#[test]
fn while_a_commit_is_pending_no_task_runs() {
    let mut run = Machine::start(graph("START -> a"), 9);
    assert_eq!(run.poll().len(), 1, "the commit of the input");
    let early = refused(&mut run, finished(task(1, 0), Report::default()));
    assert_eq!(early, EngineError::NotRunning(task(1, 0)));
    assert_eq!(run.say(Input::Committed), ["execute 1.0 a #1"]);
}

#[test]
fn a_run_that_is_over_takes_nothing_more() {
    let mut run = Machine::start(graph("START -> a"), 9);
    run.log();
    run.finish(1, 0);
    for input in [Input::Committed, Input::Cancel, Input::Drain, finished(task(1, 0), Report::default())] {
        assert_eq!(refused(&mut run, input), EngineError::Over);
    }
}

#[test]
fn routes_that_the_graph_does_not_have_are_refused() {
    let mut run = Machine::start(graph("START -> a; a -Go-> b; b -> END; a => w; b => w"), 9);
    run.log();
    let send = Target::Send(run.topology.find("w").unwrap());
    let node = |name: &str| Target::Node(run.topology.find(name).unwrap());
    let (a, b, w) = (node("a"), node("b"), node("w"));
    let cases = [
        (
            vec![],
            "node `a` has conditional edges, and a router returned no route; return a route, or route to END",
        ),
        (
            vec![send],
            "node `a` has conditional edges, and a router returned no route; return a route, or route to END",
        ),
        (vec![b, a], "node `a` was routed to `a`, to which it has no conditional edge"),
        (vec![w], "node `a` was routed to `w`, to which it has no conditional edge"),
        (vec![Target::End], "node `a` was routed to `__end__`, to which it has no conditional edge"),
    ];
    for (targets, expected) in cases {
        let report = Report { targets, ..Report::default() };
        assert_eq!(refused(&mut run, finished(task(1, 0), report)).to_string(), expected);
    }
    let report = Report { targets: vec![b, send], ..Report::default() };
    let log = run.say(finished(task(1, 0), report));
    assert_eq!(log, ["commit 1: 1.0 -> [b w]", "execute 2.0 b #1", "execute 2.1 w #1"]);
}

#[test]
fn a_dropped_task_has_nothing_to_report() {
    let topology = crate::support::build("START -> a; START -> b", |node| {
        if node.name.as_str() == "b" {
            node.on_cancel = superstep_engine::OnCancel::Finish;
        }
    });
    let mut run = Machine::start(topology, 9);
    run.log();
    assert_eq!(run.say(Input::Cancel), ["drop 1.0"]);
    let late = refused(&mut run, finished(task(1, 0), Report::default()));
    assert_eq!(late, EngineError::NotRunning(task(1, 0)));
    assert_eq!(run.finish(1, 1), ["cancelled"]);
}
