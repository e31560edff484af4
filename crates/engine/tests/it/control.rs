//! The control record that is stored with every checkpoint, and records that do not fit.

use std::sync::Arc;

use superstep_engine::{Control, Records, Report, RestoreError, Run, RunLimits, Target, Withheld};

use crate::support::graph;

/// Records of earlier versions. Only add to this file; change nothing in it.
const STORED: &str = include_str!("../fixtures/control.json");

fn records() -> Vec<Control> {
    let mut sent = Control::new(7, vec!["z".into(), "worker".into(), "worker".into()]);
    sent.items = [(1, "3".to_owned()), (2, r#"{"url":"/"}"#.to_owned())].into();
    let mut updated = Control::new(9, vec!["worker".into()]);
    updated.items = [(0, "3".to_owned())].into();
    updated.arrived = [("a|b:c".to_owned(), vec!["b".into()])].into();
    updated.deferred = vec!["last".into()];
    updated.withheld = [("worker", Withheld::Reached), ("x", Withheld::Sent), ("y", Withheld::Empty)]
        .map(|(node, state)| (node.into(), state))
        .into();
    let mut held = Control::new(10, vec!["worker".into()]);
    held.items = [(0, "3".to_owned())].into();
    held.held = [("total".into(), vec!["worker".into()])].into();
    vec![
        Control::input(None),
        Control::new(4, vec!["agent".into(), "tools".into()]),
        sent,
        Control::new(8, Vec::new()),
        updated,
        held,
    ]
}

#[test]
fn stored_records_are_read_unchanged() {
    assert_eq!(serde_json::from_str::<Vec<Control>>(STORED).unwrap(), records());
}

#[test]
fn records_are_stored_in_the_form_of_the_fixture() {
    let stored: serde_json::Value = serde_json::from_str(STORED).unwrap();
    assert_eq!(serde_json::to_value(records()).unwrap(), stored);
}

#[test]
fn an_input_follows_the_last_superstep() {
    assert_eq!(Control::input(Some(6)), Control::new(7, vec!["__start__".into()]));
    assert!(!Control::input(None).is_finished());
    assert!(Control::new(8, Vec::new()).is_finished());
}

fn refused(control: &Control, finished: Vec<(u32, Report)>, failed: Vec<(u32, u32)>) -> RestoreError {
    let topology = Arc::new(graph("START -> a; a -Go-> b; b -> END"));
    let records = Records { finished, failed, ..Records::default() };
    Run::restore(topology, control, records, RunLimits { supersteps: 9, ..RunLimits::default() })
        .expect_err("the record does not fit")
}

#[test]
fn nodes_that_the_graph_lost_are_all_named() {
    let control = Control::new(2, vec!["a".into(), "x".into(), "y".into()]);
    let error = refused(&control, Vec::new(), Vec::new());
    assert_eq!(error, RestoreError::UnknownNodes { step: 2, nodes: vec!["x".into(), "y".into()] });
    assert_eq!(
        error.to_string(),
        "the checkpoint of superstep 2 has pending nodes that the graph does not have: `x`, `y`; add the nodes again, \
         or update the thread as another node"
    );
}

#[test]
fn a_node_without_items_is_planned_once() {
    let many = vec!["a".into(); 2_000];
    let expected = RestoreError::RepeatedNode { step: 0, node: "a".into() };
    assert_eq!(refused(&Control::new(0, many.clone()), Vec::new(), Vec::new()), expected);
    assert_eq!(
        expected.to_string(),
        "the checkpoint of superstep 0 has several tasks of node `a`, which takes no items; superstep wrote no such record: \
         resume from an earlier checkpoint, or delete the thread"
    );
    let deferred = Control { deferred: many, ..Control::new(0, vec!["b".into()]) };
    assert_eq!(refused(&deferred, Vec::new(), Vec::new()), expected);
}

#[test]
fn a_task_has_an_item_if_its_node_takes_one() {
    // Another version of the graph planned them.
    let items = [(0, "1".to_owned()), (1, "2".to_owned())].into();
    let with_items = Control { items, ..Control::new(3, vec!["a".into(); 2]) };
    assert_eq!(
        refused(&with_items, Vec::new(), Vec::new()).to_string(),
        "at the checkpoint of superstep 3 a task of node `a` has an item, but the node takes no items; let it take items \
         again, or update the thread as this node"
    );
    let topology = Arc::new(graph("START => w; w -> END"));
    let control = Control::new(3, vec!["w".into()]);
    let error = Run::restore(topology, &control, Records::default(), RunLimits::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "at the checkpoint of superstep 3 the task of node `w` has no item, but the node takes items; let it run without \
         one again, or update the thread as this node"
    );
}

#[test]
fn only_numbers_of_supersteps_are_read() {
    let read = |step: i64| serde_json::from_value::<Control>(serde_json::json!({ "step": step, "next": [] }));
    for step in [-1, 0, *Control::STEPS.end()] {
        assert_eq!(read(step).unwrap().step, step);
    }
    for step in [-2, i64::MIN, *Control::STEPS.end() + 1, i64::MAX] {
        assert_eq!(read(step).unwrap_err().to_string(), format!("{step} is not the number of a superstep"));
    }
}

#[test]
fn records_of_tasks_that_are_not_there_are_refused() {
    let control = Control::new(0, vec!["a".into()]);
    let expected = "the record of task 1 does not fit the checkpoint of superstep 0: there is no such task";
    assert_eq!(refused(&control, vec![(1, Report::default())], Vec::new()).to_string(), expected);
    assert_eq!(refused(&control, Vec::new(), vec![(1, 2)]).to_string(), expected);
}

#[test]
fn a_stored_route_that_the_graph_lost_is_refused() {
    let control = Control::new(0, vec!["a".into()]);
    let report = Report { targets: vec![Target::End], ..Report::default() };
    assert_eq!(
        refused(&control, vec![(0, report)], Vec::new()).to_string(),
        "the record of task 0 does not fit the checkpoint of superstep 0: node `a` was routed to `__end__`, to which \
         it has no conditional edge"
    );
}

#[test]
fn a_start_without_its_input_is_refused() {
    let error = refused(&Control::input(None), Vec::new(), Vec::new());
    assert_eq!(
        error.to_string(),
        "the record of task 0 does not fit the checkpoint of superstep -1: the input is missing"
    );
}
