//! Nodes that choose the next nodes.

use std::sync::Arc;

use superstep_engine::{
    Before, Control, EngineError, NodeName, Records, Report, Run, RunLimits, Target, Topology,
};

use crate::support::{Machine, build, finished, graph, task};

fn to(topology: &Topology, nodes: &[&str]) -> Report {
    let target = |name: &&str| match *name {
        "END" => Target::End,
        name => {
            let node = topology.find(name).expect("the node is in the graph");
            if topology.takes_item(node) { Target::Send(node) } else { Target::Node(node) }
        }
    };
    Report { targets: nodes.iter().map(target).collect(), ..Report::default() }
}

#[test]
fn a_goto_adds_to_the_edges_and_each_node_runs_once() {
    let lines = "START -> a; a +B+> b; a +C+> c; a +Done+> END; a -> c; a -> d; a => w";
    for (goto, next) in [
        (&["c", "b"][..], "b c d"),
        (&["END"], "c d"),
        (&[], "c d"),
        (&["w", "b", "w"], "b c d w w"),
        (&["b", "b", "END"], "b c d"),
    ] {
        let mut run = Machine::start(graph(lines), 9);
        run.log();
        let log = run.say(finished(task(1, 0), to(&run.topology, goto)));
        assert_eq!(log[0], format!("commit 1: 1.0 -> [{next}]"));
    }
}

#[test]
fn a_node_that_only_goes_somewhere_itself_has_to() {
    let mut run = Machine::start(graph("START -> a; a +Again+> a; a +Done+> END; a => w"), 9);
    run.log();
    let nowhere = run.handle(finished(task(1, 0), Report::default()));
    assert_eq!(nowhere, Err(EngineError::NoGoto("a".into())));
    let log = run.say(finished(task(1, 0), to(&run.topology, &["a"])));
    assert_eq!(log, ["commit 1: 1.0 -> [a]", "execute 2.0 a #1"]);
    let log = run.say(finished(task(2, 0), to(&run.topology, &["w"])));
    assert_eq!(log, ["commit 2: 2.0 -> [w]", "execute 3.0 w #1"]);
    let mut run = Machine::start(graph("START -> a; a +Again+> a; a -> END"), 9);
    run.log();
    assert_eq!(run.finish(1, 0), ["commit 1: 1.0 -> []", "done"]);
}

#[test]
fn a_goto_leads_only_to_where_the_graph_says() {
    let mut run = Machine::start(graph("START -> a; a +B+> b; b -> c; b => w"), 9);
    run.log();
    for (goto, to_) in [("c", "c"), ("a", "a"), ("END", "__end__")] {
        let error = run.handle(finished(task(1, 0), to(&run.topology, &["b", goto])));
        assert_eq!(error, Err(EngineError::UnknownRoute { node: "a".into(), to: to_.into() }));
    }
    let error = run.handle(finished(task(1, 0), to(&run.topology, &["b", "w"])));
    assert_eq!(error, Err(EngineError::UnknownSend { node: "a".into(), to: "`w`".into() }));
    assert_eq!(run.say(finished(task(1, 0), to(&run.topology, &["b"])))[0], "commit 1: 1.0 -> [b]");
}

#[test]
fn where_a_finished_node_went_is_followed_in_the_next_run_and_checked_again() {
    let topology = Arc::new(graph("START -> a; START -> b; a +C+> c; a +D+> d; b -> e; c -> END"));
    let control = Control::new(0, vec!["a".into(), "b".into()]);
    let went = |node: &str| [(0, to(&topology, &[node]))];
    let mut run = Machine::restore(&topology, &control, went("d"), [], 9);
    run.log();
    assert_eq!(run.finish(1, 1)[0], "commit 1: 1.0 1.1 -> [d e]");
    let records = Records { finished: went("e").into(), ..Records::default() };
    let error = Run::restore(topology.clone(), &control, records, RunLimits::default());
    assert_eq!(
        error.expect_err("there is no such route any more").to_string(),
        "the record of task 0 does not fit the checkpoint of superstep 0: node `a` was routed to `e`, to which it has no \
         conditional edge"
    );
}

#[test]
fn external_tasks_run_beside_pending_ones_and_after_earlier_items() {
    let topology = graph("START -> a; a -> b; START -> c; START => w");
    let mut before = Control::new(3, vec!["a".into(), "c".into(), "w".into(), "w".into()]);
    before.items = [(2, "1".to_owned()), (3, "2".to_owned())].into();
    let [a, b, c, w] = ["a", "b", "c", "w"].map(|name| topology.find(name).expect("it is a node"));
    let also = [Target::Send(w), Target::Node(c), Target::End];
    let done = Before { control: &before, done: &[0, 2], begun: &[] };
    let after = topology.after(Some(done), &also, &[], &[(a, Vec::new())]);
    let names: Vec<_> = after.next.iter().map(|name| name.as_str()).collect();
    assert_eq!((after.step, names), (4, vec!["b", "c", "w", "w"]));
    assert_eq!(
        topology.check(a, &[Target::Node(b)]),
        Err(EngineError::UnknownRoute { node: "a".into(), to: "b".into() })
    );
}

#[test]
fn a_deferred_node_waits_for_added_tasks_unless_it_has_begun() {
    let topology = build("START -> a; START -> d", |node| node.deferred = node.name.as_str() == "d");
    let before = Control::new(3, vec!["d".into()]);
    let a = [Target::Node(topology.find("a").expect("it is a node"))];
    let after = |begun| topology.after(Some(Before { control: &before, done: &[], begun }), &a, &[], &[]);
    let names = |nodes: &[NodeName]| nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    for (begun, expected) in [(&[][..], ("a", "d")), (&[0][..], ("a d", ""))] {
        let after = after(begun);
        assert_eq!((names(&after.next).as_str(), names(&after.deferred).as_str()), expected);
    }
}
