//! Updates that a run would refuse, and states that it cannot store.

use std::collections::BTreeMap;

use super::*;
use superstep::error::chain;
use superstep_testing::{NodeTestError, node};

#[tokio::test]
async fn an_update_is_checked_as_in_a_run() {
    let mut graph = StateGraph::<Order>::new("g");
    let lie = graph.add_node("lie", async |_: Order, _: Cx| Order::update().cents(1));
    graph.writes(lie, ["receipt"]);
    graph.add_edge(START, lie);
    let graph = graph.compile().unwrap();
    let refused = node(&graph, "lie").run().await.unwrap();
    assert_eq!((refused.update_json(), refused.after.cents), (json!({ "cents": 1 }), 0));
    insta::assert_snapshot!(refused, @"
    node `lie` in superstep 1
    update
      cents 1
    error
      SS186: superstep 1: node `lie` wrote channel `cents`, which it does not declare; add it to `StateGraph::writes`, or do not write it
    ");
}

#[derive(State, Clone, Debug, Default)]
struct Sized {
    #[channel(sum)]
    ratio: f64,
    names: BTreeMap<String, f64>,
}

fn sized() -> CompiledGraph<Sized> {
    let mut graph = StateGraph::<Sized>::new("sized");
    let nan = graph.add_node("nan", async |_: Sized, _: Cx| Sized::update().ratio(f64::NAN));
    graph.add_edge(START, nan);
    graph.compile().unwrap()
}

#[tokio::test]
async fn an_update_that_cannot_be_stored_is_an_error() {
    let refused = node(&sized(), "nan").run().await.unwrap();
    insta::assert_snapshot!(refused.error_text().unwrap(), @"SS106: superstep 1: the write of node `nan` to `ratio` cannot be stored as JSON and read back unchanged: NaN is not a number in JSON and would be read back as `null`");
}

#[tokio::test]
async fn a_state_that_cannot_be_stored_is_refused() {
    let state = Sized { ratio: f64::INFINITY, ..Sized::default() };
    let error = node(&sized(), "nan").state(state).run().await.unwrap_err();
    assert!(matches!(error, NodeTestError::Run(_)), "{error}");
    insta::assert_snapshot!(chain(&error), @"SS117: superstep 0: the value of channel `ratio` cannot be stored as JSON and read back unchanged: inf is not a number in JSON and would be read back as `null`");
}
