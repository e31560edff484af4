//! Edges without their nodes.

use super::*;
use superstep_testing::{route, route_table};

/// `a` leads to `b` or to the end, and to a worker for each part; `b` and `c` join at `d`.
fn edges() -> CompiledGraph<Order> {
    let mut graph = StateGraph::<Order>::new("edges");
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| graph.add_node(name, async |_: Order, _: Cx| ()));
    let pack = graph.add_worker("pack", pack);
    graph.add_edge(START, a);
    graph.add_edge(START, c);
    let router = |order: &Order| {
        assert!(order.cents >= 0, "no negative sums");
        if order.cents < 10 { Next::Pay } else { Next::Done }
    };
    graph.add_conditional_edges(a, router, |next| match next {
        Next::Pay => b,
        Next::Done => END,
    });
    graph.add_fan_out(a, |order: &Order| order.parts.clone(), pack);
    graph.add_join([b, c], d);
    graph.compile().unwrap()
}

#[test]
fn a_route_names_the_next_nodes_with_their_items() {
    let graph = edges();
    assert_eq!(route(&graph, "a", &two_parts()).unwrap(), ["b", r#"pack "lid""#, r#"pack "box""#]);
    assert_eq!(route(&graph, "a", &Order { cents: 10, ..Order::default() }).unwrap(), ["__end__"]);
    assert_eq!(route(&graph, "__start__", &Order::default()).unwrap(), ["a", "c"]);
    assert_eq!(route(&graph, "d", &Order::default()).unwrap(), ["__end__"]);
}

#[test]
fn a_join_names_what_it_waits_for() {
    assert_eq!(route(&edges(), "b", &Order::default()).unwrap(), ["d (waits for c)"]);
}

#[test]
fn a_table_has_one_line_for_each_state() {
    let states = [
        ("small", Order::default()),
        ("two parts", two_parts()),
        ("large", Order { cents: 10, ..Order::default() }),
        ("negative", Order { cents: -1, ..Order::default() }),
    ];
    insta::assert_snapshot!(route_table(&edges(), "a", states).unwrap(), @r#"
    small     → b
    two parts → b, pack "lid", pack "box"
    large     → __end__
    negative  → error: SS116: superstep 0: a conditional edge of node `a` failed: panicked: no negative sums
    "#);
}

#[test]
fn a_node_that_chooses_itself_has_no_route_without_a_run() {
    let error = route(&order(&Charges::default()), "plan", &Order::default()).unwrap_err();
    insta::assert_snapshot!(error, @"SS104: superstep 0: routing node `plan` returned no route, and no edge leaves it; return a route, or one that leads to END");
}

#[test]
fn a_deferred_node_waits_for_other_tasks() {
    let mut graph = StateGraph::<Order>::new("g");
    let [a, late] = ["a", "late"].map(|name| graph.add_node(name, async |_: Order, _: Cx| ()));
    graph.configure(late, NodeOptions::new().deferred());
    graph.add_edge(START, a);
    graph.add_edge(a, late);
    let graph = graph.compile().unwrap();
    assert_eq!(route(&graph, "a", &Order::default()).unwrap(), ["late (deferred)"]);
}
