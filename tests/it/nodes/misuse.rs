//! Tests that do not fit their graph.

use super::*;
use superstep_testing::{NodeTest, chain, node, route};

async fn error(test: NodeTest<'_, Order>) -> String {
    test.run().await.unwrap_err().to_string()
}

#[tokio::test]
async fn an_unknown_node_is_an_error_with_the_nodes_of_the_graph() {
    let graph = order(&Charges::default());
    let expected = "graph `order` has no node `plam`; its nodes are `pack`, `pay`, `plan`, `recover`, `send`";
    assert_eq!(error(node(&graph, "plam")).await, expected);
    assert_eq!(chain(&graph, "plam").run().await.unwrap_err().to_string(), expected);
    assert_eq!(chain(&graph, "plan").until("plam").run().await.unwrap_err().to_string(), expected);
    assert_eq!(route(&graph, "plam", &Order::default()).unwrap_err().to_string(), expected);
    assert!(error(node(&graph, "__start__")).await.contains("has no node `__start__`"));
}

#[tokio::test]
async fn workers_need_an_item_and_no_other_node_takes_one() {
    let graph = order(&Charges::default());
    insta::assert_snapshot!(error(node(&graph, "pack")).await, @"node `pack` is a worker, whose tasks take an item; give one with `item`");
    insta::assert_snapshot!(error(node(&graph, "plan").item(1)).await, @"node `plan` is not a worker and takes no item");
}

#[tokio::test]
async fn error_handlers_need_a_failure_and_no_other_node_takes_one() {
    let graph = order(&Charges::default());
    insta::assert_snapshot!(error(node(&graph, "recover")).await, @"node `recover` is the error handler of `pay`; give the failure with `failure`");
    insta::assert_snapshot!(error(node(&graph, "plan").failure("x")).await, @"node `plan` is not an error handler and takes no failure");
}

#[tokio::test]
async fn an_answer_to_another_question_is_an_error_with_the_questions() {
    let graph = order(&Charges::default());
    insta::assert_snapshot!(error(node(&graph, "pay").answer("approved", true)).await, @r#"no question took the answer `approved`; the questions were `approve` {"cents":0}"#);
    insta::assert_snapshot!(error(node(&graph, "plan").answer("approve", true)).await, @"no question took the answer `approve`; the node has none");
    let twice = node(&graph, "pay").answer("approve", true).answer("approve", true);
    insta::assert_snapshot!(error(twice).await, @r#"no question took the answer `approve`; the questions were `approve` {"cents":0}"#);
}

#[tokio::test]
async fn a_result_of_another_effect_is_an_error_with_the_effects() {
    let graph = order(&Charges::default());
    let pay = node(&graph, "pay").answer("approve", true).effect("charges", "r-1");
    insta::assert_snapshot!(error(pay).await, @"the given result of `charges` was not used; the other effects were `charge`, `rate`");
    let waiting = node(&graph, "pay").effect("charge", "r-1").run().await.unwrap();
    assert_eq!((waiting.questions.len(), waiting.effects.len()), (1, 0));
    insta::assert_snapshot!(error(node(&graph, "plan").effect("charge", 1)).await, @"the given result of `charge` was not used; the node has no other effects");
}

#[tokio::test]
async fn values_without_a_json_form_are_errors() {
    let graph = order(&Charges::default());
    let bad = || std::collections::BTreeMap::from([((1, 2), 3)]);
    insta::assert_snapshot!(error(node(&graph, "pay").answer("approve", bad())).await, @"the answer `approve` has no JSON form");
    insta::assert_snapshot!(error(node(&graph, "pack").item(bad())).await, @"the item has no JSON form");
    insta::assert_snapshot!(error(node(&graph, "plan").context(bad())).await, @"the context has no JSON form");
}
