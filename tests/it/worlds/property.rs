//! Property tests of users' graphs.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{TestError, TestRunner},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use superstep::{CompiledGraph, Cx, END, Log, NodeError, Route, START, State, StateGraph};
use superstep_testing::property::{invariants, states, updates, values};

/// A kind of goods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Goods {
    Book,
    Food { days: u8 },
    Other(String),
}

#[derive(State, Clone, Debug, Default)]
struct Shop {
    #[channel(sum)]
    stock: i64,
    order: u8,
    goods: Option<Goods>,
    #[channel(append)]
    log: Log<(String, bool)>,
    #[channel(union)]
    seen: BTreeSet<u16>,
    prices: BTreeMap<String, f64>,
    #[channel(untracked)]
    session: u32,
}

#[derive(Route, Clone, Copy)]
enum Next {
    Refill,
    Sell,
}

/// Sells what is ordered; `checks` the stock before.
fn shop(checks: bool) -> CompiledGraph<Shop> {
    let mut graph = StateGraph::<Shop>::new("shop");
    let sell = graph.add_node_with("sell", checks, async |checks: bool, shop: Shop, _| {
        let sold = i64::from(shop.order);
        let sold = if checks { sold.min(shop.stock).max(0) } else { sold };
        Shop::update().stock(-sold).order(0)
    });
    let refill = graph.add_node("refill", async |shop: Shop, _| Shop::update().stock(10 - shop.stock));
    let next = |shop: &Shop| if shop.stock < 0 { Next::Refill } else { Next::Sell };
    graph.add_conditional_edges(START, next, |next| match next {
        Next::Refill => refill,
        Next::Sell => sell,
    });
    graph.add_edge(refill, sell);
    graph.add_edge(sell, END);
    graph.compile().unwrap()
}

#[test]
fn an_invariant_that_holds_is_found_to_hold() {
    let inputs =
        (0..100_i64, any::<u8>()).prop_map(|(stock, order)| Shop::update().stock(stock).order(order));
    invariants(&shop(true)).inputs(inputs).check("the stock is not negative", |shop| shop.stock >= 0).run();
}

#[test]
fn the_shortest_history_that_violates_an_invariant_is_shown() {
    let graph = shop(false);
    let inputs =
        (0..100_i64, any::<u8>()).prop_map(|(stock, order)| Shop::update().stock(stock).order(order));
    let test = invariants(&graph).inputs(inputs).check("the stock is not negative", |shop| shop.stock >= 0);
    let violation = test.find().unwrap();
    assert_eq!(violation.inputs, [json!({"stock": 0, "order": 1})]);
    insta::assert_snapshot!(violation, @r#"
    `the stock is not negative` does not hold after input 1, superstep 1 (sell)
    state
      stock -1
      order 0
      goods null
      log []
      seen []
      prices {}
    inputs
      1 {"order":1,"stock":0}
    "#);

    let inputs = Just(Shop::update().stock(2).order(1));
    let test = invariants(&graph).inputs(inputs).check("the shop is small", |shop| shop.stock < 5);
    let violation = test.length(1..=9).find().unwrap();
    assert_eq!(violation.inputs.len(), 4);
    assert!(
        violation.what.starts_with("`the shop is small` does not hold after input 4, superstep "),
        "{violation}"
    );

    // With any updates of the state.
    let violation = invariants(&graph).check("few are ordered", |shop| shop.order < 9).find().unwrap();
    assert_eq!(violation.inputs, [json!({"order": 9})]);
}

#[test]
#[should_panic(expected = "`the stock is not negative` does not hold after")]
fn a_violation_fails_the_test() {
    invariants(&shop(false)).check("the stock is not negative", |shop| shop.stock >= 0).run();
}

#[test]
fn a_run_that_fails_violates_the_test_unless_it_may() {
    let mut graph = StateGraph::<Shop>::new("fails");
    let only = graph.add_node("only", async |shop: Shop, cx: Cx| {
        let agreed: bool = cx.interrupt("agreed", shop.order).await;
        if shop.order > 3 && agreed { Err(NodeError::new("too much").fatal()) } else { Ok(Shop::update()) }
    });
    graph.add_edge(START, only);
    let graph = graph.compile().unwrap();
    let orders = || invariants(&graph).inputs(any::<u8>().prop_map(|order| Shop::update().order(order)));
    // Without an answer each thread ends at its question.
    assert_eq!(orders().find(), None);
    let violation = orders().answer(|_| Some(true.into())).find().unwrap();
    assert_eq!(violation.inputs, [json!({"order": 4})]);
    assert!(
        violation.what.starts_with("input 1 fails: ") && violation.what.contains("too much"),
        "{violation}"
    );
    assert_eq!(orders().answer(|_| Some(true.into())).may_fail().find(), None);
}

#[test]
fn updates_write_every_channel_with_values_of_its_type() {
    let graph = shop(true);
    let (mut written, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    let mut runner = TestRunner::deterministic();
    for _ in 0..500 {
        let update = updates(&graph).new_tree(&mut runner).unwrap().current();
        let json = serde_json::to_value(&update).unwrap();
        let read: ShopUpdate = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), json);
        written.extend(json.as_object().unwrap().keys().cloned());
        kinds.extend(update.goods.map(|goods| goods.is_some()));
        assert_eq!(update.session, None);
    }
    let expected = ["goods", "log", "order", "prices", "seen", "stock"];
    assert_eq!(written.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    assert_eq!(kinds.len(), 2);
    let state = states(&graph).new_tree(&mut runner).unwrap().current();
    assert_eq!(state.session, 0);
}

#[test]
fn values_of_a_type_shrink_to_its_simplest_ones() {
    let failed = TestRunner::deterministic().run(&values::<Vec<Goods>>(), |goods| {
        let has_food = goods.contains(&Goods::Food { days: 2 });
        prop_assert!(!has_food);
        Ok(())
    });
    let Err(TestError::Fail(_, goods)) = failed else { panic!("{failed:?}") };
    assert_eq!(goods, [Goods::Food { days: 2 }]);
}
